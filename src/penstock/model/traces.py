"""The life of one message, as people see it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.model.message import MessageId, StoredMessage
from penstock.model.units import to_datetime


class TraceLine(msgspec.Struct, frozen=True):
    """One thing that happened to a message."""

    kind: str
    time_us: int
    group: str | None = None
    consumer: str | None = None
    attempt: int = 0
    """Which delivery to the group it was, or belongs to."""
    cause: str | None = None
    due_us: int = 0
    """When it falls due or is tried again, where that was decided."""
    producer: str | None = None
    """Who published it, by name: the `producer` of the publish, the name of the client, or that of its token."""

    @property
    def time(self) -> datetime:
        """When (UTC)."""
        return to_datetime(self.time_us)


class Trace(msgspec.Struct, frozen=True):
    """Everything that happened to a message, in order."""

    id: MessageId
    message: StoredMessage | None
    """The message, unless it is gone."""
    lines: list[TraceLine]
    retained_until: datetime | None
    """When retention may remove it; None: when it is not known or never."""

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that it was published with."""
        return (self.message.headers or {}).get("traceparent") if self.message is not None else None

    def __str__(self) -> str:
        shown = [f"{self.id}" + (f"  traceparent {self.traceparent}" if self.traceparent else "")]
        for line in self.lines:
            parts = [
                f"{line.time:%Y-%m-%d %H:%M:%S.%f}",
                line.kind.upper().ljust(11),
                f"by {line.producer}" if line.producer else "",
                line.group or "",
                line.consumer or "",
                f"attempt {line.attempt}" if line.attempt else "",
                f"until {to_datetime(line.due_us):%Y-%m-%d %H:%M:%S.%f}" if line.due_us else "",
                line.cause or "",
            ]
            shown.append("  " + "  ".join(part for part in parts if part).rstrip())
        if self.retained_until is not None:
            shown.append(f"  retained until {self.retained_until:%Y-%m-%d %H:%M:%S}")
        return "\n".join(shown)
