"""The three faces of a broker behind one: embedded, through a plain client, through an asyncio client."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import penstock
from penstock.client import AsyncClient, Client
from penstock.client.consumer import AsyncClientConsumer, AsyncReceived
from tests.server.harness import PATIENCE_S, Running

FACES = ("embedded", "client", "aio")


@contextlib.contextmanager
def face_of(kind: str, path: Path, **options: Any) -> Iterator[Any]:
    """A broker on a directory, used in plain calls whatever it is."""
    broker_options = {"min_free_bytes": 0, **options.pop("broker", {})}
    if kind == "embedded":
        with penstock.open(path, **broker_options) as broker:
            yield broker
        return
    with Running(path, broker=broker_options, **options) as server:
        if kind == "client":
            with Client(server.address) as client:
                yield client
            return
        with loop_in_thread() as wait:

            async def enter() -> AsyncClient:
                return await AsyncClient(server.address).__aenter__()

            client = wait(enter())
            try:
                yield Awaited(client, wait)
            finally:
                wait(client.close())


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
                if hasattr(result, "__aiter__") and not isinstance(result, AsyncClientConsumer):
                    return [item async for item in result]
                return result

            return self._dress(self._wait(there()))

        return call

    def _dress(self, found: Any) -> Any:
        if isinstance(found, AsyncClientConsumer | AsyncReceived):
            return Awaited(found, self._wait)
        if isinstance(found, list) and found and isinstance(found[0], AsyncReceived):
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
