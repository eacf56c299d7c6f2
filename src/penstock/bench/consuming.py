"""`consume`: how fast messages are received and acked, beside publishing the same."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from time import perf_counter_ns

from penstock.bench.figures import Beside, Figure, Mismatch
from penstock.bench.histogram import Histogram
from penstock.bench.place import Target
from penstock.bench.requests import Requests
from penstock.bench.sending import Extent, Sender
from penstock.bench.topics import GROUP, check_acked, check_published, ends_of, new_name, topics
from penstock.client.consumer import AsyncClientConsumer

WAIT_S = 10.0
"""After so long without a message, something is missing."""
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
    """Publish what there is to consume, then measure."""
    topic = new_name()
    async with target.client() as client, topics(target, client, [topic]), target.links(1) as links:
        before = await ends_of(client, [topic])
        batch = min(plan.count, _PREPARED_BATCH)
        sender = Sender(links, Requests([topic], batch, plan.size), _PREPARED_WINDOW)
        sent = await sender.run(Extent(math.ceil(plan.count / batch)))
        count = sent.requests * batch
        published = await check_published(client, before, count)
        in_flight = min(1_000_000, (plan.window + 2) * plan.batch)
        async with await client.consumer(topic, GROUP, max_in_flight=in_flight) as consumer:
            received, seconds, histogram = await _drain(consumer, plan, count)
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


async def _drain(consumer: AsyncClientConsumer, plan: Consuming, count: int) -> tuple[int, float, Histogram]:
    """Receive and ack everything: how many came, in how many seconds, and how long batches took."""
    histogram = Histogram()
    received = acked = 0
    finished = asyncio.get_running_loop().create_future()

    async def work() -> None:
        nonlocal received, acked
        while received < count:
            asked_ns = perf_counter_ns()
            messages = await consumer.receive(plan.batch, wait=WAIT_S)
            if not messages:
                raise Mismatch(f"{received:,} messages came of {count:,}, and then none for {WAIT_S:g} s")
            received += len(messages)
            await consumer.ack(messages)
            histogram.record(perf_counter_ns() - asked_ns)
            acked += len(messages)
            if acked >= count and not finished.done():
                finished.set_result(None)

    start_ns = perf_counter_ns()
    tasks = [asyncio.ensure_future(work()) for _ in range(plan.window)]
    try:
        while not finished.done():
            await asyncio.wait([finished, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in tasks if task.done()]:
                tasks.remove(task)
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return received, (perf_counter_ns() - start_ns) / 1e9, histogram
