"""How late the event loop is: an appointment with itself, again and again."""

from __future__ import annotations

import asyncio

from penstock.shard.metering.histograms import QUICK_S, Histogram

INTERVAL_S = 0.25


class LoopDelay:
    """Measures while it is started; on the loop's own thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._longest_s = 0.0
        self.delays_s = Histogram(QUICK_S)

    def start(self) -> None:
        """Begin to measure."""
        if self._timer is None:
            self._appoint()

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take_longest_s(self) -> float:
        """The longest delay since this was last asked."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s

    def _appoint(self) -> None:
        due_s = self._loop.time() + INTERVAL_S
        self._timer = self._loop.call_at(due_s, self._met, due_s)

    def _met(self, due_s: float) -> None:
        delay_s = max(0.0, self._loop.time() - due_s)
        self.delays_s.observe(delay_s)
        self._longest_s = max(self._longest_s, delay_s)
        self._appoint()
