"""The life of one message, from the two logs: found by an index, never by a scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.journal.bucket_storage import BucketStorage
from penstock.log.partition_log import Log
from penstock.model.errors import MessageNotFound
from penstock.model.events import Event, EventKind
from penstock.model.group_settings import changed_in_words
from penstock.model.message import MessageId, StoredMessage
from penstock.model.traces import Trace, TraceLine
from penstock.model.units import to_datetime
from penstock.segments.window import Window
from penstock.shard.interrupts import uninterrupted
from penstock.shard.reading.log_reader import LogReader

if TYPE_CHECKING:
    from penstock.shard.shard import Shard


@uninterrupted
def trace(shard: Shard, identity: MessageId | str) -> Trace:
    """The life of a message, as exactly as the event log tells it."""
    identity = MessageId.parse(str(identity))
    with shard.lock:
        topic = shard.topic(identity.topic)
        if identity.partition >= len(topic.partitions):
            raise MessageNotFound(f"there is no message {identity}: {identity.topic} has fewer partitions")
        partition = topic.partitions[identity.partition]
        config = topic.config
    shard.journal.flush()  # what has happened until now is told
    window = Window(identity.offset, identity.offset + 1)
    reader = LogReader(shard, partition.messages, include_deleted=True)
    message = next(reader.messages(window), None)
    producer = None if message is None else reader.producer_at(identity.offset)
    found: list[Event] = []
    if partition.events is not None:
        found = list(LogReader(shard, partition.events, include_deleted=True).events_about(identity.offset))
    if message is None and not found:
        raise MessageNotFound(f"there is no message {identity}, and no event speaks of one")
    lines = _lines(message, producer, found, shard.clock.wall_us())
    if message is not None and isinstance(shard.storage, BucketStorage):
        place = _place_on_bucket(shard, shard.storage, partition.messages, identity.offset)
        lines.insert(1, TraceLine("replicated", message.timestamp_us, cause=place))
    until = None
    if message is not None and config.retention_age is not None:
        until = to_datetime(message.timestamp_us + round(config.retention_age * 1_000_000))
    return Trace(identity, message, lines, until)


def _place_on_bucket(shard: Shard, storage: BucketStorage, log: Log, offset: int) -> str:
    """Where a message is durable now: in a piece of the chain first, in a segment at last."""
    with shard.lock:
        if offset < log.settled_end:
            segments = (segment for segment in log.segments if segment.base <= offset < segment.end)
            segment = next(segments, None)
            return "in a segment" if segment is None else f"in segment {segment.base} of epoch {segment.epoch}"
        block = log.block(log.find(offset))
        return f"in {storage.whereabouts(block.sequence, block.position)}"


def _first_due_us(message: StoredMessage, events: list[Event]) -> int:
    """When it was to fall due at first: a change of that notes the time before it."""
    for event in events:
        if event.kind == EventKind.RESCHEDULED:
            return int(event.detail or 0)
    return message.deliver_at_us or 0


def _lines(message: StoredMessage | None, producer: str | None, events: list[Event], now_us: int) -> list[TraceLine]:
    """What the message itself tells (published, scheduled, due) with what the event log tells."""
    lines: list[TraceLine] = []
    due_us = 0
    if message is not None:
        lines.append(TraceLine("published", message.timestamp_us, producer=producer))
        due_us = _first_due_us(message, events)
        if due_us:
            lines.append(TraceLine("scheduled", message.timestamp_us, due_us=due_us))
    attempts: dict[str | None, int] = {}
    for event in events:
        if due_us and event.time_us >= due_us:
            lines.append(TraceLine("due", due_us))
            due_us = 0
        if event.kind == EventKind.DELIVERED:
            attempts[event.group] = event.attempt
        if event.kind == EventKind.RESCHEDULED:
            due_us = event.due_us
        elif event.kind == EventKind.CANCELLED:
            due_us = 0
        lines.append(
            TraceLine(
                str(event.kind) if event.count else "copied",
                event.time_us,
                event.group,
                event.consumer,
                0 if event.group is None else attempts.get(event.group, 0),
                _cause(event),
                event.due_us,
            )
        )
    if due_us and due_us <= now_us:
        lines.append(TraceLine("due", due_us))
    return lines


def _cause(event: Event) -> str | None:
    if event.kind == EventKind.DELIVERED and event.detail is not None:
        return f"by {event.detail}"
    if event.kind in (EventKind.CANCELLED, EventKind.RESCHEDULED):  # their detail is for us
        return None
    if event.kind == EventKind.CONFIGURED:
        return changed_in_words(event.detail)
    if event.kind == EventKind.REDRIVEN and event.detail is not None:
        return f"to {event.detail}"
    return event.detail
