"""`consume`: how fast messages are received and acked, compared with publishing them."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from penstock.bench.figures import Beside, Figure, Mismatch
from penstock.bench.histogram import Histogram
from penstock.bench.place import Target
from penstock.bench.sending import Extent, Requests, Sender
from penstock.bench.topics import GROUP, check_acked, check_published, new_name, topics
from penstock.client.consumer import AsyncClientConsumer

WAIT_S = 10.0
"""After this time without a message, some are missing."""
_PREPARED_BATCH, _PREPARED_WINDOW = 1000, 8


@dataclass(frozen=True, slots=True)
class Consuming:
    """What to consume, and how."""

    batch: int = 1000
    window: int = 4
    """Batches under way, each received and then acked."""
    size: int = 100
    count: int = 500_000

    @property
    def what(self) -> str:
        """The plan in words."""
        messages = "one message at a time" if self.batch == 1 else f"batches of {self.batch:,}"
        return f"receive + ack, {messages}, {self.window:,} batches under way"


async def consume(target: Target, plan: Consuming) -> Figure:
    """Publish messages, then measure consuming them."""
    topic = new_name()
    async with target.client() as client, topics(target, client, [topic]) as before, target.links(1) as links:
        batch = min(plan.count, _PREPARED_BATCH)
        sender = Sender(links, Requests([topic], batch, plan.size), _PREPARED_WINDOW)
        sent = await sender.run(Extent(math.ceil(plan.count / batch)))
        count = sent.requests * batch
        published = await check_published(client, before, count)
        in_flight = min(1_000_000, (plan.window + 2) * plan.batch)
        async with await client.consumer(topic, GROUP, max_in_flight=in_flight) as consumer:
            received, seconds, histogram = await drain(consumer, plan.batch, count, plan.window)
        verified = await check_acked(client, [topic], received, count)
    rate = count / sent.seconds
    return Figure(
        plan.what,
        count,
        seconds,
        plan.size,
        histogram.latency(),
        "a batch, from asking for it until its ack is durable",
        (published, *verified),
        Beside("publishing the same", rate, sender.histogram.latency(), count / seconds / rate),
    )


async def drain(consumer: AsyncClientConsumer, batch: int, count: int, tasks: int) -> tuple[int, float, Histogram]:
    """Receive and ack everything in some tasks: how many messages came, in what time, and the latency of batches."""
    histogram = Histogram()
    received = acked = 0
    all_acked = asyncio.Event()

    async def work() -> None:
        nonlocal received, acked
        while received < count:
            asked_ns = perf_counter_ns()
            messages = await consumer.receive(batch, wait=WAIT_S)
            if not messages:
                raise Mismatch(f"{received:,} messages came of {count:,}, and then none for {WAIT_S:g} s")
            received += len(messages)
            await consumer.ack(messages)
            histogram.record(perf_counter_ns() - asked_ns)
            acked += len(messages)
            if acked >= count:
                all_acked.set()

    start_ns = perf_counter_ns()
    workers = asyncio.gather(*(work() for _ in range(tasks)))
    end = asyncio.ensure_future(all_acked.wait())
    awaited: list[asyncio.Future[Any]] = [end, workers]
    try:
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        seconds = (perf_counter_ns() - start_ns) / 1e9
        if workers.done():
            workers.result()
    finally:  # tasks that still wait for messages are not needed
        end.cancel()
        workers.cancel()
        await asyncio.gather(end, workers, return_exceptions=True)
    return received, seconds, histogram
