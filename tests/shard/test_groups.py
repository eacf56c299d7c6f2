"""Groups: where they begin, how far they are, how they are moved and forgotten."""

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


def fill(broker: penstock.Broker, clock: VirtualClock, minutes: int) -> None:
    """A message a minute."""
    for minute in range(minutes):
        broker.publish("t", f"{minute}")
        clock.advance(60)


def values(messages: list[penstock.Delivery]) -> list[bytes]:
    return [message.value for message in messages]


def adds_up(info: penstock.GroupInfo) -> bool:
    became = info.acked + info.ready + info.leased + info.delayed + info.retrying + info.dead
    return info.published == became + info.lapsed + info.withdrawn + info.skipped + info.lost


@pytest.mark.parametrize("settle", [False, True])
@pytest.mark.parametrize(
    ("start", "first"),
    [("earliest", 0), ("latest", 5), (START + timedelta(minutes=2), 2), ("2026-01-01T00:02:30Z", 3), (0, 0)],
)
def test_a_group_begins_where_it_is_told(
    broker: penstock.Broker, clock: VirtualClock, start: Any, first: int, settle: bool
) -> None:
    fill(broker, clock, 5)
    if settle:
        broker.settle()
    consumer = broker.consumer("t", "g", start=start)
    broker.publish("t", "5")
    assert values(consumer.receive()) == [f"{n}".encode() for n in range(first, 6)]
    info = broker.group("t", "g")
    assert (info.published, info.leased, info.positions) == (6 - first, 6 - first, (first,))
    with broker.consumer("t", "g", start="earliest") as second:
        assert second.receive() == [], "the start is for new groups only"


def test_a_group_in_numbers(broker: penstock.Broker, clock: VirtualClock) -> None:
    fill(broker, clock, 6)
    broker.publish("t", "later", delay=600)
    with broker.consumer("t", "g", name="me") as consumer:
        messages = consumer.receive(4)
        messages[0].ack()
        messages[2].ack()
        messages[3].kill("no")
        info = broker.group("t", "g")
        assert (info.topic, info.name, info.published) == ("t", "g", 7)
        assert (info.acked, info.dead, info.leased, info.ready, info.delayed) == (2, 1, 1, 2, 1)
        assert (info.lag, info.positions) == (4, (1,))
        assert info.oldest_unacked_s == 300
        assert info.members == (penstock.MemberInfo("me", "shared", 1, ()),)
        consumer.ack(messages[1:2])
        assert broker.group("t", "g").oldest_unacked_s == 120
        consumer.ack(consumer.receive())
        clock.advance(600)
        consumer.ack(consumer.receive())
        info = broker.group("t", "g")
        assert (info.lag, info.oldest_unacked_s, info.positions) == (0, None, (7,))
    assert [(info.topic, info.name) for info in broker.groups()] == [("t", "g")]
    assert broker.groups("t.dlq") == []


def test_seek_moves_the_group_and_takes_leases_back(broker: penstock.Broker, clock: VirtualClock) -> None:
    fill(broker, clock, 6)
    consumer = broker.consumer("t", "g")
    held = consumer.receive(4)
    held[0].ack()
    broker.seek_group("t", "g", 2)
    again = consumer.receive()
    assert values(again) == [b"2", b"3", b"4", b"5"]
    assert again[0].deliveries == 1
    for message in held[1:]:
        with pytest.raises(penstock.LeaseLost):
            message.ack()
    info = broker.group("t", "g")
    assert (info.published, info.leased, info.acked) == (4, 4, 0)
    broker.seek_group("t", "g", "latest")
    with pytest.raises(penstock.LeaseLost):
        consumer.ack(again)
    assert (broker.group("t", "g").lag, consumer.receive()) == (0, [])
    broker.seek_group("t", "g", START + timedelta(minutes=3))
    assert values(consumer.receive()) == [b"3", b"4", b"5"]
    broker.seek_group("t", "g", "2026-01-01T00:04:01Z")
    assert values(consumer.receive()) == [b"5"]
    broker.seek_group("t", "g", "earliest")
    consumer.ack(consumer.receive())
    info = broker.group("t", "g")
    assert (info.acked, info.published) == (6, 6)


def test_seek_of_one_partition_leaves_the_others(broker: penstock.Broker) -> None:
    broker.create_topic("t", partitions=2)
    for partition in range(2):
        broker.publish_many("t", [penstock.Message(f"{partition}.{n}", partition=partition) for n in range(3)])
    consumer = broker.consumer("t", "g")
    held = consumer.receive()
    broker.seek_group("t", "g", 1, partition=1)
    assert sorted(values(consumer.receive())) == [b"1.1", b"1.2"]
    consumer.ack([message for message in held if message.partition == 0])
    assert broker.group("t", "g").positions == (3, 1)


def test_positions_survive_a_restart(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        fill(broker, clock, 6)
        broker.create_group("t", "sought", visibility_timeout=7, max_in_flight=2)
        broker.seek_group("t", "sought", 3)
        broker.create_group("t", "late", start="latest")
        broker.create_group("t", "gone")
        broker.delete_group("t", "gone")
        before = broker.groups()
    for settle in (True, False):
        with penstock.open(storage=storage, clock=clock) as broker:
            assert broker.groups() == before
            if settle:
                broker.settle()
    with penstock.open(storage=storage, clock=clock) as broker, broker.consumer("t", "sought") as consumer:
        assert values(consumer.receive()) == [b"3", b"4"]
        clock.advance(7)
        assert broker.group("t", "sought").members[0].in_flight == 0


def test_a_group_with_consumers_is_not_deleted(broker: penstock.Broker) -> None:
    broker.publish("t", "x")
    with broker.consumer("t", "g", name="me") as consumer:
        consumer.ack(consumer.receive())
        with pytest.raises(penstock.GroupInUse, match="me"):
            broker.delete_group("t", "g")
    broker.delete_group("t", "g")
    assert broker.groups() == []
    with pytest.raises(penstock.GroupNotFound, match="no group 'g'"):
        broker.group("t", "g")
    with broker.consumer("t", "g") as consumer:
        assert values(consumer.receive()) == [b"x"], "a new group begins anew"


def test_what_retention_removed_is_lost_and_counted(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", retention_age="1h")
    fill(broker, clock, 5)
    consumer = broker.consumer("t", "g")
    consumer.ack(consumer.receive(2))
    broker.settle()
    clock.advance(7200)
    broker.publish("t", "new")
    assert broker.retain() == 2, "a segment of messages, and one of their events"
    info = broker.group("t", "g")
    assert (info.acked, info.lost, info.ready, info.lag) == (2, 3, 1, 1)
    assert adds_up(info)
    assert values(consumer.receive()) == [b"new"]
    assert broker.create_group("t", "fresh").published == 1
    with pytest.raises(penstock.InvalidArgument, match="5 to 6"):
        broker.seek_group("t", "g", 2)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda b: b.group("unknown", "g"), penstock.TopicNotFound),
        (lambda b: b.group("t", "unknown"), penstock.GroupNotFound),
        (lambda b: b.group("t", []), penstock.GroupNotFound),
        (lambda b: b.group([], "g"), penstock.InvalidArgument),
        (lambda b: b.groups("unknown"), penstock.TopicNotFound),
        (lambda b: b.delete_group("t", "unknown"), penstock.GroupNotFound),
        (lambda b: b.create_group("t", "g"), penstock.GroupInUse),
        (lambda b: b.create_group("t", "bad name"), penstock.InvalidArgument),
        (lambda b: b.create_group("t", "new", start="soon"), penstock.InvalidArgument),
        (lambda b: b.create_group("t", "new", start=-1), penstock.InvalidArgument),
        (lambda b: b.create_group("t", "new", max_in_flight=0), penstock.InvalidArgument),
        (lambda b: b.create_group("t", "new", visibility_timeout=0), penstock.InvalidArgument),
        (lambda b: b.seek_group("t", "unknown", 0), penstock.GroupNotFound),
        (lambda b: b.seek_group("t", "g", 9), penstock.InvalidArgument),
        (lambda b: b.seek_group("t", "g", -1), penstock.InvalidArgument),
        (lambda b: b.seek_group("t", "g", to=True), penstock.InvalidArgument),
        (lambda b: b.seek_group("t", "g", "back"), penstock.InvalidArgument),
        (lambda b: b.seek_group("t", "g", None), penstock.InvalidArgument),
        (lambda b: b.seek_group("t", "g", 0, partition=1), penstock.InvalidArgument),
        (lambda b: b.seek_group("t", "g", 0, partition="0"), penstock.InvalidArgument),
    ],
)
def test_wrong_arguments_are_refused(broker: penstock.Broker, call: Any, error: type[Exception]) -> None:
    broker.publish("t", "x")
    broker.create_group("t", "g")
    with pytest.raises(error):
        call(broker)
    assert [(info.name, info.ready) for info in broker.groups()] == [("g", 1)]


def test_a_closed_broker_answers_nothing(broker: penstock.Broker) -> None:
    broker.publish("t", "x")
    consumer = broker.consumer("t", "g")
    (message,) = consumer.receive()
    broker.close()
    for call in (
        message.ack,
        consumer.receive,
        broker.groups,
        lambda: broker.group("t", "g"),
        lambda: broker.seek_group("t", "g", 0),
        lambda: broker.trace("t/0/0"),
        lambda: broker.delayed("t"),
        lambda: broker.dead_letters("t"),
        lambda: broker.redrive("t"),
        lambda: broker.replay("t", print),
        lambda: broker.cancel_delayed("t/0/0"),
        lambda: broker.consumer("t", "h"),
    ):
        with pytest.raises(penstock.BrokerClosed):
            call()
    consumer.close()
