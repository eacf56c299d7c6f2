"""Server-Sent Events, as they are written and read."""

from __future__ import annotations

EVENTS = "text/event-stream"
UNBUFFERED = {"x-accel-buffering": "no"}
"""The header that keeps a proxy from collecting them."""


def event(name: str, data: bytes, identity: str | None = None) -> bytes:
    """One event."""
    head = f"id: {identity}\n" if identity is not None else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"


class EventReader:
    """Takes events out of what comes in pieces."""

    def __init__(self) -> None:
        self._begun = b""

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """The names and data of events that are complete; what is no event is left out."""
        *whole, self._begun = (self._begun + data).split(b"\n\n")
        found: list[tuple[str, bytes]] = []
        for text in whole:
            fields = dict(line.split(b": ", 1) for line in text.split(b"\n") if b": " in line)
            if b"event" in fields:
                found.append((fields[b"event"].decode(), fields.get(b"data", b"")))
        return found
