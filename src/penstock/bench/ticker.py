"""A clock that ticks more finely than the timers of an event loop, which know whole milliseconds."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import Callable

_MONOTONIC = 1
_FINEST_S = 0.0002


class Ticker:
    """Calls a function every so often, from `start` to `stop`; where Linux has no timer for it, each millisecond."""

    def __init__(self, interval_s: float, call: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._interval_s = max(_FINEST_S, interval_s)
        self._call = call
        self._fd: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin."""
        self._fd = _new_timer(self._interval_s)
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._ticked, self._fd)
        else:
            self._again()

    def stop(self) -> None:
        """End; stopping twice is harmless."""
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
