"""A server of several processes, and load for it: some topics at once, each reached at the process that has it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchmarks.processor import family_processor_s
from benchmarks.verify import check_count
from penstock.bench.consuming import drain
from penstock.bench.own import OwnServer
from penstock.bench.sending import Extent, Requests, Sender
from penstock.bench.topics import GROUP, check_acked, ends_of
from penstock.client.client import AsyncClient
from penstock.client.link import Link
from penstock.model.placement import shard_of

_TIMEOUT_S = 30.0
_SIZE = 100
_Done = TypeVar("_Done")


class Work(NamedTuple):
    """What was done, and what the server took for it."""

    messages: int
    seconds: float
    processor_s: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def cost_s(self) -> float:
        """The processor time of a message."""
        return self.processor_s / self.messages


def server_of(directory: Path, shards: int, processes: int, *, http: bool = False, **broker: Any) -> OwnServer:
    """A server, with options of the broker inside."""
    directory.mkdir(exist_ok=True)
    config = directory / "penstock.yaml"
    config.write_text(json.dumps({"broker": broker}))
    options = ("--shards", str(shards), "--processes", str(processes), "--config", str(config))
    return OwnServer(directory / "data", *options, http=http)


def topic_in(shard: int, shards: int, name: str = "topic") -> str:
    """A topic that lives in a shard."""
    return next(found for number in range(100 * shards) if shard_of(found := f"{name}-{number}", shards) == shard)


async def publish(
    server: OwnServer, topics: Sequence[str], extent: Extent, *, batch: int, connections: int, window: int = 1
) -> Work:
    """Publish to all topics, each over so many connections, with so many requests under way on each of them."""
    async with AsyncClient(server.address) as client, contextlib.AsyncExitStack() as stack:
        before = await ends_of(client, topics)
        senders = [
            Sender(
                await stack.enter_async_context(_links_to(server.address, topic, connections)),
                Requests([topic], batch, _SIZE),
                window,
            )
            for topic in topics
        ]
        sent, processor_s = await _counted(server, asyncio.gather(*(sender.run(extent) for sender in senders)))
        after = await ends_of(client, topics)
        for topic, one in zip(topics, sent, strict=True):
            check_count(f"messages of {topic}", after[topic] - before.get(topic, 0), one.requests * batch)
    return Work(sum(one.requests for one in sent) * batch, max(one.seconds for one in sent), processor_s)


async def consume(server: OwnServer, topics: Sequence[str], count: int, *, batch: int, window: int) -> Work:
    """Receive and ack so many messages of each topic, which has no more, with a client for each."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(server.address)) for _ in topics]
        for client, topic in zip(clients, topics, strict=True):
            await client.create_group(topic, GROUP)

        async def work(client: AsyncClient, topic: str) -> float:
            async with await client.consumer(topic, GROUP, max_in_flight=(window + 2) * batch) as consumer:
                received, seconds, _ = await drain(consumer, batch, count, window)
            await check_acked(client, [topic], received, count)
            return seconds

        seconds, processor_s = await _counted(server, asyncio.gather(*map(work, clients, topics)))
    return Work(count * len(topics), max(seconds), processor_s)


async def _counted(server: OwnServer, work: Awaitable[_Done]) -> tuple[_Done, float]:
    """What comes of some work, and the processor time that the server took meanwhile."""
    before_s = family_processor_s(server.process.pid)
    done = await work
    return done, family_processor_s(server.process.pid) - before_s


@contextlib.asynccontextmanager
async def _links_to(address: str, topic: str, count: int) -> AsyncIterator[list[Link]]:
    """Connections to the process that has a topic."""
    async with AsyncClient(address) as client:
        await client.links.ready(topic, _TIMEOUT_S)
        owner = client.links.link_to_topic(topic)
        assert owner is not None
        links = [Link(owner.address, None, _TIMEOUT_S) for _ in range(count)]
    try:
        for link in links:
            await link.open()
        yield links
    finally:
        for link in links:
            await link.close()
