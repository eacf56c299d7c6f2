"""The load: publish requests, a fixed number under way, as fast as they are answered or by a schedule.

There is no task and no future for a request, only a callback: the load shares its cores with the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import math
import os
import random
import struct
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import NamedTuple

import msgspec

from penstock.bench.histogram import Histogram
from penstock.client.link import Link
from penstock.model.errors import PenstockError
from penstock.protocol.frames import HEADER_BYTES, Command

STAMP_BYTES = 8
_PAYLOADS_MAX = 64
_PAYLOADS_BYTES = 8 << 20
_NEVER_NS = 1 << 62
_MONOTONIC = 1
_FINEST_S = 0.0002

encode = msgspec.msgpack.Encoder().encode
Parts = tuple[bytes, bytes]


class Requests:
    """Batches of random values, a few that are repeated, to one topic after the other.

    Topic and payload are encoded once, here; only the sequence number of a request is new.
    """

    def __init__(self, topics: Sequence[str], batch: int, size: int) -> None:
        self.batch = batch
        self.size = size
        self._heads = [b"\x94" + encode(topic) for topic in topics]  # an array of four
        chance = random.Random(42)
        count = max(1, min(_PAYLOADS_MAX, _PAYLOADS_BYTES // (batch * (size + 5))))
        self._payloads = [encode(payload_of([chance.randbytes(size) for _ in range(batch)])) for _ in range(count)]

    def parts(self, number: int, due_ns: int) -> Parts:
        """Topic and payload of the request with this number."""
        return self._heads[number % len(self._heads)], self._payloads[number % len(self._payloads)]


class StampedRequests(Requests):
    """Batches whose values begin with the time at which they were to be sent."""

    def __init__(self, topic: str, batch: int, size: int) -> None:
        super().__init__([topic], batch, size)
        self._rest = random.Random(42).randbytes(size - STAMP_BYTES)

    def parts(self, number: int, due_ns: int) -> Parts:
        value = due_ns.to_bytes(STAMP_BYTES) + self._rest
        return self._heads[0], encode(payload_of([value] * self.batch))


def payload_of(values: list[bytes]) -> bytes:
    """Values without keys and headers, as they are stored."""
    return encode((None, values, None))


def stamp_of(value: bytes) -> int:
    """When a stamped message was to be sent."""
    return int.from_bytes(value[:STAMP_BYTES])


class Extent(NamedTuple):
    """How much to do: a number of requests, or as many as possible in some seconds."""

    requests: int | None = None
    seconds: float = 3.0


class Sent(NamedTuple):
    """What was done."""

    requests: int
    seconds: float


class _Lane:
    """A connection, and the producer that publishes on it."""

    __slots__ = ("link", "producer", "sequence")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.producer = encode(uuid.uuid4().hex)
        self.sequence = 0


class Sender:
    """Publishes over some connections; latencies go into a histogram.

    With a schedule, each request is due at a fixed time, whatever happened to those before. Its latency is measured
    from that time, however late it is sent.
    """

    def __init__(self, links: Sequence[Link], requests: Requests, window: int) -> None:
        self._lanes = [_Lane(link) for link in links]
        self._requests = requests
        self._window = window
        self.histogram = Histogram()
        self.request_bytes = 0
        self.reply_bytes = 0
        """The size of a request and of a reply, after the first of each."""

    async def run(self, extent: Extent, per_second: float | None = None) -> Sent:
        """Send and wait for all replies; `per_second` is how many requests are due each second."""
        self._free = deque(lane for _ in range(self._window) for lane in self._lanes)
        self._number = self._done = 0
        self._interval_ns = 0.0 if per_second is None else 1e9 / per_second
        self._total, self._stop_ns = _NEVER_NS, _NEVER_NS
        self._start_ns = perf_counter_ns()
        if extent.requests is not None:
            self._total = extent.requests
        elif per_second is not None:
            self._total = max(1, math.ceil(extent.seconds * per_second))
        else:
            self._stop_ns = self._start_ns + round(extent.seconds * 1e9)
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with contextlib.nullcontext() if per_second is None else _Ticker(1 / per_second, self._pump):
            self._pump()
            await self._finished
        return Sent(self._done, (perf_counter_ns() - self._start_ns) / 1e9)

    def _pump(self) -> None:
        """Send requests that are due, as long as not too many are under way."""
        now_ns = perf_counter_ns()
        if now_ns >= self._stop_ns:
            self._total = min(self._total, max(1, self._number))
        while self._free and self._number < self._total and not self._finished.done():
            due_ns = now_ns
            if self._interval_ns:
                due_ns = self._start_ns + round(self._number * self._interval_ns)
                if due_ns > now_ns:
                    return
            lane = self._free.popleft()
            lane.sequence += 1
            body = b"".join((*self._requests.parts(self._number, due_ns), lane.producer, encode(lane.sequence)))
            self._number += 1
            if not self.request_bytes:
                self.request_bytes = HEADER_BYTES + len(body)
            lane.link.send(Command.PUBLISH, body, partial(self._replied, lane, due_ns))

    def _replied(self, lane: _Lane, due_ns: int, reply: bytes | None, error: PenstockError | None) -> None:
        if error is not None or reply is None:
            if not self._finished.done():
                self._finished.set_exception(error or PenstockError("no reply"))
            return
        self.histogram.record(perf_counter_ns() - due_ns)
        if not self.reply_bytes:
            self.reply_bytes = HEADER_BYTES + len(reply)
        self._done += 1
        self._free.append(lane)
        self._pump()
        if self._done >= self._total and not self._finished.done():
            self._finished.set_result(None)


class _Ticker:
    """Calls a function at an interval while it is entered; if Linux has no timer for that, every millisecond.

    It is finer than the timers of an event loop, which have a resolution of a millisecond.
    """

    def __init__(self, interval_s: float, call: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._interval_s = max(_FINEST_S, interval_s)
        self._call = call
        self._fd: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._fd = _new_timer(self._interval_s)
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._ticked, self._fd)
        else:
            self._again()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _ticked(self, fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(fd, 8)
        self._call()

    def _again(self) -> None:
        self._timer = self._loop.call_later(max(0.001, self._interval_s), self._again)
        self._call()


def _new_timer(interval_s: float) -> int | None:
    """A descriptor that can be read from at every tick."""
    try:
        system = ctypes.CDLL(None, use_errno=True)
        fd: int = system.timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    except (AttributeError, OSError):
        return None
    if fd < 0:
        return None
    seconds, part = divmod(round(interval_s * 1e9), 1_000_000_000)
    if system.timerfd_settime(fd, 0, struct.pack("@4l", seconds, part, seconds, part), None):
        os.close(fd)
        return None
    return fd
