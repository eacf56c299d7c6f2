"""The settings of a group: kept in the event that made it, and in those that changed them.

What stands here is shown wherever groups are: in lists and details on every port, in the metrics, in traces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    paused: bool = False
    """Whether it is handed nothing."""
    checkpoint: bool = False
    """Whether it only shows how far a reader is that keeps its own position; it has no consumers."""
    missing: tuple[tuple[int, int], ...] = ()
    """Where it begins or is moved to: runs, from and to before, that were not in the log any more."""

    def room(self, wanted: int, leased: int) -> int:
        """How many of the wanted messages may be leased now, beside those that are leased already."""
        if self.paused:
            return 0
        return wanted if self.max_in_flight is None else min(wanted, self.max_in_flight - leased)

    def shown(self) -> dict[str, bool | float]:
        """Those that were set, as far as people are shown them."""
        return _without_internal(msgspec.to_builtins(self))


_INTERNAL = ("until", "checkpoint", "missing")


def _without_internal(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in _INTERNAL}


def in_words(settings: Mapping[str, bool | float]) -> str:
    """Settings for people: `max_in_flight 3, paused`."""
    said = {True: "{name}", False: "not {name}"}
    return ", ".join(
        said[value].format(name=name) if isinstance(value, bool) else f"{name} {value:g}"
        for name, value in settings.items()
    )


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(GroupSettings).decode


def encode_settings(settings: GroupSettings) -> str:
    """As the detail of an event."""
    return _encode(settings).decode()


def encode_changed(settings: GroupSettings, changes: Mapping[str, Any]) -> str:
    """The settings after a change, as the detail of an event; what was changed is there, also if it is a default."""
    changed = msgspec.structs.replace(settings, **changes)
    return _encode({**msgspec.to_builtins(changed), **changes}).decode()


def changed_in_words(detail: str | None) -> str:
    """The settings after a change for people, from the detail of an event."""
    return in_words(_without_internal(msgspec.json.decode(detail or "{}")))


def decode_settings(detail: str | None) -> GroupSettings:
    """From the detail of an event."""
    try:
        return _decode(detail or "{}")
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"not the settings of a group: {error}") from error
