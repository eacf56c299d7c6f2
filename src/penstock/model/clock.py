"""Time comes in through this seam, so that tests can run the broker on virtual time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the broker needs to know of time."""

    def wall_us(self) -> int:
        """Microseconds since 1970 (UTC): what messages are stamped with. It may step back."""

    def monotonic_s(self) -> float:
        """Seconds that only ever grow: what intervals are measured with."""


class SystemClock:
    """The machine's own clocks."""

    def wall_us(self) -> int:
        return max(0, time.time_ns() // 1000)

    def monotonic_s(self) -> float:
        return time.monotonic()
