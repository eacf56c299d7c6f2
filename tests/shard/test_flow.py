"""Flow control: how much is out at once, and when a topic takes no more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock.testing import MemoryStorage, VirtualClock


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        yield opened


def test_a_consumer_holds_at_most_its_limit(broker: penstock.Broker) -> None:
    broker.publish_many("t", ["x"] * 30)
    with broker.consumer("t", "g", max_in_flight=5) as small, broker.consumer("t", "g", max_in_flight=7) as large:
        held = small.receive(100)
        assert (len(held), len(large.receive(4)), len(large.receive(100))) == (5, 4, 3)
        assert small.receive() == large.receive() == []
        small.ack(held[:2])
        held[2].release()
        held[3].fail("x", delay=60)
        assert len(small.receive()) == 4
        assert {member.in_flight for member in broker.group("t", "g").members} == {5, 7}


def test_a_group_holds_at_most_its_limit_whoever_asks(broker: penstock.Broker) -> None:
    broker.create_topic("t", partitions=3)
    broker.publish_many("t", ["x"] * 30)
    broker.create_group("t", "g", max_in_flight=6)
    with broker.consumer("t", "g") as one, broker.consumer("t", "g") as two, broker.consumer("t", "other") as other:
        held = one.receive(4)
        assert (len(held), len(two.receive()), one.receive()) == (4, 2, [])
        assert len(other.receive()) == 30
        one.ack(held[:3])
        assert len(two.receive()) == 3
        assert broker.group("t", "g").leased == 6


def test_a_loop_is_bounded_too(broker: penstock.Broker) -> None:
    broker.publish_many("t", ["x"] * 30)
    with broker.consumer("t", "g", max_in_flight=3) as consumer:
        next(iter(consumer))
        assert broker.group("t", "g").leased <= 3


def test_a_topic_with_too_large_a_backlog_refuses_at_once_and_recovers(broker: penstock.Broker) -> None:
    broker.create_topic("t", max_backlog=5)
    broker.publish_many("t", ["x"] * 4)
    with pytest.raises(penstock.Overloaded, match=r"backlog of 4 messages; the limit is 5 \(max_backlog\)"):
        broker.publish_many("t", ["y", "y"])
    broker.publish("t", "x")
    with pytest.raises(penstock.Overloaded):
        broker.publish("t", "y")
    with broker.consumer("t", "fast") as fast, broker.consumer("t", "slow") as slow:
        fast.ack(fast.receive())
        with pytest.raises(penstock.Overloaded):
            broker.publish("t", "y")
        held = slow.receive()
        with pytest.raises(penstock.Overloaded):
            broker.publish("t", "y")
        held[0].ack()
        broker.publish("t", "z")
        with pytest.raises(penstock.Overloaded):
            broker.publish("t", "y")
        held[1].kill("no")
        broker.publish("t", "z")
    assert b"y" not in [message.value for message in broker.read("t")]
    broker.delete_group("t", "slow")
    broker.publish_many("t", ["z"] * 3)


def test_the_backlog_is_known_after_a_restart(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.create_topic("t", max_backlog=3, partitions=2)
        broker.publish_many("t", ["x"] * 3)
        with broker.consumer("t", "g") as consumer:
            consumer.ack(consumer.receive(2))
        broker.settle()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.publish_many("t", ["x", "x"])
        with pytest.raises(penstock.Overloaded):
            broker.publish("t", "x")


@pytest.mark.parametrize(
    ("delay", "shown"),
    [(2_275_990_000, "26342d11h26m40s"), (604_800.1, "7d1s"), ("400ms", "400ms"), (59.5, "59s500ms")],
)
def test_a_delay_that_is_too_long_is_told_as_people_write_it(
    broker: penstock.Broker, delay: float | str, shown: str
) -> None:
    limit = "7d" if delay not in ("400ms", 59.5) else "250ms"
    broker.create_topic("t", max_delay=limit)
    with pytest.raises(penstock.InvalidArgument, match=rf"a delay of {shown} is too long for t: the limit is {limit} "):
        broker.publish("t", "x", delay=delay)


def test_a_batch_larger_than_the_backlog_may_be_is_refused_for_good(broker: penstock.Broker) -> None:
    broker.create_topic("t", max_backlog=5)
    with pytest.raises(
        penstock.LimitExceeded, match=r"t never takes 6 messages at once: its limit is 5 \(max_backlog\)"
    ):
        broker.publish_many("t", ["x"] * 6)
    broker.publish_many("t", ["x"] * 5)


def test_the_refusal_names_the_group_that_is_behind(broker: penstock.Broker) -> None:
    broker.create_topic("t", max_backlog=5)
    broker.publish_many("t", ["x"] * 5)
    with broker.consumer("t", "fast") as fast, broker.consumer("t", "slow"):
        fast.ack(fast.receive())
        with pytest.raises(penstock.Overloaded, match=r"backlog of 5 messages in the group 'slow'; the limit is 5"):
            broker.publish("t", "y")


def test_forgotten_replays_and_checkpoint_groups_do_not_block_publishers(broker: penstock.Broker) -> None:
    broker.create_topic("t", max_backlog=5)
    broker.publish_many("t", ["x"] * 4)
    broker.replay("t", "what-was")
    broker.checkpoint_group("t", "a-query", {0: 0})
    with broker.consumer("t", "g") as consumer:
        consumer.ack(consumer.receive())
        broker.publish_many("t", ["x"] * 5)
        consumer.ack(consumer.receive())
        broker.configure_topic("t", backlog_groups="all")
        with pytest.raises(penstock.Overloaded, match="in the group 'a-query'"):
            broker.publish("t", "y")
        broker.configure_topic("t", backlog_groups="live")
        broker.publish("t", "z")


def test_a_checkpoint_group_counts_where_nobody_else_consumes(broker: penstock.Broker) -> None:
    broker.create_topic("t", max_backlog=5)
    broker.publish_many("t", ["x"] * 5)
    broker.replay("t", "what-was")
    with pytest.raises(penstock.Overloaded, match="has a backlog of 5 messages;"):
        broker.publish("t", "y")
    broker.checkpoint_group("t", "a-query", {0: 2})
    broker.publish_many("t", ["x"] * 2)
    with pytest.raises(penstock.Overloaded, match="in the group 'a-query'"):
        broker.publish("t", "y")


def test_L7_what_was_published_is_found_again_also_with_a_full_backlog(broker: penstock.Broker) -> None:
    broker.create_topic("t", max_backlog=3)
    first = broker.publish("t", "x", dedupe_id="a")
    both = list(broker.publish_many("t", ["y", "z"], producer="p", sequence=1))
    with pytest.raises(penstock.Overloaded):
        broker.publish("t", "refused")
    assert broker.publish("t", "x", dedupe_id="a") == first
    assert list(broker.publish_many("t", ["y", "z"], producer="p", sequence=1)) == both
    assert list(broker.publish_many("t", [penstock.Message("x", dedupe_id="a")])) == [first]
