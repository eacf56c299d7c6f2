"""Ways to consume: batch by batch, or message by message from many tasks; each checks what it received."""

from __future__ import annotations

import asyncio
from time import perf_counter

from benchmarks.load import BATCH
from benchmarks.verify import Wrong, check_count
from penstock import Broker
from penstock.aio import AsyncBroker
from penstock.aio.consumer import AsyncConsumer


def drain(broker: Broker, topic: str, group: str, count: int, size: int = BATCH) -> float:
    """Receive and ack everything in batches; the seconds of all."""
    found = 0
    with broker.consumer(topic, group) as consumer:
        start = perf_counter()
        while found < count:
            messages = consumer.receive(size, wait=5)
            if not messages:
                raise Wrong(f"{topic}: {found:,} messages came instead of {count:,}")
            consumer.ack(messages)
            found += len(messages)
        seconds = perf_counter() - start
    check_drained(broker, topic, group, count)
    return seconds


def drain_by_tasks(broker: Broker, topic: str, group: str, count: int, tasks: int) -> float:
    """Receive and ack single messages from many tasks that share a consumer; the seconds of all."""

    async def main() -> float:
        face = await AsyncBroker(lambda: broker).__aenter__()
        async with await face.consumer(topic, group) as consumer:
            left = [count]
            start = perf_counter()
            await asyncio.gather(*(_work(consumer, left) for _ in range(tasks)))
            return perf_counter() - start

    seconds = asyncio.run(main())
    check_drained(broker, topic, group, count)
    return seconds


async def _work(consumer: AsyncConsumer, left: list[int]) -> None:
    while left[0] > 0:
        left[0] -= 1
        message = await anext(consumer)
        await message.ack()


def check_drained(broker: Broker, topic: str, group: str, count: int) -> None:
    """Raise unless the group has acked exactly this many, each once, and nothing is left."""
    info = broker.group(topic, group)
    check_count(f"messages acked by {group}", info.acked, count)
    check_count(f"messages left to {group}", info.lag, 0)
