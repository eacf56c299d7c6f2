"""An event loop in its own thread, on which the plain client runs its calls."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from penstock.model.errors import BrokerClosed

Result = TypeVar("Result")
_LAST_TURNS = 5  # of the loop, in which connections that were just closed are cleared away
SIGNAL_S = 1.0  # a signal that comes just before a thread begins to wait does not wake it: it looks again and again
WAITS_HERE = "a plain client cannot wait inside its own callbacks: use penstock.aio there"


class LoopThread:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._process = os.getpid()
        self._lock = threading.Lock()  # nothing is begun behind the end
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="penstock-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(_cancel_others())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in the thread of the loop."""
        return threading.get_ident() == self._thread.ident

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine there and wait for its result; Ctrl-C cancels it."""
        if self.is_here:
            work.close()
            raise RuntimeError(WAITS_HERE)
        awaited = _Awaited(work)
        try:
            self.call(awaited.begin)
            while not awaited.done.acquire(timeout=SIGNAL_S):
                pass
        except BaseException:
            self._forget(awaited)
            raise
        return awaited.outcome()

    def _forget(self, awaited: _Awaited[Any]) -> None:
        try:
            self.call(awaited.cancel)
        except BrokerClosed:
            awaited.cancel()

    def call(self, function: Callable[[], object]) -> None:
        """Call a function there soon."""
        with self._lock:
            if self._ending:
                raise BrokerClosed("the client is closed")
            if os.getpid() != self._process:
                raise BrokerClosed("this is a forked process, and the client belongs to its parent: connect anew")
            self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """End the thread; calls that still wait raise BrokerClosed."""
        with self._lock:
            if self._ending or os.getpid() != self._process:
                return
            self._ending = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class _Awaited(Generic[Result]):
    """A coroutine that the loop runs while a thread waits for it.

    The thread waits at a bare lock: a `concurrent.futures.Future` that a signal handler leaves by an exception, such as
    that of Ctrl-C, may stay locked for ever, and the loop behind it.
    """

    def __init__(self, work: Coroutine[Any, Any, Result]) -> None:
        self._work = work
        self._task: asyncio.Task[Result] | None = None
        self._cancelled = False
        self._result: list[Result] = []
        self._error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()

    def begin(self) -> None:
        """Start it; called on the loop."""
        if not self._cancelled:
            self._task = asyncio.get_running_loop().create_task(self._work)
            self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        """Cancel it; called on the loop, or after the loop has ended."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()
        else:
            self._work.close()

    def _finish(self, task: asyncio.Task[Result]) -> None:
        self._task = None
        if task.cancelled():
            self._error = BrokerClosed("the client was closed meanwhile")
        elif (error := task.exception()) is not None:
            self._error = error
        else:
            self._result.append(task.result())
        self.done.release()

    def outcome(self) -> Result:
        """Its result, or the error that it raised."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # no cycle with the frames of its traceback
        return self._result.pop()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(_LAST_TURNS):
        await asyncio.sleep(0)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
