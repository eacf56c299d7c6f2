"""Leases: who holds a message, until when, and what happens to those who are late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock.delivery.offsets import Offsets
from penstock.embedded.consumer import Delivery
from penstock.testing import MemoryStorage, VirtualClock
from tests.shard.passing_time import pass_time


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        yield opened


def take(broker: penstock.Broker, count: int = 1, **options: Any) -> tuple[penstock.Consumer, list[Delivery]]:
    """A consumer that holds so many new messages."""
    broker.publish_many("t", [f"{n}" for n in range(count)])
    consumer = broker.consumer("t", "g", **options)
    return consumer, consumer.receive(count)


def test_Q2_what_is_not_acked_is_delivered_again(broker: penstock.Broker, clock: VirtualClock) -> None:
    consumer, (message,) = take(broker)
    pass_time(broker, clock, 30)
    (again,) = consumer.receive()
    assert (again.id, again.deliveries, again.failures) == (message.id, 2, 1)
    assert again.receipt != message.receipt


def test_Q3_while_a_lease_lives_nobody_else_gets_the_message(broker: penstock.Broker, clock: VirtualClock) -> None:
    consumer, messages = take(broker, 3)
    other = broker.consumer("t", "g")
    pass_time(broker, clock, 29.999)
    assert other.receive() == consumer.receive() == []
    consumer.ack(messages)


@pytest.mark.parametrize("by", ["topic", "group", "consumer"])
def test_the_visibility_timeout_is_of_the_consumer_or_the_group_or_the_topic(
    broker: penstock.Broker, clock: VirtualClock, by: str
) -> None:
    broker.create_topic("t", visibility_timeout=5 if by == "topic" else 60)
    if by != "topic":
        broker.create_group("t", "g", visibility_timeout=5 if by == "group" else 70)
    consumer, _ = take(broker, **({"visibility_timeout": 5} if by == "consumer" else {}))
    pass_time(broker, clock, 4.9)
    assert broker.group("t", "g").leased == 1
    pass_time(broker, clock, 0.1)
    assert broker.group("t", "g").leased == 0
    assert len(consumer.receive()) == 1


def test_Q4_an_ack_after_the_lease_ran_out_is_refused_and_changes_nothing(
    broker: penstock.Broker, clock: VirtualClock
) -> None:
    consumer, (message,) = take(broker)
    pass_time(broker, clock, 31)
    with pytest.raises(penstock.LeaseLost) as refused:
        message.ack()
    assert refused.value.ids == (message.id,)
    (again,) = consumer.receive()
    for settle in (message.ack, message.release, lambda: message.fail("x"), lambda: message.kill("x")):
        with pytest.raises(penstock.LeaseLost):
            settle()
    info = broker.group("t", "g")
    assert (info.acked, info.leased, info.dead) == (0, 1, 0)
    again.ack()


def test_Q4_an_ack_by_another_consumer_is_refused(broker: penstock.Broker) -> None:
    _, messages = take(broker)
    other = broker.consumer("t", "g")
    with pytest.raises(penstock.LeaseLost, match="t/0/0"):
        other.ack(messages)
    with broker.consumer("elsewhere", "g") as stranger, pytest.raises(penstock.LeaseLost):
        stranger.ack(messages)
    assert broker.group("t", "g").leased == 1


def test_Q4_acking_twice_is_harmless(broker: penstock.Broker, clock: VirtualClock) -> None:
    consumer, (message, held) = take(broker, 2)
    message.ack()
    message.ack()
    consumer.ack([message, message])
    pass_time(broker, clock, 31)
    message.ack()
    with pytest.raises(penstock.LeaseLost):
        message.release()
    with pytest.raises(penstock.LeaseLost):
        held.ack()
    assert broker.group("t", "g").acked == 1


def test_Q4_acking_twice_by_number_is_harmless_also_when_the_lease_is_forgotten(
    broker: penstock.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.delivery.lease_book.BOOK_BYTES", 4096)
    broker.publish_many("t", [b"x"] * 100)
    with broker.consumer("t", "g") as consumer:
        (first,) = consumer.receive(1)
        (lost,) = consumer.receive(1)
        consumer.ack([first])
        for _ in range(90):
            consumer.ack(consumer.receive(1))
        consuming = consumer._consuming
        assert len(broker.shards.of("t").dispatcher.lease_book) <= 16
        for lease, offset, is_refused in ((first.lease.id, 0, False), (first.lease.id, 99, True), (1, 0, True)):
            _, refused = consuming.ack(consuming.find_leased([("t", 0, lease, Offsets([offset]))]))
            assert (refused is not None) is is_refused
        consumer.ack([lost])
        assert broker.group("t", "g").acked == 92


def test_lease_lost_tells_which_and_settles_the_others(broker: penstock.Broker, clock: VirtualClock) -> None:
    consumer, messages = take(broker, 8)
    consumer.extend(messages[6:], 100)
    pass_time(broker, clock, 31)
    with pytest.raises(penstock.LeaseLost, match="and 1 more; the other 2 are finished") as refused:
        consumer.ack(messages)
    assert refused.value.ids == tuple(message.id for message in messages[:6])
    assert broker.group("t", "g").acked == 2


def test_Q5_extending_moves_the_deadline_forward_only(broker: penstock.Broker, clock: VirtualClock) -> None:
    _, (message, other) = take(broker, 2)
    message.extend(60)
    message.extend("1s")
    other.extend(0)
    pass_time(broker, clock, 29)
    assert broker.group("t", "g").leased == 2
    pass_time(broker, clock, 1)
    assert broker.group("t", "g").leased == 1
    pass_time(broker, clock, 29)
    message.ack()


def test_Q5_extending_never_revives_a_lease(broker: penstock.Broker, clock: VirtualClock) -> None:
    _, (message,) = take(broker)
    pass_time(broker, clock, 30)
    with pytest.raises(penstock.LeaseLost):
        message.extend(60)
    assert broker.group("t", "g").ready == 1


def test_release_gives_back_at_once_and_counts_no_failure(broker: penstock.Broker) -> None:
    consumer, messages = take(broker, 4)
    consumer.release(messages[:2])
    again = consumer.receive()
    assert [(message.offset, message.deliveries, message.failures) for message in again] == [(0, 2, 0), (1, 2, 0)]
    for _ in range(10):
        consumer.release(again)
        again = consumer.receive()
    assert [(message.deliveries, message.failures) for message in again] == [(12, 0), (12, 0)]


def test_T7_a_step_of_the_wall_clock_changes_no_lease(broker: penstock.Broker, clock: VirtualClock) -> None:
    consumer, messages = take(broker, 2)
    clock.step_wall(3600)
    assert consumer.receive() == []
    clock.step_wall(-7200)
    pass_time(broker, clock, 29)
    consumer.ack(messages[:1])
    pass_time(broker, clock, 1)
    assert [message.offset for message in consumer.receive()] == [1]


def test_Q6_counters_and_leases_after_a_restart(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        consumer, messages = take(broker, 4)
        consumer.ack(messages[:1])
        messages[1].fail("x", delay=0)
        messages[2].release()
        (again,) = [message for message in consumer.receive() if message.offset == 1]
        assert (again.deliveries, again.failures) == (2, 1)
    with pytest.raises(penstock.BrokerClosed):
        again.ack()
    with penstock.open(storage=storage, clock=clock) as broker, broker.consumer("t", "g") as consumer:
        assert broker.group("t", "g").ready == 3
        counts = [(message.offset, message.deliveries, message.failures) for message in consumer.receive()]
        assert counts == [(1, 3, 1), (2, 3, 0), (3, 2, 0)]
        assert broker.group("t", "g").acked == 1


def test_Q10_scattered_acks_survive_a_restart(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        consumer, messages = take(broker, 20_000, max_in_flight=20_000)
        consumer.ack(messages[::2])
        broker.settle()
        consumer.ack(messages[1::4])
    with penstock.open(storage=storage, clock=clock) as broker, broker.consumer("t", "g") as consumer:
        left = [message.offset for _ in range(20) for message in consumer.receive(1000)]
        assert left == [message.offset for message in messages[3::4]][:1000]
        info = broker.group("t", "g")
        assert (info.acked, info.lag, info.leased) == (15_000, 5_000, 1_000)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c, m: c.receive(0), "whole number"),
        (lambda c, m: c.receive("5"), "whole number"),
        (lambda c, m: c.receive(1, wait=-1), "duration"),
        (lambda c, m: c.receive(1, wait="soon"), "duration"),
        (lambda c, m: c.ack(m), "not a list of messages"),
        (lambda c, m: c.ack(None), "not a list of messages"),
        (lambda c, m: c.release(["x"]), "only messages that were received"),
        (lambda c, m: m.extend(-1), "duration"),
        (lambda c, m: m.extend("long"), "duration"),
        (lambda c, m: m.fail(None), "not a reason"),
        (lambda c, m: m.fail("x", delay=-1), "duration"),
        (lambda c, m: m.kill("  "), "not a reason"),
    ],
)
def test_wrong_arguments_are_refused_and_change_nothing(broker: penstock.Broker, call: Any, says: str) -> None:
    consumer, (message,) = take(broker)
    with pytest.raises(penstock.InvalidArgument, match=says):
        call(consumer, message)
    message.ack()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": 5}, "not a topic or a list"),
        ({"topic": []}, "not a topic or a list"),
        ({"topic": ["t", "t"]}, "different topics"),
        ({"topic": [["t"]]}, "not a topic name"),
        ({"topic": "bad name"}, "not a topic name"),
        ({"group": "bad name"}, "name of a group"),
        ({"group": None}, "name of a group"),
        ({"mode": "both"}, "'shared' or 'assigned'"),
        ({"max_in_flight": 0}, "whole number"),
        ({"visibility_timeout": 0}, "shorter"),
        ({"session_timeout": -1}, "duration"),
        ({"start": "yesterday"}, "'earliest', 'latest' or a point in time"),
        ({"name": "bad name"}, "name of a consumer"),
    ],
)
def test_a_consumer_that_cannot_be_says_why(broker: penstock.Broker, options: dict[str, Any], says: str) -> None:
    broker.publish("t", "x")
    with pytest.raises(penstock.InvalidArgument, match=says):
        broker.consumer(**{"topic": "t", "group": "g", **options})
    assert [info.members for info in broker.groups()] in ([], [()])


def test_a_name_is_taken_once(broker: penstock.Broker) -> None:
    with broker.consumer("t", "g", name="me"):
        with pytest.raises(penstock.GroupInUse, match="'me' already"):
            broker.consumer("t", "g", name="me")
        with pytest.raises(penstock.GroupInUse, match="in shared mode"):
            broker.consumer("t", "g", mode="assigned")
    broker.consumer("t", "g", name="me").close()


def test_how_long_a_lease_lasts_is_set_by_topic_group_consumer_and_call_the_nearest_counts(
    broker: penstock.Broker, clock: VirtualClock
) -> None:
    broker.create_topic("t", visibility_timeout=10)
    broker.create_group("t", "g", visibility_timeout=20)
    broker.publish("t", "x")

    with broker.consumer("t", "g", max_in_flight=1) as consumer:
        (message,) = consumer.receive()
        assert message.lease.visibility_s == 20
        message.release()
    with broker.consumer("t", "g", visibility_timeout=40) as consumer:
        (message,) = consumer.receive()
        assert message.lease.visibility_s == 40
        message.release()
        (message,) = consumer.receive(visibility_timeout="80s")
        assert message.lease.visibility_s == 80
        clock.advance(79)
        message.ack()


def test_a_record_of_events_is_never_large(clock: VirtualClock) -> None:
    """Whoever decodes one lets nobody else run: other shards of a process would wait while one is opened."""
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock, settle_after=3600) as broker:
        broker.publish_many("t", [b""] * 100_000)
        with broker.consumer("t", "g", max_in_flight=100_000) as consumer:
            while messages := consumer.receive(1000):
                consumer.ack(messages[::2])
        log = broker.shards.of("t").topic("t").partitions[0].events
        assert log is not None
        released = [block.length for block in log.blocks() if block.length > 40_000]
        assert len(released) > 1
        assert max(released) < 512 << 10
    with penstock.open(storage=storage, clock=clock) as broker:
        assert broker.group("t", "g").ready == 50_000
