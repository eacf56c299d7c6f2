"""`latency`: from the time a message is due to the time it is received, at a fixed rate; no coordinated omission.

The schedule does not wait for the server. If a server stalls for a second, every message of that second is late, even
those that could not be sent: each is measured from the time at which it was due.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass
from time import perf_counter_ns

from penstock.bench.bare import WHAT
from penstock.bench.consuming import WAIT_S
from penstock.bench.figures import Beside, Figure, Mismatch
from penstock.bench.histogram import Histogram
from penstock.bench.place import Target
from penstock.bench.sending import STAMP_BYTES, Extent, Sender, StampedRequests, stamp_of
from penstock.bench.topics import GROUP, check_acked, check_published, new_name, topics
from penstock.client.consumer import AsyncClientConsumer, AsyncReceived

_RECEIVED_MAX = 1000
_IN_FLIGHT_MAX = 100_000
_BARE_S = 0.5


@dataclass(frozen=True, slots=True)
class Schedule:
    """The messages to send, and when."""

    rate: float = 50_000.0
    """Messages a second."""
    batch: int = 10
    """Messages a request, all due at the same moment."""
    connections: int = 1
    window: int = 64
    """Requests under way on a connection; further ones wait, which adds to their latency."""
    size: int = 100
    seconds: float = 5.0

    @property
    def what(self) -> str:
        """The plan in words."""
        messages = "one message a request" if self.batch == 1 else f"batches of {self.batch:,}"
        return f"end to end at {self.rate:,.0f}/s, {messages}"

    @property
    def requests(self) -> int:
        """How many requests it has."""
        return max(1, math.ceil(self.seconds * self.rate / self.batch))


async def latency(target: Target, plan: Schedule) -> Figure:
    """Measure it, with publishers and the consumer on separate connections."""
    topic = new_name()
    expected = plan.requests * plan.batch
    requests = StampedRequests(topic, plan.batch, max(plan.size, STAMP_BYTES))
    async with (
        target.client() as client,
        topics(target, client, [topic]) as before,
        target.links(plan.connections) as links,
    ):
        sender = Sender(links, requests, plan.window)
        async with await client.consumer(topic, GROUP, max_in_flight=_IN_FLIGHT_MAX) as consumer:
            wait_s = WAIT_S + 2 * plan.batch / plan.rate
            start_ns = perf_counter_ns()
            to_ack: asyncio.Queue[list[AsyncReceived]] = asyncio.Queue()
            receiving = asyncio.ensure_future(_receive(consumer, expected, wait_s, to_ack))
            acking = asyncio.ensure_future(_ack(consumer, expected, to_ack))
            sending = asyncio.ensure_future(sender.run(Extent(plan.requests), plan.rate / plan.batch))
            working = (receiving, acking, sending)
            try:
                histogram, received, _ = await asyncio.gather(*working)
            finally:
                for task in working:
                    task.cancel()
                await asyncio.gather(*working, return_exceptions=True)
            seconds = (perf_counter_ns() - start_ns) / 1e9
        published = await check_published(client, before, expected)
        verified = await check_acked(client, [topic], received, expected)
        trips = target.bare.trips(sender.request_bytes, sender.reply_bytes)
        trips.run(min(plan.seconds, _BARE_S))
        trips.close()
    found, bare = histogram.latency(), trips.histogram.latency()
    return Figure(
        plan.what,
        expected,
        seconds,
        requests.size,
        found,
        "a message, from when it was due to be sent until it was received",
        (published, *verified),
        Beside(WHAT, trips.per_second * plan.batch, bare, found.p50_s / bare.p50_s, of_times=True),
    )


async def _receive(
    consumer: AsyncClientConsumer, expected: int, wait_s: float, to_ack: asyncio.Queue[list[AsyncReceived]]
) -> Histogram:
    """Receive until all messages have come; their latencies."""
    histogram = Histogram()
    received = 0
    while received < expected:
        messages = await consumer.receive(_RECEIVED_MAX, wait=wait_s)
        now_ns = perf_counter_ns()
        if not messages:
            raise Mismatch(f"{received:,} messages came of {expected:,}, and then none for {wait_s:g} s")
        for stamp, count in Counter([message.value[:STAMP_BYTES] for message in messages]).items():
            histogram.record(now_ns - stamp_of(stamp), count)
        received += len(messages)
        to_ack.put_nowait(messages)
    return histogram


async def _ack(consumer: AsyncClientConsumer, expected: int, to_ack: asyncio.Queue[list[AsyncReceived]]) -> int:
    """Ack all messages; those received while an ack is under way go with the next. How many were acked."""
    acked = 0
    while acked < expected:
        messages = await to_ack.get()
        while not to_ack.empty():
            messages += to_ack.get_nowait()
        await consumer.ack(messages)
        acked += len(messages)
    return acked
