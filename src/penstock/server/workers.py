"""Threads for requests that may block, shared by all ports of a server.

They do not keep the process alive: a slow redrive must not outlive a stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from penstock.model.errors import Overloaded, PenstockError

_log = logging.getLogger("penstock.server")
_THREADS = 16
_WAITING_MAX = 1000
_SLOW_MAX = 64  # what may take hours does not keep the others waiting

Result = TypeVar("Result")


class RequestThreads:
    """A few threads, started as they are needed, and how much they have to do."""

    def __init__(self, threads_max: int, work_max: int, kind: str) -> None:
        self._threads_max = threads_max
        self._work_max = work_max
        self._kind = kind
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0
        self.under_way = 0

    def begin(self) -> None:
        """Count one request more; raises Overloaded where there are too many."""
        if self.under_way >= self._work_max:
            raise Overloaded(f"{self._work_max} requests {self._kind} are under way already: try later")
        self.under_way += 1

    def submit(self, work: Callable[[], None]) -> None:
        """Do it when a thread is free; it must not raise."""
        if not self._idle.acquire(blocking=False) and self._started < self._threads_max:
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


class Workers:
    """Runs work in threads and hands its result back to the event loop; it limits how much work may wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = RequestThreads(_THREADS, _WAITING_MAX, "of this kind")
        self._slow_threads = RequestThreads(_SLOW_MAX, _SLOW_MAX, "that take long")

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self._threads.under_way or self._slow_threads.under_way)

    def in_thread(
        self,
        work: Callable[[], Result],
        then: Callable[[Result], None],
        failed: Callable[[BaseException], None],
        *,
        slow: bool = False,
    ) -> None:
        """Do what may block in a thread, and go on with its result here.

        `slow` is for what may take hours, such as a redrive at a limited rate.
        """
        threads = self._slow_threads if slow else self._threads
        threads.begin()
        threads.submit(partial(self._run, threads, work, then, failed))

    async def run(self, work: Callable[[], Result], *, slow: bool = False) -> Result:
        """The result of work that may block; work that nobody waits for any more is finished all the same."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self.in_thread(partial(attempt, work), partial(_tell, future), partial(_fail, future), slow=slow)
        return await future

    def stop(self) -> None:
        """End the threads once they have nothing more to do; nobody waits for that."""
        self._threads.stop()
        self._slow_threads.stop()

    def _run(
        self,
        threads: RequestThreads,
        work: Callable[[], Result],
        then: Callable[[Result], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        go_on: Callable[[], None]
        try:
            go_on = partial(then, work())
        except BaseException as error:  # noqa: BLE001 - whoever asked hears of it
            if not isinstance(error, PenstockError):
                _log.exception("a request failed")
            go_on = partial(failed, error)

        def back() -> None:
            threads.under_way -= 1
            go_on()

        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(back)


def attempt(work: Callable[[], Result]) -> Result | BaseException:
    """The result, or the error: whoever waits for it handles that, so that it is not logged here as a failure."""
    try:
        return work()
    except BaseException as error:  # noqa: BLE001 - see above
        return error


def _tell(future: asyncio.Future[Any], outcome: Any) -> None:
    if isinstance(outcome, BaseException):
        _fail(future, outcome)
    elif not future.done():
        future.set_result(outcome)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
    elif not isinstance(error, PenstockError):
        _log.error("a request that nobody waits for any more failed", exc_info=error)
