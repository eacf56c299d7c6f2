"""Delays: never early, once, cancelled for good, and all of it after a restart too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import penstock
from penstock.shard.operations import delays as delays_module
from penstock.shard.operations.delays import find_delayed, list_delayed
from penstock.testing import MemoryStorage, VirtualClock

START = datetime(2026, 1, 1, tzinfo=UTC)  # where the virtual clock begins


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        yield opened


def values(messages: list[penstock.Delivery]) -> list[bytes]:
    return [message.value for message in messages]


def test_T1_a_message_is_never_early(broker: penstock.Broker, clock: VirtualClock) -> None:
    consumer = broker.consumer("t", "g")
    broker.publish("t", "delayed", delay="1m")
    broker.publish("t", "at", deliver_at=START + timedelta(minutes=2))
    broker.publish("t", "now")
    assert values(consumer.receive()) == [b"now"]
    clock.advance(59.999_999)
    assert consumer.receive() == []
    clock.advance(0.000_001)
    (message,) = consumer.receive()
    assert (message.value, message.deliver_at) == (b"delayed", START + timedelta(minutes=1))
    clock.advance(59.999_999)
    assert consumer.receive() == []
    clock.advance(0.000_001)
    assert values(consumer.receive()) == [b"at"]


def test_T6_no_delay_and_less_than_a_tick_fire_at_the_next_one(broker: penstock.Broker, clock: VirtualClock) -> None:
    consumer = broker.consumer("t", "g")
    broker.publish_many("t", [penstock.Message("a", delay=0), penstock.Message("b", deliver_at=START)])
    broker.publish("t", "c", delay=0.000_001)
    assert values(consumer.receive()) == [b"a", b"b"]
    clock.advance(0.000_001)
    assert values(consumer.receive()) == [b"c"]


def test_what_falls_due_keeps_its_place_among_the_others(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish("t", "first", delay=10)
    broker.publish_many("t", ["second", "third"])
    broker.publish("t", "urgent", delay=10, priority=0)
    consumer = broker.consumer("t", "g")
    consumer.release(consumer.receive())
    clock.advance(10)
    assert values(consumer.receive()) == [b"urgent", b"first", b"second", b"third"]


def test_a_delay_beyond_the_limit_is_refused(broker: penstock.Broker) -> None:
    with pytest.raises(penstock.InvalidArgument, match="the limit is 7d "):
        broker.publish("t", "x", delay="8d")
    identity = broker.publish("t", "x", delay="7d")
    with pytest.raises(penstock.InvalidArgument, match="max_delay"):
        broker.reschedule_delayed(identity, delay="8d")
    with pytest.raises(penstock.InvalidArgument):
        broker.publish_many("t", ["y", penstock.Message("z", deliver_at="2030-01-01T00:00:00Z")])
    assert len(list(broker.read("t"))) == 1


def test_years_work_where_they_are_configured(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.create_topic("t", max_delay="36500d", retention_age="1d")
        broker.publish("t", "far", delay="3650d")
        broker.settle()
        clock.advance(3649.9 * 86400)
        assert broker.retain() == 0
    with penstock.open(storage=storage, clock=clock) as broker, broker.consumer("t", "g") as consumer:
        assert consumer.receive() == []
        clock.advance(0.1 * 86400)
        assert values(consumer.receive()) == [b"far"]


def test_the_list_is_in_the_order_of_the_times(
    broker: penstock.Broker, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t", partitions=3)
    delays = random.Random(5).sample(range(1, 1000), 60)
    ids = {broker.publish("t", "x", delay=delay): delay for delay in delays}
    broker.publish("t", "now")
    found = broker.delayed("t")
    assert [(one.id, one.due_at) for one in found] == [
        (identity, START + timedelta(seconds=delay))
        for identity, delay in sorted(ids.items(), key=lambda item: item[1])
    ]
    assert broker.delayed("t", limit=5) == found[:5]
    assert list(list_delayed(broker.shards.of("t"), "t", limit=5, skip=3)) == found[3:8]
    for at_once in (1, 7):  # so many of them while others wait
        monkeypatch.setattr(delays_module, "_AT_ONCE", at_once)
        assert list(list_delayed(broker.shards.of("t"), "t", limit=20, skip=3)) == found[3:23]
        assert broker.delayed("t") == found
    assert list(list_delayed(broker.shards.of("t"), "t", skip=len(found))) == []
    assert find_delayed(broker.shards.of("t"), found[-1].id) == found[-1]
    clock.advance(500)
    assert len(broker.delayed("t")) == sum(delay > 500 for delay in delays)


def test_T4_a_cancelled_message_is_never_delivered(broker: penstock.Broker, clock: VirtualClock) -> None:
    consumer = broker.consumer("t", "g")
    ids = [broker.publish("t", f"{n}", delay=10) for n in range(4)]
    assert broker.cancel_delayed(ids[1])
    assert broker.cancel_delayed(str(ids[2]))
    assert broker.cancel_delayed(ids[2]), "nobody ever gets it, however often one asks"
    assert broker.reschedule_delayed(ids[2], delay=5) is None
    assert [one.id for one in broker.delayed("t")] == [ids[0], ids[3]]
    assert consumer.receive() == []
    clock.advance(10)
    assert values(consumer.receive()) == [b"0", b"3"]
    assert not broker.cancel_delayed(ids[0])
    info = broker.group("t", "g")
    assert (info.withdrawn, info.leased, info.published) == (2, 2, 4)
    assert values(broker.consumer("t", "another").receive()) == [b"0", b"3"]


def test_a_message_that_was_not_delayed_cannot_be_cancelled(broker: penstock.Broker) -> None:
    identity = broker.publish("t", "x")
    assert not broker.cancel_delayed(identity)
    assert broker.reschedule_delayed(identity, delay=5) is None
    assert values(broker.consumer("t", "g").receive()) == [b"x"]


def test_a_message_may_be_given_an_earlier_or_a_later_time(broker: penstock.Broker, clock: VirtualClock) -> None:
    consumer = broker.consumer("t", "g", autoack=True)
    earlier, later = broker.publish("t", "earlier", delay=100), broker.publish("t", "later", delay=100)
    assert broker.reschedule_delayed(earlier, delay=10) == START + timedelta(seconds=10)
    assert broker.reschedule_delayed(later, deliver_at=START + timedelta(seconds=200)) is not None
    assert [one.id for one in broker.delayed("t")] == [earlier, later]
    clock.advance(10)
    assert values(consumer.receive()) == [b"earlier"]
    clock.advance(189)
    assert consumer.receive() == []
    assert broker.reschedule_delayed(later, deliver_at=START) is not None
    assert values(consumer.receive()) == [b"later"]
    clock.advance(1000)
    assert consumer.receive() == []


@pytest.mark.parametrize("settle", [False, True])
def test_T3_delays_survive_a_restart_and_what_is_past_due_fires_once(clock: VirtualClock, settle: bool) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        ids = [broker.publish("t", f"{n}", delay=10 * (n + 1)) for n in range(5)]
        assert broker.cancel_delayed(ids[0])
        assert broker.reschedule_delayed(ids[1], delay=1000) is not None
        assert broker.reschedule_delayed(ids[4], delay=1) is not None
        if settle:
            broker.settle()
    with penstock.open(storage=storage, clock=clock) as broker, broker.consumer("t", "g") as consumer:
        assert consumer.receive() == []
        assert [one.id for one in broker.delayed("t")] == [ids[4], ids[2], ids[3], ids[1]]
    clock.advance(35)
    for _ in range(2):
        with penstock.open(storage=storage, clock=clock) as broker, broker.consumer("t", "g") as consumer:
            received = consumer.receive()
            assert values(received) in ([b"2", b"4"], [])
            consumer.ack(received)
            assert broker.group("t", "g").acked == 2
            assert broker.cancel_delayed(ids[0])
            assert not broker.cancel_delayed(ids[2])
            clock.advance(1)
            consumer.release(consumer.receive())
    clock.advance(1000)
    with penstock.open(storage=storage, clock=clock) as broker, broker.consumer("t", "g") as consumer:
        assert values(consumer.receive()) == [b"1", b"3"]


def test_T8_cancelling_what_falls_due_does_one_of_the_two() -> None:
    with penstock.open(storage=MemoryStorage()) as broker, ThreadPoolExecutor(4) as pool:
        consumer = broker.consumer("t", "g")
        cancelled: set[penstock.MessageId] = set()
        delivered: set[penstock.MessageId] = set()
        choose = random.Random(8)
        for _ in range(40):
            ids = list(broker.publish_many("t", [penstock.Message("x", delay=0.002) for _ in range(5)]))
            ids += broker.publish_many("t", [penstock.Message("x", delay=choose.random() / 100) for _ in range(5)])
            receiving = pool.submit(consumer.receive, 10, wait=0.01)
            for identity, answer in zip(ids, pool.map(broker.cancel_delayed, ids), strict=True):
                if answer:
                    cancelled.add(identity)
            received = receiving.result()
            consumer.ack(received)
            delivered.update(message.id for message in received)
        while received := consumer.receive(100, wait=0.2):
            consumer.ack(received)
            delivered.update(message.id for message in received)
        assert not cancelled & delivered
        assert len(cancelled | delivered) == 400
        info = broker.group("t", "g")
        assert (info.acked, info.withdrawn) == (len(delivered), len(cancelled))


def test_T2_an_idle_broker_wakes_for_what_falls_due() -> None:
    with penstock.open(storage=MemoryStorage()) as broker, broker.consumer("t", "g") as consumer:
        broker.publish("t", "x", delay=0.05)
        assert values(consumer.receive(1, wait=20)) == [b"x"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda b: b.delayed("unknown"), penstock.TopicNotFound),
        (lambda b: b.delayed([]), penstock.InvalidArgument),
        (lambda b: b.delayed("t", limit=-1), penstock.InvalidArgument),
        (lambda b: b.cancel_delayed("t/0/99"), penstock.MessageNotFound),
        (lambda b: b.cancel_delayed("t/9/0"), penstock.MessageNotFound),
        (lambda b: b.cancel_delayed("unknown/0/0"), penstock.TopicNotFound),
        (lambda b: b.cancel_delayed("t"), penstock.InvalidArgument),
        (lambda b: b.cancel_delayed(None), penstock.InvalidArgument),
        (lambda b: b.cancel_delayed(penstock.MessageId("t", -1, 0)), penstock.InvalidArgument),
        (lambda b: b.reschedule_delayed("t/0/0"), penstock.InvalidArgument),
        (lambda b: b.reschedule_delayed("t/0/0", delay=1, deliver_at=START), penstock.InvalidArgument),
        (lambda b: b.reschedule_delayed("t/0/0", delay=-1), penstock.InvalidArgument),
        (lambda b: b.publish("t", "x", delay=-1), penstock.InvalidArgument),
        (lambda b: b.publish("t", "x", delay=1, deliver_at=START), penstock.InvalidArgument),
    ],
)
def test_wrong_arguments_are_refused(broker: penstock.Broker, call: Any, error: type[Exception]) -> None:
    broker.publish("t", "x", delay=10)
    with pytest.raises(error):
        call(broker)
    assert len(broker.delayed("t")) == 1
