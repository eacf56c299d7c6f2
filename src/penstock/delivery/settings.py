"""What a group was told when it was made; kept in the event that made it."""

from __future__ import annotations

import msgspec

from penstock.model.errors import InvalidArgument


class GroupSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of one group, beside those of its topic."""

    visibility_timeout: float | None = None
    """How long its leases last (None: as the topic says)."""
    max_in_flight: int | None = None
    """How many of its messages may be leased at once (None: no limit)."""
    until: int | None = None
    """A replay ends before this offset of the partition."""
    rate: float | None = None
    """A replay hands out at most so many messages a second."""
    archived: bool = False
    """Whether it also gets what retention moved to the archive."""
    checkpoint: bool = False
    """Whether it only shows how far a reader is that keeps its own position; it has no consumers."""
    missing: tuple[tuple[int, int], ...] = ()
    """Where it begins or is moved to: runs, from and to before, that were not in the log any more."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(GroupSettings).decode


def encode_settings(settings: GroupSettings) -> str:
    """As the detail of an event."""
    return _encode(settings).decode()


def decode_settings(detail: str | None) -> GroupSettings:
    """From the detail of an event."""
    try:
        return _decode(detail or "{}")
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"not the settings of a group: {error}") from error
