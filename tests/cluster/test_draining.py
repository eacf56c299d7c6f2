"""A planned move waits until what consumers hold is finished: then nothing comes twice, and nobody is refused."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import AsyncClient
from tests.cluster.several import Several, several
from tests.server.harness import soon

SHARDS = 4
_PATIENT_S = 30.0  # of a drain: it ends as soon as nothing is leased


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 90))


async def wander(servers: Several, moves: int) -> None:
    """Move shards to and fro, each as soon as it is drained."""
    chance = random.Random(3)
    for _ in range(moves):
        shard = chance.randrange(SHARDS)
        await servers.move(shard, 1 - servers.map.shards[shard].process, drain_s=_PATIENT_S)
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("together", [False, True])
def test_C18_where_nothing_is_held_when_a_shard_moves_nothing_comes_twice(together: bool, tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data", SHARDS) as servers, AsyncClient(servers.address) as client:
            topics = [servers.topic_in(shard) for shard in range(SHARDS)]
            stopping = asyncio.Event()
            published: set[penstock.MessageId] = set()
            came: Counter[penstock.MessageId] = Counter()
            again: Counter[int] = Counter()

            async def publish(topic: str) -> None:
                while not stopping.is_set():
                    published.update(await client.publish_many(topic, ["x"] * 10))
                    await asyncio.sleep(0.002)

            async def consume(topics: list[str]) -> None:
                async with await client.consumer(topics, "g", visibility_timeout=600) as consumer:
                    while not stopping.is_set() or len(came) < len(published):
                        messages = await consumer.receive(20, wait=0.2)
                        came.update(message.id for message in messages)
                        again.update(message.deliveries for message in messages)
                        await asyncio.sleep(0.005)  # it is at work, so that moves have something to wait for
                        await consumer.ack(messages)  # raises what was lost

            groups = [topics, topics[::-1]] if together else [[topic] for topic in topics for _ in range(2)]
            async with asyncio.TaskGroup() as tasks:
                for topic in topics:
                    tasks.create_task(publish(topic))
                for some in groups:
                    tasks.create_task(consume(some))
                try:
                    await wander(servers, 20)
                finally:
                    stopping.set()
            assert came == dict.fromkeys(published, 1)
            assert together or set(again) == {1}, "nor was anything taken back on its way"
            for topic in topics:
                group = await client.group(topic, "g")
                assert (group.acked, group.lag) == (group.published, 0)

    run(work())


def test_C18_a_move_begins_when_the_last_message_is_finished(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data", SHARDS) as servers, AsyncClient(servers.address) as client:
            topic = servers.topic_of(0)
            await client.publish_many(topic, ["a", "b", "c"])
            async with await client.consumer(topic, "g") as consumer:
                first, second = await consumer.receive(2)
                shard = servers.servers[0].broker.shards.of(topic)
                moving = asyncio.create_task(servers.move(servers.map.shard_of(topic), 1, drain_s=_PATIENT_S))
                await soon(lambda: not shard.dispatcher.lease_book.is_open, "it is being drained")
                assert await consumer.receive(10) == [], "nothing more is handed out"
                identity = await client.publish(topic, "d")
                await first.ack()
                assert not moving.done()
                await second.ack()
                await moving
                left = await consumer.receive(10, wait=10)
                assert [(message.value, message.deliveries) for message in left] == [(b"c", 1), (b"d", 1)]
                assert left[-1].id == identity

    run(work())
