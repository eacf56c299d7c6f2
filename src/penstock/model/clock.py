"""Time, sleeping and randomness come in through this seam, so that tests can run the broker on virtual time.

Everything that would differ between two runs of the same operations comes from the clock. Only threads that wait for
each other do so in real time; a shard has none (`tests/broker/test_clock_seam.py` names every such place).
"""

from __future__ import annotations

import os
import time
from typing import Protocol, runtime_checkable


class Clock(Protocol):
    """What a clock of the caller must have: the time."""

    def wall_us(self) -> int:
        """Microseconds since 1970 (UTC): what messages are stamped with. It may step back."""

    def monotonic_s(self) -> float:
        """Seconds that only ever grow: what intervals are measured with."""


@runtime_checkable
class ShardClock(Clock, Protocol):
    """What a shard runs on: a clock that can also sleep, and is the source of random bytes."""

    def sleep_s(self, seconds: float) -> None:
        """Return when so many seconds have passed, by this clock."""

    def random_bytes(self, count: int) -> bytes:
        """Random bytes, from which ids are made."""


class SystemClock:
    """The machine's own clocks, and its own randomness."""

    monotonic_s = staticmethod(time.monotonic)

    def wall_us(self) -> int:
        now_us = time.time_ns() // 1000
        return now_us if now_us > 0 else 0

    def sleep_s(self, seconds: float) -> None:
        time.sleep(seconds)

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


class _OwnTime(SystemClock):
    """A clock that has only the time, with the sleep and randomness of the machine."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def wall_us(self) -> int:
        return self._clock.wall_us()

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()


def to_shard_clock(clock: Clock | None) -> ShardClock:
    """The clock itself; what it lacks is taken from the machine, and everything if there is none."""
    if clock is None:
        return SystemClock()
    return clock if isinstance(clock, ShardClock) else _OwnTime(clock)
