"""Schedules: published again and again, once for each time that comes."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import penstock
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from tests.shard.passing_time import pass_time

HOUR_S = 3600.0


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        yield opened


def published(broker: penstock.Broker) -> list[bytes]:
    return [message.value for message in broker.read("t")] if any(t.name == "t" for t in broker.topics()) else []


def test_it_fires_once_for_each_time(broker: penstock.Broker, clock: VirtualClock) -> None:
    made = broker.schedule(
        "hourly", "0 * * * *", "t", "tick", key="k", headers={"a": "b"}, priority="low", expires_in="1d"
    )
    assert made.next_at == datetime(2026, 1, 1, 1, tzinfo=UTC)
    for hours in range(1, 4):
        pass_time(broker, clock, HOUR_S - 1)
        assert len(published(broker)) == hours - 1
        pass_time(broker, clock, 1)
        pass_time(broker, clock, 0)
        assert len(published(broker)) == hours
    message = next(broker.read("t"))
    assert (message.value, message.key, message.headers, message.priority) == (b"tick", b"k", {"a": "b"}, 192)
    (schedule,) = broker.schedules()
    assert (schedule.name, schedule.cron, schedule.topic, schedule.paused) == ("hourly", "0 * * * *", "t", False)
    assert schedule.next_at == datetime(2026, 1, 1, 4, tzinfo=UTC)


def test_each_message_lives_from_when_it_is_published(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.schedule("hourly", "0 * * * *", "t", "tick", expires_in="30s")
    for _ in range(2):
        pass_time(broker, clock, HOUR_S)
    assert [message.expires_at for message in broker.read("t")] == [
        datetime(2026, 1, 1, hour, 0, 30, tzinfo=UTC) for hour in (1, 2)
    ]


def test_the_time_zone_is_that_of_the_schedule(broker: penstock.Broker) -> None:
    assert broker.schedule("b", "0 9 * 7 *", "t", "x", zone="Europe/Berlin").next_at == datetime(
        2026, 7, 1, 7, tzinfo=UTC
    )
    assert broker.schedule("n", "0 9 1 1 *", "t", "x", zone="America/New_York").next_at == datetime(
        2026, 1, 1, 14, tzinfo=UTC
    )


def test_T3_what_was_missed_is_published_once(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.schedule("hourly", "0 * * * *", "t", "tick")
        pass_time(broker, clock, HOUR_S)
    clock.advance(10 * HOUR_S)
    for _ in range(2):
        with penstock.open(storage=storage, clock=clock) as broker:
            pass_time(broker, clock, 0)
            assert published(broker) == [b"tick"] * 2
            assert broker.schedules()[0].next_at == datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_the_same_name_replaces(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.schedule("s", "* * * * *", "t", "old")
    broker.schedule("s", "0 * * * *", "t", "new")
    pass_time(broker, clock, 120)
    assert published(broker) == []
    pass_time(broker, clock, HOUR_S)
    assert published(broker) == [b"new"]
    assert len(broker.schedules()) == 1


def test_paused_ones_do_not_fire_and_missed_times_are_not_made_up_for(
    broker: penstock.Broker, clock: VirtualClock
) -> None:
    broker.schedule("s", "0 * * * *", "t", "x")
    paused = broker.pause_schedule("s")
    assert (paused.paused, paused.next_at) == (True, None)
    pass_time(broker, clock, 5 * HOUR_S)
    assert published(broker) == []
    assert broker.resume_schedule("s").next_at == datetime(2026, 1, 1, 6, tzinfo=UTC)
    pass_time(broker, clock, 0)
    assert published(broker) == []
    pass_time(broker, clock, HOUR_S)
    assert published(broker) == [b"x"]


@pytest.mark.parametrize("settle", [False, True])
def test_T3_schedules_survive_a_restart_and_retention(clock: VirtualClock, settle: bool) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock, topic_defaults={"retention_age": "1h", "partitions": 4}) as broker:
        broker.schedule("yearly", "0 0 1 1 *", "t", "year")
        broker.schedule("paused", "0 0 1 1 *", "t", "never")
        broker.schedule("removed", "0 0 1 1 *", "t", "never")
        broker.pause_schedule("paused")
        broker.remove_schedule("removed")
        if settle:
            broker.settle()
        clock.advance(30 * 86400)
        broker.retain()
    with penstock.open(storage=storage, clock=clock) as broker:
        assert [(schedule.name, schedule.paused) for schedule in broker.schedules()] == [
            ("paused", True),
            ("yearly", False),
        ]
        broker.settle()
        broker.retain()
        pass_time(broker, clock, 336 * 86400)
        assert published(broker) == [b"year"]
    with penstock.open(storage=storage, clock=clock) as broker:
        assert broker.schedules()[1].next_at == datetime(2028, 1, 1, tzinfo=UTC)


def test_a_removed_one_never_fires_again(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.schedule("s", "* * * * *", "t", "x")
    broker.remove_schedule("s")
    pass_time(broker, clock, 600)
    assert published(broker) == []
    assert broker.schedules() == []


def test_a_full_topic_gets_it_when_there_is_room(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", max_backlog=1)
    broker.publish("t", "full")
    consumer = broker.consumer("t", "g")
    broker.schedule("s", "0 * * * *", "t", "x")
    pass_time(broker, clock, HOUR_S)
    assert len(published(broker)) == 1
    consumer.ack(consumer.receive())
    pass_time(broker, clock, 2)
    assert published(broker) == [b"full", b"x"]
    assert broker.schedules()[0].next_at == datetime(2026, 1, 1, 2, tzinfo=UTC)


def test_a_real_clock_fires_by_itself() -> None:
    with penstock.open(storage=MemoryStorage()) as broker, broker.consumer("t", "g") as consumer:
        broker.schedule("s", "* * * * *", "t", "x")
        with broker.shards.of("t").lock:
            schedule, offsets = broker.shards.of("t").schedules._find("s")
            import msgspec

            soon = msgspec.structs.replace(schedule, next_us=broker.shards.of("t").clock.wall_us() + 50_000)
            broker.shards.of("t").schedules._write(soon)
        assert [message.value for message in consumer.receive(1, wait=20)] == [b"x"]
        assert broker.schedules()[0].next_us % 60_000_000 == 0
        assert list(offsets) == [0]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda b: b.schedule("s", "never", "t", "x"), penstock.InvalidArgument),
        (lambda b: b.schedule("s", "* * * * *", "t", "x", zone="Mars"), penstock.InvalidArgument),
        (lambda b: b.schedule("bad name", "* * * * *", "t", "x"), penstock.InvalidArgument),
        (lambda b: b.schedule("s", "* * * * *", "bad name", "x"), penstock.InvalidArgument),
        (lambda b: b.schedule("s", "* * * * *", "t", 5), penstock.InvalidArgument),
        (lambda b: b.schedule("s", "* * * * *", "t", "x", priority="urgent"), penstock.InvalidArgument),
        (lambda b: b.pause_schedule("unknown"), penstock.ScheduleNotFound),
        (lambda b: b.resume_schedule(None), penstock.ScheduleNotFound),
        (lambda b: b.remove_schedule([]), penstock.ScheduleNotFound),
    ],
)
def test_wrong_arguments_are_refused(broker: penstock.Broker, call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(broker)
    assert broker.schedules() == []


def test_a_closed_broker_schedules_nothing(broker: penstock.Broker) -> None:
    broker.schedule("s", "* * * * *", "t", "x")
    broker.close()
    for call in (
        lambda: broker.schedule("s", "* * * * *", "t", "x"),
        lambda: broker.pause_schedule("s"),
        lambda: broker.remove_schedule("s"),
        broker.schedules,
    ):
        with pytest.raises(penstock.BrokerClosed):
            call()


def test_a_change_that_the_disk_refuses_changes_nothing(clock: VirtualClock) -> None:
    storage = FaultyStorage(1)
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.schedule("a", "0 0 1 1 *", "t", "A")
        before = broker.schedules()
        for change in (
            lambda: broker.schedule("refused", "0 0 1 1 *", "t", "x"),
            lambda: broker.schedule("a", "0 5 1 1 *", "t", "x"),
            lambda: broker.pause_schedule("a"),
            lambda: broker.remove_schedule("a"),
        ):
            storage.fail("write", errno.ENOSPC)
            with pytest.raises(penstock.DiskFull):
                change()
            assert broker.schedules() == before
        broker.schedule("b", "0 0 1 1 *", "t", "B")
        with pytest.raises(penstock.ScheduleNotFound):
            broker.remove_schedule("refused")
        broker.pause_schedule("a")
    with penstock.open(storage=storage, clock=clock) as broker:
        assert [(schedule.name, schedule.paused) for schedule in broker.schedules()] == [("a", True), ("b", False)]


def test_what_the_disk_refuses_to_fire_is_fired_later_and_once(clock: VirtualClock) -> None:
    storage = FaultyStorage(1)
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.schedule("s", "0 * * * *", "t", "x")
        storage.fail("write", errno.ENOSPC, always=True)
        pass_time(broker, clock, HOUR_S)
        pass_time(broker, clock, 2)
        with broker.shards.of("t").lock:
            assert broker.shards.of("t").keep_time() <= 1
        assert published(broker) == []
        storage.heal()
        for _ in range(3):
            pass_time(broker, clock, 2)
        assert published(broker) == [b"x"]
        assert broker.schedules()[0].next_at == datetime(2026, 1, 1, 2, tzinfo=UTC)
    with penstock.open(storage=storage, clock=clock) as broker:
        assert broker.schedules()[0].next_at == datetime(2026, 1, 1, 2, tzinfo=UTC)
