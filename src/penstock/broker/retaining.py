"""Retention: which segments a topic no longer keeps, and what becomes of them."""

from __future__ import annotations

import msgspec

from penstock.broker.topics import Log, Topic
from penstock.model.events import Event, EventKind
from penstock.segments import SegmentInfo, segment_name


def expired_segments(topic: Topic, now_us: int) -> list[tuple[Log, SegmentInfo]]:
    """The segments to go now: too old, or the oldest of too many bytes.

    A segment with a message that is delayed and not due stays, whatever its age.
    """
    live = sorted(
        (
            (log, segment)
            for log in topic.logs()
            for segment in log.segments
            if not segment.archived and segment.due_us <= now_us
        ),
        key=lambda entry: entry[1].last_us,
    )
    config = topic.config
    expired: list[tuple[Log, SegmentInfo]] = []
    if config.retention_age is not None:
        oldest_us = now_us - round(config.retention_age * 1_000_000)
        expired = [entry for entry in live if entry[1].last_us < oldest_us]
    if config.retention_bytes is not None:
        excess = (
            sum(segment.size_bytes for log in topic.logs() for segment in log.segments if not segment.archived)
            - config.retention_bytes
        )
        gone = {id(entry[1]) for entry in expired}
        excess -= sum(segment.size_bytes for _, segment in expired)
        for entry in live:
            if excess <= 0:
                break
            if id(entry[1]) not in gone:
                expired.append(entry)
                excess -= entry[1].size_bytes
    return expired


def apply_event(log: Log, event: Event) -> list[str]:
    """Do to the list of segments what the event says, live and in recovery alike; the files that go."""
    for place, segment in enumerate(log.segments):
        if segment.base == event.offset and segment.end - segment.base == event.count and not segment.archived:
            if event.kind is EventKind.ARCHIVED:
                log.segments[place] = msgspec.structs.replace(segment, archived=True)
            else:
                del log.segments[place]
            return [segment_name(log.topic.name, log.table, log.partition, segment.base)]
    return []
