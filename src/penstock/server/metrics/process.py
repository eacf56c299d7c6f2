"""What the process takes from its machine, and how late its event loop is."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from penstock.model.histograms import QUICK_S, Histogram

INTERVAL_S = 0.25
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")
_DESCRIPTORS = "/proc/self/fd"


def resident_bytes() -> int:
    """Memory in use; 0 where the system does not tell."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def cpu_seconds() -> float:
    """Processor time, of the user and of the system."""
    return time.process_time()


def open_files() -> int:
    """File descriptors in use; 0 where the system does not tell."""
    try:
        return len(os.listdir(_DESCRIPTORS)) - 1  # without the one that lists them
    except OSError:
        return 0


class LoopDelay:
    """How late the event loop is for appointments with itself; measured on its own thread while this is started."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._longest_s = 0.0
        self.delays_s = Histogram(QUICK_S)

    def start(self) -> None:
        if self._timer is None:
            self._appoint()

    def stop(self) -> None:
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
