"""What concerns all topics is answered for all processes, whichever is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.client import AsyncClient
from penstock.model.errors import ScheduleNotFound
from tests.cluster.several import Several, several

SHARDS = 4


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


async def _clients(servers: Several) -> list[AsyncClient]:
    """A client of each process, which asks it for all that no topic routes."""
    return [AsyncClient(servers.own_address(number)) for number in range(len(servers.servers))]


def test_lists_and_sums_are_the_same_whichever_process_is_asked(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers:
            topics = sorted(servers.topic_in(shard) for shard in range(SHARDS))
            for client in await _clients(servers):
                async with client:
                    for topic in topics:
                        await client.publish(topic, "x")
                        await client.checkpoint_group(topic, "reader", {0: 1})
                    assert [topic.name for topic in await client.topics()] == topics
                    assert [group.topic for group in await client.groups()] == topics
                    status = await client.status()
                    assert (status.topics, status.groups) == (SHARDS, SHARDS)
                    assert [message.value async for message in client.read(topics[0])]
                    await client.settle()
                    assert await client.retain() == 0

    run(work())


def test_schedules_are_found_changed_and_moved_over_processes(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers:
            clients = await _clients(servers)
            async with clients[0] as first, clients[1] as second:
                for owner in (0, 1, 0):
                    topic = servers.topic_of(owner)
                    await first.schedule("tick", "0 0 * * *", topic, "x")
                    for client in (first, second):
                        assert [(each.name, each.topic) for each in await client.schedules()] == [("tick", topic)]
                assert (await second.pause_schedule("tick")).paused
                await second.remove_schedule("tick")
                assert await first.schedules() == []
                with pytest.raises(ScheduleNotFound):
                    await first.remove_schedule("tick")

    run(work())


def test_S5_stages_are_published_once_over_processes(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers, AsyncClient(servers.address) as client:
            topics = [servers.topic_in(shard) for shard in range(SHARDS)]
            for topic in topics:
                assert await client.stage_many("s", topic, ["a", "b"]) == 2
            assert await client.seal_stage("s") == 2 * SHARDS
            assert await client.publish_staged(["s"], producer="query", sequence=1) == 2 * SHARDS
            assert await client.publish_staged(["s"], producer="query", sequence=1) == 2 * SHARDS
            assert await client.staged_sequence("query") == 1
            for topic in topics:
                assert len([message async for message in client.read(topic, 0)]) == 2

    run(work())


def test_S5_a_shard_that_is_on_its_way_is_waited_for_by_whoever_publishes_stages_or_lists(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers:
            topics = sorted(servers.topic_in(shard) for shard in range(SHARDS))
            moving = servers.map.shard_of(topics[0])
            origin = servers.map.shards[moving].process
            for sequence, client in enumerate(await _clients(servers)):
                async with client:
                    for topic in topics:
                        await client.publish(topic, "already there")
                        await client.stage_many(f"s{sequence}", topic, ["a", "b"])
                    await client.seal_stage(f"s{sequence}")
                    await servers.servers[origin].release_shard(moving, 0)  # and no map says so
                    published = asyncio.create_task(
                        client.publish_staged([f"s{sequence}"], producer="query", sequence=sequence)
                    )
                    listed = asyncio.create_task(client.topics())
                    await asyncio.wait([published, listed], timeout=0.5)
                    assert not published.done() and not listed.done()
                    origin = 1 - origin
                    await servers.take(moving, origin)
                    servers.tell()
                    assert await published == 2 * SHARDS
                    assert [topic.name for topic in await listed] == topics
                    for topic in topics:
                        assert len([message async for message in client.read(topic, 0)]) == 3 * (sequence + 1)

    run(work())


def test_a_process_without_shards_answers_for_all(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers:
            for shard in range(SHARDS):
                if servers.map.shards[shard].process == 0:
                    await servers.move(shard, 1)
            async with AsyncClient(servers.own_address(0)) as client:
                await client.publish("t", "x")
                assert [topic.name for topic in await client.topics()] == ["t"]
                assert (await client.status()).topics == 1

    run(work())
