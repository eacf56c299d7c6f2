"""An event loop in a thread of its own, for calls that wait: what stands behind the plain face of the client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from penstock.model.errors import BrokerClosed

Result = TypeVar("Result")
_AT_ONCE = 1000


class LoopThread:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="penstock-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run it there and wait here; Ctrl-C cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a plain client cannot wait inside its own callbacks: use penstock.aio there")
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Run it there, and go on here."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:
            work.close()
            raise BrokerClosed("the client is closed") from error

    def call(self, function: Callable[[], object]) -> None:
        """Have a function called there soon."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError as error:
            raise BrokerClosed("the client is closed") from error

    def iterate(self, items: AsyncIterator[Result]) -> Iterator[Result]:
        """Iterate here over what comes there, some items at a time."""

        async def take() -> list[Result]:
            taken: list[Result] = []
            async for item in items:
                taken.append(item)
                if len(taken) == _AT_ONCE:
                    break
            return taken

        while taken := self.wait(take()):
            yield from taken

    def stop(self) -> None:
        """End the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
