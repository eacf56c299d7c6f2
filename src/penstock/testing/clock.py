"""A clock that stands still until it is moved."""

from __future__ import annotations

import random
import threading


class VirtualClock:
    """Both clocks of the broker, controlled by the test; sleeping on it takes no real time.

    >>> clock = VirtualClock()
    >>> clock.advance(1.5)
    >>> clock.wall_us() - VirtualClock.START_US
    1500000

    With a seed, ids are made from it: the same operations then write the same bytes. Keep the same clock when a broker
    is opened again; a new one with the same seed would make the same ids a second time.
    """

    START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z

    def __init__(self, seed: int | None = None) -> None:
        self._wall_us = self.START_US
        self._monotonic_us = 0
        self._moving = threading.Lock()  # a thread may sleep while the test moves the clock
        self._random = random.Random(seed)

    def wall_us(self) -> int:
        return self._wall_us

    def monotonic_s(self) -> float:
        return self._monotonic_us / 1_000_000

    def sleep_s(self, seconds: float) -> None:
        """Move the clock forward at once, for everybody."""
        self.advance(seconds)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        with self._moving:
            self._wall_us += round(seconds * 1_000_000)
            self._monotonic_us += round(seconds * 1_000_000)

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator does; no time passes."""
        with self._moving:
            self._wall_us += round(seconds * 1_000_000)
