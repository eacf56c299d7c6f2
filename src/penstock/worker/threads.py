"""Threads for handlers that are plain functions. They are daemons: one that hangs does not keep the process alive."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Answer = tuple[Any, BaseException | None]
_Job = tuple["asyncio.Future[Answer]", Callable[[Any], object], object]


class Threads:
    """A few threads, each started when it is first needed; used from one event loop."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._started = 0
        self._busy = 0

    def call(self, function: Callable[[Any], object], argument: object) -> asyncio.Future[Answer]:
        """Call it in a thread; what it returned, or what it raised."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._jobs.put((future, function, argument))
        self._busy += 1
        if self._busy > self._started < self._size:
            self._started += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    def close(self) -> None:
        """Let the threads end, each when it has nothing more to do."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function, argument = job
            try:
                answer: Answer = (function(argument), None)
            except BaseException as error:  # noqa: BLE001 - told to whoever waits for it
                answer = (None, error)
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._done, future, answer)
            del job, future, argument, answer

    def _done(self, future: asyncio.Future[Answer], answer: Answer) -> None:
        self._busy -= 1
        if not future.done():
            future.set_result(answer)
