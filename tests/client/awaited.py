"""What asyncio offers, in plain calls: with this, one test is for both faces."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import penstock
import penstock.aio
from tests.patience import PATIENCE_S

Wait = Callable[[Coroutine[Any, Any, Any]], Any]


@contextlib.contextmanager
def loop_in_thread() -> Iterator[Wait]:
    """An event loop in a thread; what is yielded runs a coroutine there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(2 * PATIENCE_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@contextlib.contextmanager
def connected(face: str, address: str) -> Iterator[Any]:
    """A client of a server in plain calls: of itself (`client`), or the one for asyncio (`aio`)."""
    if face == "client":
        with penstock.connect(address) as client:
            yield client
        return
    with loop_in_thread() as wait:

        async def enter() -> penstock.aio.AsyncClient:
            return await penstock.aio.connect(address).__aenter__()

        opened = wait(enter())
        try:
            yield Awaited(opened, wait)
        finally:
            wait(opened.close())


class Awaited:
    """Something of asyncio in plain calls: whatever it gives to be awaited is waited for."""

    def __init__(self, inner: Any, wait: Wait) -> None:
        self._inner, self._wait = inner, wait

    def __getattr__(self, name: str) -> Any:
        if name == "recovery":
            return self._wait(self._inner.status()).recovery
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            async def there() -> Any:
                result = found(*map(_bare, arguments), **named)
                if inspect.isawaitable(result):
                    return await result
                if hasattr(result, "__aiter__") and not _is_held(result):
                    return [item async for item in result]
                return result

            return self._dress(self._wait(there()))

        return call

    def _dress(self, found: Any) -> Any:
        if _is_held(found):
            return Awaited(found, self._wait)
        if isinstance(found, list) and found and _is_held(found[0]):
            return [Awaited(message, self._wait) for message in found]
        return found

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                message = self._wait(self._inner.__anext__())
            except StopAsyncIteration:
                return
            yield Awaited(message, self._wait)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._inner.close())


def _is_held(found: Any) -> bool:
    """Whether it is a consumer, or a message that one received."""
    return hasattr(found, "ack")


def _bare(argument: Any) -> Any:
    if isinstance(argument, Awaited):
        return argument._inner
    if isinstance(argument, list):
        return [_bare(one) for one in argument]
    return argument


def error_of(act: Callable[[], Any]) -> str:
    """What is wrong with it, with the name of the error."""
    try:
        result = act()
    except penstock.PenstockError as error:
        return f"{type(error).__name__}: {error}"
    return f"nothing was wrong: {result!r}"
