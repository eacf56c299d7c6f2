"""Retention: what goes, what stays, what moves to the archive, and what the event log says of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock.model.message import Message
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.shard.upkeep.retention import retain
from penstock.shard.upkeep.settling import Settler
from penstock.storage import put_file
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        yield opened


def fill(broker: penstock.Broker, clock: VirtualClock, days: int) -> None:
    """A segment of ten messages a day."""
    for day in range(days):
        broker.publish_many("t", [f"{day}.{n}" * 50 for n in range(10)])
        broker.settle()
        clock.advance(86400)


def offsets(broker: penstock.Broker, **options: bool) -> list[int]:
    return [message.offset for message in broker.read("t", **options)]


def test_segments_older_than_the_topic_keeps_go_whole(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", retention_age="3d")
    fill(broker, clock, 6)
    assert broker.retain() == 3
    assert offsets(broker) == list(range(30, 60))
    assert broker.topics()[0].partitions[0].first_offset == 30
    assert broker.retain() == 0


def test_the_oldest_segments_go_when_there_are_too_many_bytes(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", retention_age=None, retention_bytes="1MB")
    fill(broker, clock, 4)
    size = broker.topics()[0].partitions[0].segment_bytes
    assert broker.retain() == 0
    topic = broker.shard.topic("t")
    from dataclasses import replace

    topic.config = replace(topic.config, retention_bytes=size // 2)
    assert broker.retain() == 2
    assert offsets(broker) == list(range(20, 40))


def test_L11_what_is_delayed_and_not_due_stays(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", retention_age="1d", max_delay="10d")
    broker.publish_many("t", ["now", Message("later", delay="10d")])
    broker.settle()
    broker.publish("t", "next")
    broker.settle()
    clock.advance(5 * 86400)
    assert broker.retain() == 1
    assert offsets(broker) == [0, 1]
    clock.advance(5 * 86400)
    assert broker.retain() == 1
    assert offsets(broker) == []
    assert broker.publish("t", "offsets go on").offset == 3


def test_L11_what_is_not_settled_stays(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", retention_age="1d")
    broker.publish("t", "in the journal")
    clock.advance(30 * 86400)
    assert broker.retain() == 0
    assert offsets(broker) == [0]


def test_expired_segments_move_to_the_archive_and_are_found_there(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", retention_age="2d", archive="/cold/storage")
    fill(broker, clock, 5)
    before = list(broker.read("t"))
    assert broker.retain() == 3
    assert offsets(broker) == list(range(30, 50))
    assert list(broker.read("t", include_deleted=True)) == before
    broker.publish("t", "live")
    assert offsets(broker, include_deleted=True) == list(range(51))


def test_the_archive_is_found_after_a_restart(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.create_topic("t", retention_age="2d", archive="/cold/storage")
        fill(broker, clock, 5)
        broker.retain()
        home = broker.shards.of("t").storage
    assert isinstance(home, MemoryStorage)
    assert len([name for name in home.contents if "/messages/" in name]) == 2
    with penstock.open(storage=storage, clock=clock) as broker:
        assert offsets(broker, include_deleted=True) == list(range(50))
        assert offsets(broker) == list(range(30, 50))


def test_the_event_log_says_what_went_and_where(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", retention_age="2d", archive="/cold/storage")
    fill(broker, clock, 4)
    broker.retain()
    events = list(broker.events("t"))
    assert [(event.kind, event.offset, event.count, event.detail) for event in events] == [
        ("archived", 0, 10, "/cold/storage"),
        ("archived", 10, 10, "/cold/storage"),
    ]
    broker.settle()
    assert list(broker.events("t")) == events


def test_old_events_go_with_the_same_retention(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", retention_age="2d")
    fill(broker, clock, 4)
    broker.retain()
    broker.settle()
    clock.advance(3 * 86400)
    broker.retain()
    assert [event.offset for event in broker.events("t")] == [20, 30]


def test_a_crash_at_every_step_of_retention_loses_nothing_that_must_stay(
    shard_on: Callable[..., Shard], clock: VirtualClock
) -> None:
    for step in range(40):
        storage = FaultyStorage(seed=step)
        shard = shard_on(storage)
        shard.journal.wait(shard.create_topic("t", {"retention_age": "1d", "archive": "cold"}))
        for n in range(3):
            shard.publish_many("t", [b"%d" % n] * 3)
            Settler(shard).settle(everything=True)
            clock.advance(86400)
        storage.cut_power_after(step)
        with contextlib.suppress(OSError, penstock.StorageFailed):
            retain(shard)
        again = shard_on(storage.crash())
        log = again.topic("t").partitions[0].messages
        everything = LogReader(again, log, include_deleted=True).messages(Window())
        assert [message.offset for message in everything] == list(range(9)), step
        retain(again)
        assert [message.offset for message in LogReader(again, log).messages(Window())] == [6, 7, 8], step
        files = [name for name in again.storage.contents if "/messages/" in name]  # type: ignore[attr-defined]
        assert len(files) == 1, step


def settled(broker: penstock.Broker, clock: VirtualClock, **options: object) -> None:
    """Ten messages in a segment that is too old."""
    broker.create_topic("t", retention_age="1d", max_delay="30d", **options)
    broker.publish_many("t", [f"{n}" for n in range(10)])
    broker.settle()
    clock.advance(3 * 86400)


def test_L11_what_is_leased_stays_until_the_lease_ends(broker: penstock.Broker, clock: VirtualClock) -> None:
    settled(broker, clock)
    with broker.consumer("t", "g", visibility_timeout="1h") as consumer:
        messages = consumer.receive()
        consumer.ack(messages[:9])
        assert broker.retain() == 0
        assert len(offsets(broker)) == 10
        messages[9].ack()
        assert broker.retain() == 1
    assert offsets(broker) == []
    assert broker.group("t", "g").acked == 10


def test_L11_a_lease_taken_while_retention_works_keeps_the_segment(
    broker: penstock.Broker, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.shard.upkeep import retention

    settled(broker, clock, archive="/cold")
    consumer = broker.consumer("t", "g")
    taken: list[penstock.Delivery] = []

    def receive_meanwhile(*arguments: Any) -> None:
        taken.extend(consumer.receive())
        put_file(*arguments)

    monkeypatch.setattr(retention, "put_file", receive_meanwhile)
    assert broker.retain() == 0
    assert (len(taken), len(offsets(broker)), broker.group("t", "g").lost) == (10, 10, 0)
    consumer.ack(taken)
    assert broker.retain() == 1


def test_L11_what_some_group_has_not_finished_with_stays_where_the_topic_protects_it(
    broker: penstock.Broker, clock: VirtualClock
) -> None:
    settled(broker, clock, protect_unacked=True)
    assert broker.retain() == 0, "nobody has come for it yet"
    with broker.consumer("t", "fast") as fast, broker.consumer("t", "slow") as slow:
        fast.ack(fast.receive())
        assert broker.retain() == 0
        messages = slow.receive()
        slow.ack(messages[:8])
        messages[8].fail("later", delay=60)
        messages[9].kill("no")
    assert broker.retain() == 0
    clock.advance(60)
    with broker.consumer("t", "slow") as slow:
        slow.ack(slow.receive())
    assert broker.retain() == 1
    assert offsets(broker) == []


def test_L11_protection_holds_after_a_restart(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        settled(broker, clock, protect_unacked=True)
        with broker.consumer("t", "g") as consumer:
            consumer.ack(consumer.receive(9))
    with penstock.open(storage=storage, clock=clock) as broker:
        assert broker.retain() == 0
        with broker.consumer("t", "g") as consumer:
            consumer.ack(consumer.receive())
        assert broker.retain() == 1


@pytest.mark.parametrize("reopen", [False, True])
def test_L11_a_delay_that_was_moved_counts_with_its_new_time(clock: VirtualClock, reopen: bool) -> None:
    storage = MemoryStorage()
    broker = penstock.open(storage=storage, clock=clock)
    broker.create_topic("t", retention_age="1d", max_delay="30d")
    identity = broker.publish("t", "x", delay="2d")
    broker.settle()
    assert broker.reschedule_delayed(identity, delay="10d") is not None
    if reopen:
        broker.close()
        broker = penstock.open(storage=storage, clock=clock)
    with broker:
        clock.advance(5 * 86400)
        assert broker.retain() == 0
        clock.advance(5 * 86400)
        with broker.consumer("t", "g") as consumer:
            assert [message.value for message in consumer.receive()] == [b"x"]
        assert broker.retain() >= 1
        assert offsets(broker) == []


def test_L11_dead_letters_stay_until_they_are_redriven_or_purged(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish_many("t", ["a", "b"])
    with broker.consumer("t", "g") as consumer:
        consumer.kill(consumer.receive(), "no")
    broker.settle()
    clock.advance(30 * 86400)
    broker.retain()
    assert [letter.value for letter in broker.dead_letters("t")] == [b"a", b"b"]
    broker.purge_dead_letters("t")
    broker.retain()
    assert list(broker.read("t.dlq")) == []


def test_what_a_group_loses_to_retention_is_told_in_the_log_and_in_its_figures(
    broker: penstock.Broker, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("t", retention_age="2d", partitions=1)
    broker.create_group("t", "slow")
    with broker.consumer("t", "fast", autoack=True) as consumer:
        fill(broker, clock, 5)
        assert len(consumer.receive(100)) == 50
    broker.retain()
    told = [record for record in caplog.records if "had not acked" in record.getMessage()]
    assert [(record.levelname, *(vars(record)[name] for name in ("topic", "group", "lost"))) for record in told] == [
        ("WARNING", "t", "slow", 30)
    ]
    assert [(group.name, group.lost, group.lag) for group in broker.groups("t")] == [("fast", 0, 0), ("slow", 30, 20)]
    broker.trim("t", {0: 40})
    assert vars(caplog.records[-1])["lost"] == 10
