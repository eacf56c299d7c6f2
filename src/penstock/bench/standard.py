"""The standard figures: what `penstock bench all` and the benchmarks of the project measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from penstock.bench.consuming import Consuming, consume
from penstock.bench.figures import Figure
from penstock.bench.latency import Schedule, latency
from penstock.bench.place import Measure, Result, Target
from penstock.bench.publishing import Publishing, publish
from penstock.bench.sending import Extent, Requests, Sender
from penstock.bench.topics import GROUP, new_name, topics


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work each figure does."""

    seconds: float
    count: int
    """Messages to consume: few enough that they are still in the journal, where consumers that keep up find them."""


FULL = Effort(3.0, 500_000)
QUICK = Effort(0.3, 50_000)


@dataclass(frozen=True, slots=True)
class Standard:
    """A standard figure."""

    name: str
    what: str
    measure: Callable[[Effort], Measure[Figure]]
    """The figure, with so much effort."""


def warm(measure: Measure[Result]) -> Measure[Result]:
    """The same figure on a server that is warm: it has done a little of everything before."""

    async def run(target: Target) -> Result:
        await _warm_up(target)
        return await measure(target)

    return run


async def _warm_up(target: Target) -> None:
    topic = new_name()
    async with target.client() as client, topics(target, client, [topic]), target.links(1) as links:
        for batch, window in ((100, 8), (1, 16)):
            await Sender(links, Requests([topic], batch, 100), window).run(Extent(50))
        async with await client.consumer(topic, GROUP, max_in_flight=100_000) as consumer:
            while messages := await consumer.receive(1000):
                await consumer.ack(messages)
        if target.ours:
            await client.settle()  # so that it has loaded what it needs for that


def _publishing(name: str, what: str, batch: int, connections: int, window: int) -> Standard:
    def measure(effort: Effort) -> Measure[Figure]:
        plan = Publishing(batch=batch, connections=connections, window=window, seconds=effort.seconds)
        return partial(publish, plan=plan)

    return Standard(name, what, measure)


def _consuming(effort: Effort) -> Measure[Figure]:
    return partial(consume, plan=Consuming(batch=1000, count=effort.count))


def _latency(effort: Effort) -> Measure[Figure]:
    return partial(latency, plan=Schedule(rate=50_000, batch=10, seconds=effort.seconds))


STANDARD = (
    _publishing("batches-1000", "publish, batches of 1,000, 8 under way", 1000, 1, 8),
    _publishing("batches-100", "publish, batches of 100, 32 under way", 100, 1, 32),
    _publishing("connections-64", "publish, one message a request, 64 connections", 1, 64, 1),
    _publishing("window-256", "publish, one message a request, one connection, 256 under way", 1, 1, 256),
    _publishing("alone", "publish, one message at a time, one connection", 1, 1, 1),
    Standard("consume", "receive + ack, batches of 1,000", _consuming),
    Standard("latency", "end to end at 50,000/s, batches of 10", _latency),
)
