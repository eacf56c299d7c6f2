"""Replay: the past once more, beside the live group and without touching it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import penstock
from penstock.testing import MemoryStorage, VirtualClock

START = datetime(2026, 1, 1, tzinfo=UTC)  # where the virtual clock begins


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        yield opened


def fill(broker: penstock.Broker, clock: VirtualClock, minutes: int = 6) -> None:
    """A message a minute: some acked, one dead, some ready."""
    for minute in range(minutes):
        broker.publish("t", f"{minute}", key=f"k{minute % 2}")
        clock.advance(60)
    with broker.consumer("t", "live") as consumer:
        messages = consumer.receive(3)
        consumer.ack(messages[:2])
        messages[2].kill("no")


def received(broker: penstock.Broker, group: str) -> list[int]:
    with broker.consumer("t", group, autoack=True) as consumer:
        return sorted(message.offset for _ in range(10) for message in consumer.receive())


WINDOWS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [0, 1, 2, 3, 4, 5]),
    ({"from_offset": 2}, [2, 3, 4, 5]),
    ({"from_offset": 1, "to_offset": 3}, [1, 2]),
    ({"from_time": START + timedelta(minutes=2), "to_time": START + timedelta(minutes=4)}, [2, 3]),
    ({"to_time": "2026-01-01T00:01:00Z"}, [0]),
    ({"from_time": START + timedelta(minutes=1), "to_offset": 4}, [1, 2, 3]),
    ({"from_offset": 6}, []),
    ({"filter": lambda message: message.key == b"k1"}, [1, 3, 5]),
    ({"filter": lambda message: message.value > b"3", "to_offset": 5, "rate": 1000}, [4]),
]


@pytest.mark.parametrize(("options", "expected"), WINDOWS)
@pytest.mark.parametrize("settle", [False, True])
def test_a_window_goes_to_a_function_and_to_a_group(
    broker: penstock.Broker, clock: VirtualClock, options: dict[str, Any], expected: list[int], settle: bool
) -> None:
    fill(broker, clock)
    if settle:
        broker.settle()
    before = broker.group("t", "live")
    seen: list[penstock.StoredMessage] = []
    assert broker.replay("t", seen.append, **options) == len(expected)
    assert [message.offset for message in seen] == expected
    options.pop("rate", None)
    assert broker.replay("t", "again", **options) == len(expected)
    assert broker.group("t", "again").ready == len(expected)
    broker.publish("t", "later than the replay")
    assert received(broker, "again") == expected
    info = broker.group("t", "again")
    assert (info.acked, info.lag) == (len(expected), 0)
    assert info.published == info.acked + info.skipped
    after = broker.group("t", "live")
    assert (after.acked, after.dead, after.ready) == (before.acked, before.dead, before.ready + 1), "Q9"


def test_Q9_the_live_group_goes_on_during_a_replay(broker: penstock.Broker, clock: VirtualClock) -> None:
    fill(broker, clock)
    broker.replay("t", "again")
    with broker.consumer("t", "live") as live, broker.consumer("t", "again") as again:
        held = live.receive()
        assert [message.offset for message in held] == [3, 4, 5]
        messages = again.receive()
        messages[0].kill("not again")
        again.ack(messages[1:])
        live.ack(held)
    assert (broker.group("t", "live").acked, broker.group("t", "again").acked) == (5, 5)
    assert sorted(letter.group for letter in broker.dead_letters("t")) == ["again", "live"]


def test_a_replay_of_one_partition(broker: penstock.Broker) -> None:
    broker.create_topic("t", partitions=3)
    for partition in range(3):
        broker.publish_many("t", [penstock.Message(f"{partition}", partition=partition)] * 2)
    assert broker.replay("t", "again", partition=1) == 2
    with broker.consumer("t", "again") as consumer:
        assert [message.value for message in consumer.receive()] == [b"1", b"1"]
    seen: list[penstock.StoredMessage] = []
    assert broker.replay("t", seen.append, partition=2) == 2
    assert {message.partition for message in seen} == {2}


def archive(broker: penstock.Broker, clock: VirtualClock, order: str = "lane") -> None:
    """Six messages of which four are in the archive."""
    broker.create_topic("t", retention_age="1d", archive="/cold", order=order)
    broker.publish_many("t", [penstock.Message(f"{n}", key="k", priority=n % 2) for n in range(4)])
    broker.settle()
    clock.advance(3 * 86400)
    broker.publish_many("t", [penstock.Message(f"{n}", key="k") for n in range(4, 6)])


@pytest.mark.parametrize("order", ["lane", "key"])
def test_archived_messages_are_included_also_after_a_restart(clock: VirtualClock, order: str) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        archive(broker, clock, order)
        broker.create_group("t", "live")
        assert broker.retain() >= 1
        seen: list[penstock.StoredMessage] = []
        assert broker.replay("t", seen.append) == 6
        assert [message.value for message in seen] == [f"{n}".encode() for n in range(6)]
        assert broker.replay("t", "again") == 6
        with broker.consumer("t", "again") as consumer:
            consumer.receive(1)[0].ack()
            consumer.receive(1)[0].fail("later", delay=1)
    with penstock.open(storage=storage, clock=clock) as broker:
        assert (broker.group("t", "again").ready, broker.group("t", "again").retrying) == (4, 1)
        clock.advance(1)
        assert len(received(broker, "again")) == 5
        assert broker.group("t", "again").acked == 6
        assert received(broker, "live") == [4, 5]


def test_what_is_archived_during_a_replay_stays_in_it(broker: penstock.Broker, clock: VirtualClock) -> None:
    archive(broker, clock)
    broker.replay("t", "again")
    with broker.consumer("t", "again") as consumer:
        messages = consumer.receive(4)
        consumer.release(messages[:1])
        messages[1].fail("later", delay=5)
        consumer.ack(messages[2:])
        assert broker.retain() >= 1
        info = broker.group("t", "again")
        assert (info.ready, info.retrying, info.acked, info.lost) == (3, 1, 2, 0)
    clock.advance(5)
    assert len(received(broker, "again")) == 4
    assert broker.group("t", "again").lag == 0


def test_a_rate_holds_a_replay_back(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish_many("t", [f"{n}" for n in range(100)])
    broker.replay("t", "slow", rate=10)
    with broker.consumer("t", "slow") as consumer:
        counts = []
        for _ in range(5):
            counts.append(len(consumer.receive()))
            clock.advance(1)
        assert counts[0] == 1
        assert all(9 <= count <= 11 for count in counts[1:])
        assert broker.group("t", "slow").leased == sum(counts)


def test_a_receiver_waits_for_the_rate_and_for_nothing_in_vain() -> None:
    with penstock.open(storage=MemoryStorage()) as broker:
        broker.publish_many("t", [f"{n}" for n in range(20)])
        broker.replay("t", "again", rate=200)
        with broker.consumer("t", "again") as consumer:
            seen: list[int] = []
            while len(seen) < 20:
                seen += [message.offset for message in consumer.receive(20, wait=20)]
            assert seen == list(range(20))
            ticks, real = [], broker.shards.of("t").keep_time
            broker.shards.of("t").keep_time = lambda: ticks.append(1) or real()  # type: ignore[method-assign,func-returns-value]
            assert consumer.receive(1, wait=0.5) == []
            assert len(ticks) < 1000, "nothing is due: the timer sleeps"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda b: b.replay("unknown", "again"), penstock.TopicNotFound),
        (lambda b: b.replay("unknown", print), penstock.TopicNotFound),
        (lambda b: b.replay([], print), penstock.InvalidArgument),
        (lambda b: b.replay("t", "live"), penstock.GroupInUse),
        (lambda b: b.replay("t", "bad name"), penstock.InvalidArgument),
        (lambda b: b.replay("t", 5), penstock.InvalidArgument),
        (lambda b: b.replay("t", "again", from_offset=-1), penstock.InvalidArgument),
        (lambda b: b.replay("t", "again", to_offset="end"), penstock.InvalidArgument),
        (lambda b: b.replay("t", "again", from_offset=3, to_offset=2), penstock.InvalidArgument),
        (lambda b: b.replay("t", "again", from_time="then"), penstock.InvalidArgument),
        (lambda b: b.replay("t", "again", from_time=START, to_time=0), penstock.InvalidArgument),
        (lambda b: b.replay("t", "again", partition=7), penstock.InvalidArgument),
        (lambda b: b.replay("t", "again", rate=0), penstock.InvalidArgument),
    ],
)
def test_wrong_arguments_are_refused(broker: penstock.Broker, call: Any, error: type[Exception]) -> None:
    broker.publish("t", "x")
    broker.create_group("t", "live")
    with pytest.raises(error):
        call(broker)
    assert [info.name for info in broker.groups()] == ["live"]
