"""Groups that are paused: nothing is handed out, and nothing else changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import penstock
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from tests.folding import assert_folded


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def broker(clock: VirtualClock, storage: MemoryStorage) -> Iterator[penstock.Broker]:
    with penstock.open(storage=storage, clock=clock) as opened:
        opened.create_topic("t", max_deliveries=2, retry_backoff=0)
        opened.publish_many("t", ["a", "b", "c"])
        yield opened


def values(messages: list[penstock.Delivery]) -> list[bytes]:
    return [message.value for message in messages]


def test_Q12_a_paused_group_gets_nothing_until_it_is_resumed_and_other_groups_go_on(broker: penstock.Broker) -> None:
    with broker.consumer("t", "g") as consumer, broker.consumer("t", "other") as other:
        assert broker.pause_group("t", "g").settings.paused
        assert consumer.receive() == []
        assert values(other.receive()) == [b"a", b"b", b"c"]
        broker.publish("t", "d")
        assert consumer.receive() == []
        info = broker.group("t", "g")
        assert (info.ready, info.lag, info.leased) == (4, 4, 0)
        assert not broker.resume_group("t", "g").settings.paused
        assert values(consumer.receive()) == [b"a", b"b", b"c", b"d"]


def test_Q12_what_consumers_hold_when_a_group_is_paused_can_be_finished(
    broker: penstock.Broker, clock: VirtualClock
) -> None:
    with broker.consumer("t", "g", visibility_timeout=30) as consumer:
        acked, failed, held = consumer.receive()
        broker.pause_group("t", "g")
        acked.ack()
        failed.fail("no")
        held.extend(60)
        clock.advance(45)
        held.ack()
        assert consumer.receive() == [], "what failed is ready, and waits"
        assert (broker.group("t", "g").acked, broker.group("t", "g").ready) == (2, 1)
        broker.resume_group("t", "g")
        (again,) = consumer.receive()
        assert (again.value, again.deliveries) == (b"b", 2)


def test_leases_run_out_and_messages_lapse_in_a_paused_group(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish("t", "short", expires_in=20)
    with broker.consumer("t", "g", visibility_timeout=30) as consumer:
        consumer.receive(1)
        broker.pause_group("t", "g")
        clock.advance(40)
        broker.group("t", "g")  # it notices the time
        broker.publish("t", "later")  # and that is committed with this
        info = broker.group("t", "g")
        assert (info.leased, info.lapsed, info.lag) == (0, 1, 4)


def test_a_consumer_that_waits_for_a_paused_group_is_served_as_soon_as_it_is_resumed(broker: penstock.Broker) -> None:
    broker.pause_group("t", broker.create_group("t", "g").name)
    got: list[bytes] = []
    with broker.consumer("t", "g") as consumer:
        waiting = threading.Thread(target=lambda: got.extend(values(consumer.receive(wait=60))))
        waiting.start()
        broker.resume_group("t", "g")
        waiting.join(30)
    assert got == [b"a", b"b", b"c"]


def test_an_assigned_group_can_be_paused(broker: penstock.Broker) -> None:
    with broker.consumer("t", "g", mode="assigned") as consumer:
        broker.pause_group("t", "g")
        assert consumer.receive() == []
        assert broker.group("t", "g").members[0].partitions == (0,), "it keeps its partitions"
        broker.resume_group("t", "g")
        assert len(consumer.receive()) == 3


@pytest.mark.parametrize("checkpoint", [False, True], ids=["from the journal", "from the checkpoint"])
def test_Q12_a_group_stays_paused_after_a_restart(
    broker: penstock.Broker, storage: MemoryStorage, clock: VirtualClock, checkpoint: bool
) -> None:
    broker.create_group("t", "g", max_in_flight=2)
    broker.pause_group("t", "g")
    if checkpoint:
        broker.settle()
    broker.close()
    with penstock.open(storage=storage, clock=clock) as opened, opened.consumer("t", "g") as consumer:
        assert_folded(opened.shard)
        assert opened.group("t", "g").settings == penstock.GroupSettings(max_in_flight=2, paused=True)
        assert consumer.receive() == []
        opened.resume_group("t", "g")
        assert values(consumer.receive()) == [b"a", b"b"], "its other settings are as they were"


def test_a_seek_leaves_a_paused_group_paused(broker: penstock.Broker) -> None:
    with broker.consumer("t", "g") as consumer:
        consumer.ack(consumer.receive())
        broker.pause_group("t", "g")
        broker.seek_group("t", "g", "earliest")
        assert consumer.receive() == []
        broker.resume_group("t", "g")
        assert len(consumer.receive()) == 3


def test_pausing_what_is_paused_writes_nothing(broker: penstock.Broker) -> None:
    broker.create_group("t", "g")
    broker.resume_group("t", "g")
    broker.pause_group("t", "g")
    broker.pause_group("t", "g")
    assert [event.kind for event in broker.events("t")] == ["created", "configured"]


def test_TR1_a_trace_tells_of_the_pause_that_held_a_message_up(broker: penstock.Broker) -> None:
    first = next(iter(broker.read("t"))).id
    with broker.consumer("t", "g") as consumer:
        broker.pause_group("t", "g")
        late = broker.publish("t", "late")
        broker.resume_group("t", "g")
        consumer.ack(consumer.receive())
        told = [(line.kind, line.cause) for line in broker.trace(first).lines]
    assert told == [
        ("published", None),
        ("configured", "paused"),
        ("configured", "not paused"),
        ("delivered", None),
        ("acked", None),
    ]
    assert [line.cause for line in broker.trace(late).lines if line.kind == "configured"] == ["not paused"]


def test_a_group_that_is_not_there_or_has_no_consumers_cannot_be_paused(broker: penstock.Broker) -> None:
    broker.checkpoint_group("t", "reader", {0: 1})
    with pytest.raises(penstock.GroupNotFound, match="t has no group 'nope'"):
        broker.pause_group("t", "nope")
    with pytest.raises(penstock.TopicNotFound):
        broker.pause_group("nope", "g")
    with pytest.raises(penstock.InvalidArgument, match="keeps its own position"):
        broker.resume_group("t", "reader")


def test_a_pause_that_the_disk_refuses_changes_nothing(clock: VirtualClock) -> None:
    storage = FaultyStorage(1)
    with penstock.open(storage=storage, clock=clock, min_free_bytes=0) as broker:
        broker.publish("t", "a")
        with broker.consumer("t", "g") as consumer:
            storage.fail("write", 28)
            with pytest.raises(penstock.DiskFull):
                broker.pause_group("t", "g")
            storage.heal()
            assert not broker.group("t", "g").settings.paused
            assert len(consumer.receive()) == 1
