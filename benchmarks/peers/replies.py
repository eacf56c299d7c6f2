"""Replies are counted, not decoded: as many as requests were sent, and none of them an error."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol

from benchmarks.peers.plans import Refused

_HEADER = struct.Struct(">BBII")  # of Penstock's frames: version, command, correlation, length of the body


class Replies(Protocol):
    """The replies of one connection."""

    def feed(self, data: bytes) -> int:
        """How many more requests are answered; raises Refused."""


class Lines:
    """Replies of some lines each; `refused` finds an error among whole lines."""

    def __init__(self, lines_each: int, refused: Callable[[bytes], bool]) -> None:
        self._each = lines_each
        self._refused = refused
        self._lines = 0
        self._rest = b""

    def feed(self, data: bytes) -> int:
        whole, end, self._rest = (self._rest + data).rpartition(b"\n")
        whole += end
        if self._refused(whole):
            raise Refused(whole[:500].decode(errors="replace"))
        answered, self._lines = divmod(self._lines + whole.count(b"\n"), self._each)
        return answered


class Frames:
    """Penstock's replies to one command. Where all that came have one length, they are compared all at once."""

    def __init__(self, command: int) -> None:
        self._command = command
        self._rest = b""

    def feed(self, data: bytes) -> int:
        data = self._rest + data
        answered = self._alike(data)
        if answered is not None:
            self._rest = b""
            return answered
        frames, self._rest = frames_in(data)
        for command, _, body in frames:
            if command != self._command:
                raise Refused(f"command {command:#x}: {body[:500]!r}")
        return len(frames)

    def _alike(self, data: bytes) -> int | None:
        """How many frames these are, if they are whole and their headers differ in the correlation only."""
        if len(data) < _HEADER.size:
            return None
        length = _HEADER.size + _HEADER.unpack_from(data)[3]
        count, more = divmod(len(data), length)
        if more or data[1] != self._command:
            return None
        if count == 1:
            return 1
        same = all(data[place::length] == data[place : place + 1] * count for place in (0, 1, 6, 7, 8, 9))
        return count if same else None


def frames_in(data: bytes) -> tuple[list[tuple[int, int, bytes]], bytes]:
    """The whole frames (command, correlation, body) at the start of some bytes, and what is left."""
    frames, start = [], 0
    while len(data) - start >= _HEADER.size:
        _version, command, correlation, length = _HEADER.unpack_from(data, start)
        end = start + _HEADER.size + length
        if end > len(data):
            break
        frames.append((command, correlation, data[start + _HEADER.size : end]))
        start = end
    return frames, data[start:]
