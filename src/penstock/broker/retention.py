"""Carrying retention out: segments go to the archive or away, and the event log says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.retaining import apply_event, expired_segments
from penstock.broker.topics import Log, Topic
from penstock.model.events import Event, EventKind
from penstock.segments.info import SegmentInfo, archived_name, segment_name
from penstock.storage import put_file, read_file

if TYPE_CHECKING:
    from penstock.broker.engine import Engine


def retain(engine: Engine) -> int:
    """Let go of every segment that its topic no longer keeps; how many went."""
    with engine.upkeep_lock:
        return _retain(engine)


def _retain(engine: Engine) -> int:
    now_us = engine.clock.wall_us()
    with engine.lock:
        topics = list(engine.catalog.by_id.values())
    gone = 0
    for topic in topics:
        with engine.lock:
            expired = expired_segments(topic, now_us)
        for log, segment in expired:
            _let_go(engine, topic, log, segment, now_us)
        gone += len(expired)
    if gone:
        engine.checkpoint()
    return gone


def _let_go(engine: Engine, topic: Topic, log: Log, segment: SegmentInfo, now_us: int) -> None:
    place = (topic.name, log.table, log.partition, segment.base)
    kind = EventKind.REMOVED
    if topic.config.archive is not None:
        kind = EventKind.ARCHIVED
        data = read_file(engine.storage, segment_name(*place))
        put_file(engine.storage.elsewhere(topic.config.archive), archived_name(*place), [data])
    event = Event(kind, now_us, segment.base, segment.end - segment.base, detail=topic.config.archive)
    if log.table == "events":  # events are not events' subject: the checkpoint that follows tells it
        with engine.lock:
            engine.doomed += apply_event(log, event)
        return

    def apply() -> None:
        engine.doomed += apply_event(log, event)

    engine.journal.wait(engine.append_events(log, [event], apply))
