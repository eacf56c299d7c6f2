"""`consume`: how fast messages are received and acked, beside publishing the same."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass
from time import perf_counter_ns

from penstock.bench.figures import Beside, Figure, Mismatch
from penstock.bench.histogram import Histogram
from penstock.bench.place import Target
from penstock.bench.requests import Requests
from penstock.bench.sending import Extent, Sender
from penstock.bench.topics import GROUP, check_acked, check_published, ends_of, new_name, topics
from penstock.client.consumer import AsyncClientConsumer, AsyncReceived

WAIT_S = 10.0
"""After so long without a message, something is missing."""
_PREPARED_BATCH, _PREPARED_WINDOW = 1000, 8


@dataclass(frozen=True, slots=True)
class Consuming:
    """What to consume, and how."""

    batch: int = 1000
    window: int = 4
    """Acks under way."""
    size: int = 100
    count: int = 500_000

    @property
    def what(self) -> str:
        """The plan in words."""
        messages = "one message at a time" if self.batch == 1 else f"batches of {self.batch:,}"
        return f"receive + ack, {messages}, {self.window:,} acks under way"


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
    acks: deque[asyncio.Task[None]] = deque()
    received = 0
    start_ns = perf_counter_ns()
    try:
        while received < count:
            asked_ns = perf_counter_ns()
            messages = await consumer.receive(plan.batch, wait=WAIT_S)
            if not messages:
                raise Mismatch(f"{received:,} messages came of {count:,}, and then none for {WAIT_S:g} s")
            received += len(messages)
            acks.append(asyncio.ensure_future(_ack(consumer, messages, asked_ns, histogram)))
            if len(acks) >= plan.window:
                await acks.popleft()
        while acks:
            await acks.popleft()
    finally:
        for task in acks:
            task.cancel()
        await asyncio.gather(*acks, return_exceptions=True)
    return received, (perf_counter_ns() - start_ns) / 1e9, histogram


async def _ack(
    consumer: AsyncClientConsumer, messages: list[AsyncReceived], asked_ns: int, histogram: Histogram
) -> None:
    await consumer.ack(messages)
    histogram.record(perf_counter_ns() - asked_ns)
