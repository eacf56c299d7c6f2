"""`queues`: publish to and consume from many topics in turn, compared with one topic."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.bench.consuming import drain
from penstock.bench.figures import Beside, Figure
from penstock.bench.histogram import Histogram
from penstock.bench.place import Target
from penstock.bench.sending import Extent, Requests, Sender
from penstock.bench.topics import GROUP, check_acked, check_published, new_name, topics
from penstock.client.client import AsyncClient

_TASKS = 8


@dataclass(frozen=True, slots=True)
class Queues:
    """How many queues, and what goes through them."""

    queues: int = 10_000
    rounds: int = 1
    """How often each queue gets a batch."""
    batch: int = 100
    window: int = 32
    size: int = 100

    @property
    def messages(self) -> int:
        """How many messages in all."""
        return self.queues * self.rounds * self.batch


@dataclass(frozen=True, slots=True)
class _Half:
    """Publishing, or consuming, through some queues."""

    seconds: float
    histogram: Histogram
    verified: tuple[str, ...]


async def queues(target: Target, plan: Queues) -> list[Figure]:
    """Measure it: publishing to all of them, then consuming from all of them, and the same with one alone."""
    async with target.client() as client:
        alone = await _through(target, client, plan, 1)
        many = await _through(target, client, plan, plan.queues)
    names = (f"publish to {plan.queues:,} queues in turn", f"receive + ack from {plan.queues:,} queues in turn")
    latencies = (
        "a request, from when it was sent to its reply",
        "a batch, from asking for it until its ack is durable",
    )
    figures = []
    for name, latency_of, one, all_of_them in zip(names, latencies, alone, many, strict=True):
        beside = Beside(
            "the same with one queue",
            plan.messages / one.seconds,
            one.histogram.latency(),
            one.seconds / all_of_them.seconds,
        )
        figures.append(
            Figure(
                f"{name}, batches of {plan.batch:,}",
                plan.messages,
                all_of_them.seconds,
                plan.size,
                all_of_them.histogram.latency(),
                latency_of,
                all_of_them.verified,
                beside,
            )
        )
    return figures


async def _through(target: Target, client: AsyncClient, plan: Queues, count: int) -> tuple[_Half, _Half]:
    """Publish all messages to so many queues, and consume them."""
    prefix = new_name()
    names = [f"{prefix}-{number}" for number in range(count)]
    async with topics(target, client, names) as before, target.links(1) as links:
        sender = Sender(links, Requests(names, plan.batch, plan.size), plan.window)
        sent = await sender.run(Extent(plan.queues * plan.rounds))
        published = await check_published(client, before, plan.messages)
        in_flight = min(1_000_000, 2 * _TASKS * plan.batch)
        async with await client.consumer(names, GROUP, max_in_flight=in_flight) as consumer:
            received, seconds, histogram = await drain(consumer, plan.batch, plan.messages, _TASKS)
        acked = await check_acked(client, names, received, plan.messages)
    return _Half(sent.seconds, sender.histogram, (published,)), _Half(seconds, histogram, acked)
