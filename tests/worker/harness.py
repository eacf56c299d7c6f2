"""Workers that run in the event loop of a test, on a directory of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import penstock
from penstock.aio import AsyncBroker
from penstock.worker import Worker


def fill(path: Path, topic: str = "t", count: int = 1, **config: Any) -> None:
    """A topic with the messages 0, 1, 2, …"""
    with penstock.open(path) as broker:
        broker.create_topic(topic, **config)
        broker.publish_many(topic, [f"{number}" for number in range(count)])


def group(path: Path, topic: str = "t", name: str = "g") -> penstock.GroupInfo:
    with penstock.open(path) as broker:
        return broker.group(topic, name)


def causes(path: Path, topic: str = "t") -> list[tuple[bytes, str]]:
    """What died, and of what."""
    with penstock.open(path) as broker:
        return [(letter.value, letter.cause) for letter in broker.dead_letters(topic)]


@contextlib.asynccontextmanager
async def at_work(worker: Worker, grace: float = 20.0) -> AsyncIterator[AsyncBroker]:
    """The worker runs inside, and has stopped gracefully after it."""
    started = asyncio.Event()
    worker.on_start(started.set)
    serving = asyncio.create_task(worker.serve(grace=grace))
    starting = asyncio.create_task(started.wait())
    await asyncio.wait([serving, starting], return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        starting.cancel()
        serving.result()
    try:
        yield worker.broker
    finally:
        worker.stop()
        await serving


async def until(happened: Callable[[], object]) -> None:
    """For what a thread does, and what no event tells."""
    while not happened():  # noqa: ASYNC110 - there is none
        await asyncio.sleep(0.005)


def run(main: Coroutine[Any, Any, None]) -> None:
    """A test, which is over after a minute."""
    asyncio.run(asyncio.wait_for(main, 60))
