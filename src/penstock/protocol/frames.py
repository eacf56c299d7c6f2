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
_pack, _unpack_from = HEADER.pack, HEADER.unpack_from

Frame = tuple[int, int, memoryview]
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

    @property
    def unfinished_bytes(self) -> int:
        """How many bytes are held of a frame that is not complete."""
        return self._end - self._start

    def lift_limit(self) -> None:
        """Read frames of any allowed size from now on; `received(0)` returns those that have arrived already."""
        self._max = self._later_max
        self._is_limited = False

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start and max(self._start + self._needed, self._end + 1) > len(self._view):
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
        filled = self._end + count == len(self._view)
        self._end += count
        view, end, place = self._view, self._end, self._start
        frames: list[Frame] = []
        while end - place >= HEADER_BYTES:
            version, command, correlation, length = _unpack_from(view, place)
            if version != VERSION or length > self._max:
                frames.append((BROKEN, correlation, view[place : place + HEADER_BYTES]))
                break
            following = place + HEADER_BYTES + length
            if following > end:
                self._needed = HEADER_BYTES + length
                break
            frames.append((command, correlation, view[place + HEADER_BYTES : following]))
            place = following
            if self._is_limited:
                self._needed = HEADER_BYTES
                break
        else:
            self._needed = HEADER_BYTES
        self._start, held = place, end - place
        if filled and len(view) < _KEPT_BYTES:  # more bytes are waiting
            self._view = memoryview(bytearray(2 * len(view)))
            self._view[:held] = view[place:end]
            self._start, self._end = 0, held
        elif len(view) > max(_KEPT_BYTES, 4 * held):  # it had grown for a large frame
            self._view = memoryview(bytearray(max(_KEPT_BYTES, 2 * held)))
            self._view[:held] = view[place:end]
            self._start, self._end = 0, held
        return frames

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
