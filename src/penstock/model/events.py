"""What happened to messages: the second log. An event speaks of a run of offsets, not of one message."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from penstock.model.errors import InvalidArgument


class EventKind(StrEnum):
    """What can happen to a run of messages."""

    ARCHIVED = "archived"  # their segment was moved to the archive
    REMOVED = "removed"  # retention removed their segment


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


_COLUMNS = tuple[
    list[EventKind], list[int], list[int], list[int], list[str | None], list[str | None], list[int], list[str | None]
]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_COLUMNS).decode


def encode_events(events: list[Event]) -> bytes:
    """Events as msgpack of one list for each field, in the order of the fields."""
    columns = tuple(zip(*map(msgspec.structs.astuple, events), strict=True))
    return _encode(columns or ((),) * len(Event.__struct_fields__))


def decode_events(body: bytes) -> list[Event]:
    """The events that `encode_events` wrote."""
    try:
        return [Event(*row) for row in zip(*_decode(body), strict=True)]
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidArgument(f"not an encoded batch of events: {error}") from error
