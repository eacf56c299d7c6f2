"""Trimming: whoever has copied segments may have the topic let go of them, and of nothing that somebody needs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Message
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.shard.upkeep.retention import trim
from penstock.shard.upkeep.settling import Settler
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from tests.sharding import home_of


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        yield opened


def fill(broker: penstock.Broker, segments: int, topic: str = "t") -> None:
    """Segments of ten messages."""
    for number in range(segments):
        broker.publish_many(topic, [f"{number}.{n}" for n in range(10)])
        broker.settle()


def offsets(broker: penstock.Broker, **options: Any) -> list[int]:
    return [message.offset for message in broker.read("t", **options)]


def test_whole_segments_before_an_offset_go(broker: penstock.Broker) -> None:
    fill(broker, 4)
    assert broker.trim("t", {0: 9}) == 0, "a part of a segment stays"
    assert broker.trim("t", {0: 29}) == 2
    assert offsets(broker) == list(range(20, 40))
    assert broker.trim("t", {0: 29}) == 0
    assert broker.trim("t", {}) == 0
    assert broker.topics()[0].partitions[0].first_offset == 20


def test_offsets_of_partitions_are_their_own(broker: penstock.Broker) -> None:
    broker.create_topic("t", partitions=3)
    for number in range(3):
        broker.publish_many("t", [Message("x", partition=number)] * 5)
    broker.settle()
    assert broker.trim("t", {0: 5, 2: 4}) == 1
    assert [partition.first_offset for partition in broker.topics()[0].partitions] == [5, 0, 0]


def test_L11_what_is_not_settled_stays(broker: penstock.Broker) -> None:
    fill(broker, 1)
    broker.publish("t", "in the journal")
    assert broker.trim("t", {0: 1000}) == 1
    assert offsets(broker) == [10]


def test_L11_what_is_leased_or_not_due_stays(broker: penstock.Broker, clock: VirtualClock) -> None:
    fill(broker, 2)
    broker.publish("t", "later", delay="1h")
    broker.settle()
    with broker.consumer("t", "g", visibility_timeout="10m") as consumer:
        held = consumer.receive(1)
        assert [message.offset for message in held] == [0]
        assert broker.trim("t", {0: 100}) == 1
        assert offsets(broker) == [*range(10), 20]
        held[0].ack()
        assert broker.trim("t", {0: 100}) == 1
        clock.advance(3600)
        assert broker.trim("t", {0: 100}) == 1
    assert offsets(broker) == []
    assert broker.publish("t", "offsets go on").offset == 21


def test_L11_what_is_unacked_stays_where_the_topic_protects_it(broker: penstock.Broker) -> None:
    broker.create_topic("t", protect_unacked=True)
    fill(broker, 2)
    assert broker.trim("t", {0: 20}) == 0, "nobody has come for it yet"
    with broker.consumer("t", "g") as consumer:
        consumer.ack(consumer.receive(10))
        assert broker.trim("t", {0: 20}) == 1
        consumer.ack(consumer.receive(10))
    assert broker.trim("t", {0: 20}) == 1


def test_what_goes_is_in_the_event_log_and_never_in_the_archive(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", archive="/cold")
    fill(broker, 2)
    assert broker.trim("t", {0: 10}) == 1
    assert [(e.kind, e.offset, e.count, e.detail) for e in broker.events("t")] == [("removed", 0, 10, None)]
    assert offsets(broker, include_deleted=True) == list(range(10, 20))


def test_what_retention_archived_stays_in_the_archive(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", archive="/cold", retention_age="1d")
    fill(broker, 1)
    clock.advance(2 * 86400)
    assert broker.retain() == 1
    fill(broker, 1)
    assert broker.trim("t", {0: 20}) == 1
    assert offsets(broker, include_deleted=True) == list(range(10))


def test_events_go_once_all_messages_that_they_speak_of_are_gone(broker: penstock.Broker) -> None:
    fill(broker, 2)
    with broker.consumer("t", "g") as consumer:
        consumer.ack(consumer.receive(15))
        broker.settle()  # created, delivered, acked: of offsets up to 14
        count = len(list(broker.events("t")))
        end = broker.layout("t").events[0].end
        assert broker.trim("t", {0: 10}, events={0: end}) == 1, "events of messages that are there stay"
        assert len(list(broker.events("t"))) == count + 1
        consumer.ack(consumer.receive())
        broker.settle()
        end = broker.layout("t").events[0].end
        assert broker.trim("t", {0: 20}, events={0: end}) == 3
    assert [event.kind for event in broker.events("t")] == ["removed"]
    assert broker.group("t", "g").acked == 20


@pytest.mark.parametrize("close", [True, False])
def test_what_was_trimmed_stays_away_after_a_restart(tmp_path: Path, close: bool) -> None:
    broker = penstock.open(tmp_path)
    fill(broker, 3)
    assert broker.trim("t", {0: 20}) == 2
    if close:
        broker.close()
    else:
        broker.shard.storage.close()  # lets the directory go, and nothing else
    with penstock.open(tmp_path) as again:
        assert offsets(again) == list(range(20, 30))
        assert len(list((home_of(tmp_path, "t") / "topics/t/messages/0").iterdir())) == 1
    if not close:
        with contextlib.suppress(penstock.PenstockError, OSError):
            broker.close()


def test_a_crash_at_every_step_of_trimming_loses_nothing_that_must_stay(shard_on: Callable[..., Shard]) -> None:
    for step in range(30):
        storage = FaultyStorage(seed=step)
        shard = shard_on(storage)
        shard.journal.wait(shard.create_topic("t", {}))
        for n in range(3):
            shard.publish_many("t", [b"%d" % n] * 3)
            Settler(shard).settle(everything=True)
        storage.cut_power_after(step)
        with contextlib.suppress(OSError, penstock.StorageFailed):
            trim(shard, "t", {0: 6})
        again = shard_on(storage.crash())
        log = again.topic("t").partitions[0].messages
        left = [message.offset for message in LogReader(again, log).messages(Window())]
        assert left[-3:] == [6, 7, 8], step
        trim(again, "t", {0: 6})
        assert [message.offset for message in LogReader(again, log).messages(Window())] == [6, 7, 8], step
        files = [name for name in again.storage.contents if "/messages/" in name]  # type: ignore[attr-defined]
        assert len(files) == 1, step


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ({1: 0}, "partition"),
        ({0: -1}, "not an offset"),
        ({0: "x"}, "not an offset"),
        ({-1: 0}, "not a partition"),
        ([0], "not a mapping"),
        (None, "not a mapping"),
    ],
)
def test_places_that_cannot_be_are_refused(broker: penstock.Broker, before: Any, text: str) -> None:
    fill(broker, 1)
    given: Any = before or ""  # None: no events
    with pytest.raises(penstock.PenstockError, match=text):
        broker.trim("t", before)
    with pytest.raises(penstock.PenstockError, match=text):
        broker.trim("t", {}, events=given)
    assert offsets(broker) == list(range(10))


def test_topics_that_are_not_there_or_the_brokers_own_are_refused(broker: penstock.Broker) -> None:
    with pytest.raises(penstock.TopicNotFound):
        broker.trim("nothing", {0: 1})
    broker.schedule("s", "* * * * *", "t", "x")
    with pytest.raises(penstock.InvalidArgument, match="the broker's own"):
        broker.trim("penstock.schedules", {0: 1})
