"""A bucket in memory whose creates are answered when a test wants it."""

from __future__ import annotations

import threading

from penstock.storage.objects import Outcome
from penstock.testing import MemoryObjects

_PATIENCE_S = 30.0


class HangingObjects(MemoryObjects):
    """While it is told to hang, the create of a piece waits, and nobody knows what became of it."""

    def __init__(self) -> None:
        super().__init__()
        self._hanging = 0  # so many of the next creates
        self.begun = threading.Semaphore(0)
        """Released by each create that waits."""
        self._go_on = threading.Event()

    def hang(self, times: int = 1 << 30) -> None:
        """Have so many creates of pieces wait."""
        self._go_on.clear()
        self._hanging = times

    def go_on(self) -> None:
        """Answer those that wait, and all others at once."""
        self._hanging = 0
        self._go_on.set()

    def wait_until_hanging(self) -> None:
        """Return when another create waits."""
        assert self.begun.acquire(timeout=_PATIENCE_S)

    def create(self, name: str, data: bytes) -> Outcome:
        if self._hanging and "journal/" in name:
            self._hanging -= 1
            self.begun.release()
            assert self._go_on.wait(_PATIENCE_S)
        return super().create(name, data)
