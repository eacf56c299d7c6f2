"""What happened to messages: the second log. An event speaks of a run of offsets, not of one message."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from penstock.model.errors import InvalidArgument


class EventKind(StrEnum):
    """What can happen to a run of messages, or to a group of consumers."""

    ARCHIVED = "archived"  # their segment was moved to the archive
    REMOVED = "removed"  # retention removed their segment
    CREATED = "created"  # a group begins at this offset
    SOUGHT = "sought"  # a group was moved to this offset
    CONFIGURED = "configured"  # a group has other settings from now on; the run is what it is not done with
    FORGOTTEN = "forgotten"  # a group was deleted
    DELIVERED = "delivered"  # a consumer holds a lease on them
    EXTENDED = "extended"  # their lease lasts longer
    RELEASED = "released"  # the consumer gave them back, and it counts as no failure
    FAILED = "failed"  # the consumer could not process them
    EXPIRED = "expired"  # their lease ran out
    ACKED = "acked"  # they are done
    DEAD = "dead"  # they went to the dead letters
    REDRIVEN = "redriven"  # they came back from the dead letters; with a count of 0: a copy went to `detail`
    LAPSED = "lapsed"  # their time to live ended before they were delivered
    SKIPPED = "skipped"  # the filter of a replay left them out
    CANCELLED = "cancelled"  # they were taken back before they were delivered
    RESCHEDULED = "rescheduled"  # they fall due at another time
    PURGED = "purged"  # they were thrown away unread


class Event(msgspec.Struct, frozen=True, gc=False):
    """One line of the event log of a partition."""

    kind: EventKind
    time_us: int
    offset: int
    """The first offset of the run."""
    count: int
    group: str | None = None
    consumer: str | None = None
    attempt: int = 0
    detail: str | None = None
    due_us: int = 0
    """When a failed message is tried again, or the new time of a rescheduled one."""
    offsets: list[int] | None = None
    """All offsets, ascending, where they are not consecutive; then `count` is their number."""

    @property
    def last(self) -> int:
        """The last offset it speaks of."""
        if self.offsets:
            return self.offsets[-1]
        return self.offset + self.count - 1 if self.count else self.offset

    def speaks_of(self, offset: int) -> bool:
        """Whether the message at this offset is one of those it happened to."""
        if not self.offset <= offset <= self.last or not self.count:
            return False
        return self.offsets is None or offset in self.offsets

    def tells_of_copy(self, offset: int) -> bool:
        """Whether it says that a dead message was published again elsewhere (`detail`), and stays dead itself."""
        return self.kind == EventKind.REDRIVEN and not self.count and self.offset == offset


_Texts = list[str | None] | None
_Columns = tuple[
    list[EventKind],
    list[int],
    list[int],
    list[int],
    _Texts,
    _Texts,
    list[int] | None,
    _Texts,
    list[int] | None,
    list[list[int] | None] | None,
]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Columns).decode
_astuple = msgspec.structs.astuple
_DEFAULTS = (None, None, 0, None, 0, None)  # of the columns that are left out where they say nothing


def encode_events(events: list[Event]) -> bytes:
    """Events as msgpack of one list for each field, in their order; nil for an optional one with nothing in it."""
    if not events:
        return _encode(((),) * len(Event.__struct_fields__))
    count = len(events)
    kinds, times, firsts, counts, groups, consumers, attempts, details, dues, offsets = zip(
        *map(_astuple, events), strict=True
    )
    return _encode(
        (
            kinds,
            times,
            firsts,
            counts,
            None if groups.count(None) == count else groups,
            None if consumers.count(None) == count else consumers,
            None if attempts.count(0) == count else attempts,
            None if details.count(None) == count else details,
            None if dues.count(0) == count else dues,
            None if offsets.count(None) == count else offsets,
        )
    )


def decode_events(body: bytes | memoryview) -> list[Event]:
    """The events that `encode_events` wrote."""
    try:
        kinds, times, firsts, counts, *optional = _decode(body)
        found = [
            [default] * len(kinds) if column is None else column
            for column, default in zip(optional, _DEFAULTS, strict=True)
        ]
        return [Event(*row) for row in zip(kinds, times, firsts, counts, *found, strict=True)]
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidArgument(f"not an encoded batch of events: {error}") from error


def span_of(events: list[Event]) -> tuple[int, int]:
    """The lowest and the highest offset that they speak of."""
    return min([event.offset for event in events], default=0), max([event.last for event in events], default=0)


def merge_acks(events: list[Event]) -> Iterator[Event]:
    """The same events for whoever folds them: neighbouring acks of one group, by many consumers, are one."""
    waiting: list[Event] = []
    for event in events:
        mergeable = event.kind == EventKind.ACKED and event.count > 0
        if waiting and not (mergeable and event.group == waiting[0].group):
            yield _merged(waiting)
            waiting = []
        if mergeable:
            waiting.append(event)
        else:
            yield event
    if waiting:
        yield _merged(waiting)


def _merged(acks: list[Event]) -> Event:
    if len(acks) == 1:
        return acks[0]
    offsets: list[int] = []
    for ack in acks:
        if ack.count == 1:
            offsets.append(ack.offset)
        else:
            offsets += ack.offsets if ack.offsets is not None else range(ack.offset, ack.offset + ack.count)
    return msgspec.structs.replace(acks[0], offset=min(offsets), count=len(offsets), offsets=sorted(offsets))
