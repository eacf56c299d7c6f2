"""An event loop in a thread of its own, for calls that wait: what stands behind the plain face of the client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from penstock.model.errors import BrokerClosed

Result = TypeVar("Result")
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
        return threading.current_thread() is self._thread

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run it there and wait here; Ctrl-C cancels it."""
        if self.is_here:
            work.close()
            raise RuntimeError(WAITS_HERE)
        future = self.begin(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise BrokerClosed("the client was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Run it there, and go on here."""
        with self._lock:
            try:
                self._check_running()
            except BrokerClosed:
                work.close()
                raise
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[[], object]) -> None:
        """Have a function called there soon."""
        with self._lock:
            self._check_running()
            self._loop.call_soon_threadsafe(function)

    def _check_running(self) -> None:
        if self._ending:
            raise BrokerClosed("the client is closed")
        if os.getpid() != self._process:
            raise BrokerClosed("this is a forked process, and the client belongs to its parent: connect anew")

    def iterate(self, items: AsyncIterator[Result]) -> Iterator[Result]:
        """Iterate here over what comes there."""

        async def take() -> list[Result]:
            return [item] if (item := await anext(items, None)) is not None else []

        while taken := self.wait(take()):
            yield from taken

    def stop(self) -> None:
        """End the thread; whoever still waits for something there hears that the client is closed."""
        with self._lock:
            if self._ending or os.getpid() != self._process:
                return
            self._ending = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
