"""A clock that stands still until it is moved."""

from __future__ import annotations


class VirtualClock:
    """Both clocks of the broker, under the test's hand.

    >>> clock = VirtualClock()
    >>> clock.advance(1.5)
    >>> clock.wall_us() - VirtualClock.START_US
    1500000
    """

    START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z

    def __init__(self) -> None:
        self._wall_us = self.START_US
        self._monotonic_us = 0

    def wall_us(self) -> int:
        return self._wall_us

    def monotonic_s(self) -> float:
        return self._monotonic_us / 1_000_000

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._wall_us += round(seconds * 1_000_000)
        self._monotonic_us += round(seconds * 1_000_000)

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator does; no time passes."""
        self._wall_us += round(seconds * 1_000_000)
