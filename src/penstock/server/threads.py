"""Threads for requests that may block. They do not keep the process alive: a slow redrive must not outlive a stop."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class RequestThreads:
    """A few threads, started as they are needed."""

    def __init__(self, threads_max: int) -> None:
        self._max = threads_max
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def submit(self, work: Callable[[], None]) -> None:
        """Do it when a thread is free; it must not raise."""
        if not self._idle.acquire(blocking=False) and self._started < self._max:
            self._started += 1
            threading.Thread(target=self._run, name=f"penstock-request-{self._started}", daemon=True).start()
        self._work.put(work)

    def stop(self) -> None:
        """End the threads once they have nothing more to do; nobody waits for that."""
        for _ in range(self._started):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            self._idle.release()
