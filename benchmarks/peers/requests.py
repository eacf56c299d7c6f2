"""Requests whose bytes are ready before the clock starts, so that the generator costs the same for every protocol.

A generator takes the next `n` of them and gets buffers to send as they are. Requests of one message have one length,
so that any number of them is one slice of one buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

Buffers = list[bytes | memoryview]
ENDLESS = 1 << 62


class Requests(Protocol):
    """The requests of one connection."""

    left: int
    """How many more there are."""

    def take(self, count: int) -> Buffers:
        """The bytes of the next ones."""


class Repeated:
    """Requests that may be sent again: a few of them, over and over."""

    def __init__(self, requests: Sequence[bytes]) -> None:
        if len({len(request) for request in requests}) != 1:
            raise ValueError("requests of different lengths")
        self.left = ENDLESS
        self._stride = len(requests[0])
        self._count = len(requests)
        self._bytes = memoryview(b"".join(requests))
        self._next = 0

    def take(self, count: int) -> Buffers:
        self.left -= count
        buffers: Buffers = []
        while count:
            found = min(count, self._count - self._next)
            start = self._next * self._stride
            buffers.append(self._bytes[start : start + found * self._stride])
            self._next = (self._next + found) % self._count
            count -= found
        return buffers


class Numbered:
    """Requests each with a number of its own, in some fields of four bytes: so many as were prepared."""

    def __init__(self, requests: Sequence[bytes], fields: Sequence[int], count: int) -> None:
        self.left = count
        self._stride = len(requests[0])
        self._bytes = memoryview(with_numbers(requests, fields, count))
        self._next = 0

    def take(self, count: int) -> Buffers:
        if count > self.left:
            raise ValueError(f"{count:,} requests are wanted of {self.left:,}")
        start = self._next * self._stride
        self._next += count
        self.left -= count
        return [self._bytes[start : start + count * self._stride]]


class Built:
    """Large requests, of which only the first and last bytes are new: built when they are taken."""

    def __init__(self, build: Callable[[int], Buffers]) -> None:
        self.left = ENDLESS
        self._build = build
        self._next = 0

    def take(self, count: int) -> Buffers:
        first = self._next
        self._next += count
        self.left -= count
        return [buffer for number in range(first, self._next) for buffer in self._build(number)]


def with_numbers(requests: Sequence[bytes], fields: Sequence[int], count: int) -> bytearray:
    r"""So many requests of one length, repeated in turn, with 1, 2, 3, … in the big-endian fields at these places.

    >>> with_numbers([b"a....", b"b...."], [1], 3)
    bytearray(b'a\x00\x00\x00\x01b\x00\x00\x00\x02a\x00\x00\x00\x03')
    """
    stride = len(requests[0])
    if {len(request) for request in requests} != {stride}:
        raise ValueError("requests of different lengths")
    times, more = divmod(count, len(requests))
    made = bytearray(b"".join(requests) * times + b"".join(requests[:more]))
    numbers = b"".join(number.to_bytes(4) for number in range(1, count + 1))
    for field in fields:
        for place in range(4):
            made[field + place :: stride] = numbers[place::4]
    return made
