"""Three brokers on a bucket: how long a shard is away that is moved, or whose broker is killed.

A publisher of each shard is at work all the time, one message after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from math import ceil
from time import perf_counter

import uvloop

from benchmarks.bench import Bench
from benchmarks.bucket import store
from benchmarks.rows import Row, Target, alone
from benchmarks.several import topic_in
from benchmarks.verify import check_count
from penstock.bench.own import OwnServer
from penstock.bench.topics import ends_of
from penstock.client.client import AsyncClient
from penstock.testing.seaweed import BUCKET

BROKERS, SHARDS = 3, 4
_TOPICS = [topic_in(shard, SHARDS) for shard in range(SHARDS)]
_CALM_S = 0.5
_TIMEOUT_S = 120.0


def run(bench: Bench) -> list[Row]:
    with store(bench.place() / "store"), contextlib.ExitStack() as stack:
        cluster = _Cluster(stack)
        moves, kills = uvloop.run(_disturb(cluster, bench.size(20, 1), bench.size(30, 1)))
    kill = f"brokers: kill -9 of one of {BROKERS}, to the first acknowledged publish of a shard that it had"
    p99 = sorted(kills)[ceil(len(kills) * 0.99) - 1]
    return [
        alone(f"{kill}: median", "s", kills, Target("measured", "<", 3.5)),
        Row(f"{kill}: p99 of {len(kills)}", "s", p99, targets=(Target("measured", "<", 5.0),)),
        alone("brokers: a shard is moved, longest time without an ack", "s", moves, Target("measured", "<", 1.0)),
        Row("brokers: the same, the longest of all", "s", max(moves), targets=(Target("measured", "<", 1.0),)),
    ]


class _Cluster:
    """The brokers; what is killed is replaced."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._running = [self._start() for _ in range(BROKERS)]

    def _start(self) -> OwnServer:
        return self._stack.enter_context(OwnServer(f"s3://{BUCKET}/brokers", "--shards", str(SHARDS)))

    @property
    def addresses(self) -> str:
        """Of all of them."""
        return ",".join(server.address for server in self._running)

    def kill(self, pid: int) -> None:
        """End one of them at once."""
        victim = next(server for server in self._running if server.process.pid == pid)
        self._running.remove(victim)
        victim.process.kill()
        victim.process.wait()

    def replace(self) -> None:
        """Start another one."""
        self._running.append(self._start())


class _Publisher:
    """Publishes to a topic, one message after the other, and notes when each was sent, and acknowledged."""

    def __init__(self, client: AsyncClient, topic: str) -> None:
        self._client, self.topic = client, topic
        self.sent_s: list[float] = []
        self.acked_s: list[float] = []
        self._acked = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Publish until it is enough."""
        while not stopping.is_set():
            sent_s = perf_counter()
            await self._client.publish(self.topic, b"one")
            self.sent_s.append(sent_s)
            self.acked_s.append(perf_counter())
            self._acked.set()

    async def first_after(self, moment_s: float) -> float:
        """When the first message was acknowledged that was sent after a moment."""
        while not self.sent_s or self.sent_s[-1] < moment_s:
            self._acked.clear()
            await self._acked.wait()
        return next(acked for sent, acked in zip(self.sent_s, self.acked_s, strict=True) if sent >= moment_s)

    def longest_since(self, moment_s: float) -> float:
        """The longest time between two acknowledgements, of which the second came after a moment."""
        return max(after - before for before, after in pairwise(self.acked_s) if after > moment_s)


@asynccontextmanager
async def _publishing(addresses: str) -> AsyncIterator[list[_Publisher]]:
    """A publisher for each shard, with a client of its own, at work meanwhile; nothing is lost or there twice."""
    stopping = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(addresses, timeout=_TIMEOUT_S)) for _ in _TOPICS]
        publishers = [_Publisher(client, topic) for client, topic in zip(clients, _TOPICS, strict=True)]
        tasks = [asyncio.create_task(publisher.run(stopping)) for publisher in publishers]
        try:
            yield publishers
        finally:
            stopping.set()
            await asyncio.gather(*tasks)
        ends = await ends_of(clients[0], _TOPICS)
        for publisher in publishers:
            check_count(f"messages in {publisher.topic}", ends[publisher.topic], len(publisher.acked_s))


async def _disturb(cluster: _Cluster, moves: int, kills: int) -> tuple[list[float], list[float]]:
    """How long shards were away that were moved, and those of brokers that were killed."""
    logging.getLogger("penstock.client").setLevel(logging.ERROR)  # connections will be lost
    async with AsyncClient(cluster.addresses, timeout=_TIMEOUT_S) as client, _publishing(cluster.addresses) as busy:
        await client.balance_shards()
        moved = [await _move(client, busy, number % SHARDS) for number in range(moves)]
        killed = [away_s for number in range(kills) for away_s in await _kill(cluster, client, busy, number % SHARDS)]
    return moved, killed


async def _move(client: AsyncClient, publishers: Sequence[_Publisher], shard: int) -> float:
    """Move a shard to the next broker; how long its publisher waited."""
    await asyncio.sleep(_CALM_S)
    found = await client.cluster()
    numbers = [process.number for process in found.processes]
    target = numbers[(numbers.index(found.shards[shard].process) + 1) % len(numbers)]
    await publishers[shard].first_after(since_s := perf_counter())
    await client.move_shard(shard, target)
    await publishers[shard].first_after(perf_counter())
    return publishers[shard].longest_since(since_s)


async def _kill(cluster: _Cluster, client: AsyncClient, publishers: Sequence[_Publisher], shard: int) -> list[float]:
    """Kill the broker that has a shard, and replace it; how long all were away that it had."""
    found = await client.cluster()
    victim = next(process for process in found.processes if process.number == found.shards[shard].process)
    await asyncio.sleep(_CALM_S)
    since_s = perf_counter()
    cluster.kill(victim.pid)
    away = await asyncio.gather(*(publishers[each].first_after(since_s) for each in victim.shards))
    await asyncio.to_thread(cluster.replace)
    await client.balance_shards()
    return [until_s - since_s for until_s in away]
