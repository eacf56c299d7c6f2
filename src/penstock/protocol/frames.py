"""Frames: a fixed header and a body.

    u8   version      of the protocol: 1
    u8   command      see `Command`; a reply has the command of its request + 0x80, an error 0xFF
    u32  correlation  chosen by whoever asks; the reply repeats it
    u32  length       bytes of the body that follows
    …    body         msgpack

All numbers are big endian. A length beyond the limit is refused before anything is allocated for it.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from penstock.model.errors import PenstockError
from penstock.model.units import format_size

VERSION = 1
HEADER = struct.Struct(">BBII")
HEADER_BYTES = HEADER.size
CORRELATION_MAX = 0xFFFF_FFFF
_FIRST_BYTES = 16 << 10
_KEPT_BYTES = 1 << 20
_COPIED_BYTES = 64 << 10  # so many bytes are copied: slices of `bytes` are cheaper than views
_pack, _unpack_from = HEADER.pack, HEADER.unpack_from

Frame = tuple[int, int, memoryview | bytes]
"""Command, correlation, body; the body is valid until more bytes are received."""


class Command(IntEnum):
    """What a frame is about."""

    HELLO = 0x01
    PING = 0x02
    PUBLISH = 0x03
    SUBSCRIBE = 0x04
    UNSUBSCRIBE = 0x05
    RECEIVE = 0x06
    CANCEL = 0x07
    TAKEN = 0x08
    ACK = 0x09
    EXTEND = 0x0A
    RELEASE = 0x0B
    FAIL = 0x0C
    KILL = 0x0D
    HEARTBEAT = 0x0E
    READ = 0x0F
    CALL = 0x10
    PUSH = 0x11
    STAGE = 0x12
    MOVED = 0x7D  # from the server, unasked: shards are elsewhere now
    DELIVER = 0x7E  # from the server, unasked: messages of a subscription
    GOODBYE = 0x7F  # from the server, unasked: it is about to close


BROKEN = -1  # not a command: the header of a frame that cannot be read
REPLY = 0x80
ERROR = 0xFF


class ProtocolError(PenstockError):
    """Bytes that are not of the native protocol, or a frame that is too large: the connection must be closed."""

    def __init__(self, message: str, correlation: int = 0) -> None:
        super().__init__(message, correlation)
        self.correlation = correlation

    def __str__(self) -> str:
        return str(self.args[0])


def frame(command: int, correlation: int, body: bytes) -> bytes:
    """One frame, ready to be sent."""
    return _pack(VERSION, command, correlation, len(body)) + body


class FrameReader:
    """Turns received bytes into frames; holds at most one unfinished frame.

    Bytes are read directly into its buffer: `room()` is where they go, `received(count)` returns the complete frames.
    With `first_bytes_max` frames are no larger than that and come one by one, until `lift_limit` is called.
    """

    def __init__(self, max_frame_bytes: int, first_bytes_max: int | None = None) -> None:
        self._max = max_frame_bytes if first_bytes_max is None else first_bytes_max
        self._later_max = max_frame_bytes
        self._is_limited = first_bytes_max is not None
        self._view = memoryview(bytearray(_FIRST_BYTES))
        self._start = self._end = 0
        self._needed = HEADER_BYTES  # bytes of the frame that begins at `_start`, as far as known
        self.unfinished_bytes = 0  # that are held of a frame which is not complete

    def lift_limit(self) -> None:
        """Read frames of any allowed size from now on; `received(0)` returns those that have arrived already."""
        self._max = self._later_max
        self._is_limited = False

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._start == self._end:
            self._start = self._end = 0
            return self._view
        if self._start and max(self._start + self._needed, self._end + 1) > len(self._view):
            held = self._end - self._start
            self._view[:held] = self._view[self._start : self._end]
            self._start, self._end = 0, held
        if self._end == len(self._view):  # it grows with the bytes that arrive, not with the announced length
            larger = memoryview(bytearray(max(2 * len(self._view), min(self._needed, 4 * len(self._view)))))
            larger[: self._end] = self._view
            self._view = larger
        return self._view[self._end :]

    def received(self, count: int) -> list[Frame]:
        """This many bytes were read into the room; returns the frames that are complete now."""
        view, start = self._view, self._start
        end = self._end = self._end + count
        size = end - start
        data = bytes(view[start:end]) if size <= _COPIED_BYTES else view[start:end]
        frames: list[Frame] = []
        place, body, needed = 0, HEADER_BYTES, HEADER_BYTES
        while body <= size:
            version, command, correlation, length = _unpack_from(data, place)
            if version != VERSION or length > self._max:
                frames.append((BROKEN, correlation, data[place:body]))
                break
            following = body + length
            if following > size:
                needed += length
                break
            frames.append((command, correlation, data[body:following]))
            place, body = following, following + HEADER_BYTES
            if self._is_limited:
                break
        self._start, self._needed, self.unfinished_bytes = start + place, needed, size - place
        if end == len(view) or len(view) > _KEPT_BYTES:
            self._resize(data[place:])
        return frames

    def take(self, count: int) -> bytes:
        """This many bytes were read into the room: they, and what is held of a frame, are no frames after all."""
        taken = bytes(self._view[self._start : self._end + count])
        self._start = self._end = self.unfinished_bytes = 0
        self._needed = HEADER_BYTES
        return taken

    def _resize(self, held: bytes | memoryview) -> None:
        """Make room for what is waiting to be read, or let go of what was there for a large frame."""
        size = len(self._view)
        if self._end == size < _KEPT_BYTES:
            self._view = memoryview(bytearray(2 * size))
        elif size > max(_KEPT_BYTES, 4 * len(held)):
            self._view = memoryview(bytearray(max(_KEPT_BYTES, 2 * len(held))))
        else:
            return
        self._view[: len(held)] = held
        self._start, self._end = 0, len(held)

    def problem(self, header: memoryview | bytes) -> ProtocolError:
        """What is wrong with a BROKEN frame; nothing after it can be read."""
        version, _, correlation, length = _unpack_from(header)
        if version != VERSION:
            return ProtocolError(_wrong_version(bytes(header)))
        which = "before anybody is known" if self._is_limited else "max_frame_bytes"
        return ProtocolError(
            f"a frame of {format_size(length)} is too large; the limit is {format_size(self._max)} ({which})",
            correlation,
        )


def _wrong_version(start: bytes) -> str:
    if start[:1].isalpha() or start[:1] == b"\x16":
        return (
            f"this is the native port of Penstock, and {start!r} is no frame of its protocol: "
            "HTTP, TLS and text are spoken elsewhere"
        )
    return f"version {start[0]} of the native protocol is not known here; this is version {VERSION}"
