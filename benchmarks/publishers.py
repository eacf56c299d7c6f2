"""Ways to publish: batch by batch, with a window, at a fixed rate, or single messages from many tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import perf_counter

from benchmarks.load import BATCH, batch, value_at
from penstock import Broker, Message
from penstock.aio import AsyncBroker
from penstock.model.errors import Overloaded

WINDOW = 8
_AGAIN_S = 0.01
Batch = Sequence[bytes] | Sequence[Message]


def one_at_a_time(
    broker: Broker, topic: str, numbers: Iterable[int], batch_of: Callable[[int], Batch] = batch
) -> list[float]:
    """Publish each batch when the one before is durable; the seconds of each."""
    seconds = []
    for number in numbers:
        messages = batch_of(number)
        start = perf_counter()
        broker.publish_many(topic, messages)
        seconds.append(perf_counter() - start)
    return seconds


def pipelined(broker: Broker, topics: list[str], numbers: range, size: int = BATCH, window: int = WINDOW) -> float:
    """Publish batches in order, to one topic after the other, so many on the way; the seconds of all."""

    async def publish(face: AsyncBroker, number: int) -> None:
        while True:
            try:
                await face.publish_many(topics[number % len(topics)], batch(number, size))
            except Overloaded:  # settling is behind: as the error says, again later
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    return _with_tasks(broker, publish, numbers, window)


def singles_from_tasks(broker: Broker, topics: list[str], numbers: range, tasks: int) -> float:
    """Publish single messages from many tasks, to one topic after the other; the seconds of all."""

    async def publish(face: AsyncBroker, number: int) -> None:
        await face.publish(topics[number % len(topics)], value_at(number))

    return _with_tasks(broker, publish, numbers, tasks)


def paced(broker: Broker, topic: str, numbers: range, per_second: float) -> tuple[float, list[float]]:
    """Publish batches at a fixed rate, at most a window of them on the way; the seconds of all, and of each.

    After a delay the next ones follow at once, until the rate is made up for.
    """
    seconds: list[float] = []

    async def publish(face: AsyncBroker, number: int, window: asyncio.Semaphore) -> None:
        start = perf_counter()
        await face.publish_many(topic, batch(number))
        seconds.append(perf_counter() - start)
        window.release()

    async def main() -> float:
        face = await _face(broker)
        window = asyncio.Semaphore(WINDOW)
        start = perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for place, number in enumerate(numbers):
                await asyncio.sleep(max(0.0, start + place / per_second - perf_counter()))
                await window.acquire()
                tasks.create_task(publish(face, number, window))
        return perf_counter() - start

    return asyncio.run(main()), seconds


def _with_tasks(
    broker: Broker, publish: Callable[[AsyncBroker, int], Awaitable[None]], numbers: range, tasks: int
) -> float:
    async def main() -> float:
        face = await _face(broker)
        left = iter(numbers)

        async def publisher() -> None:
            for number in left:
                await publish(face, number)

        start = perf_counter()
        await asyncio.gather(*(publisher() for _ in range(tasks)))
        return perf_counter() - start

    return asyncio.run(main())


async def _face(broker: Broker) -> AsyncBroker:
    """The async face of a broker that is open; the broker stays open."""
    return await AsyncBroker(lambda: broker).__aenter__()
