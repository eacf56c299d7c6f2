"""Dead letters that go to a topic of another process: each once, whatever moves or is killed meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import AsyncClient
from penstock.model.errors import ConnectionLost
from penstock.model.placement import shard_of
from tests.cluster.doors import opened
from tests.cluster.several import several
from tests.cluster.test_following import wander
from tests.crash.workload import whole
from tests.server.harness import Child

SHARDS = 4


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 90))


async def let_die(client: AsyncClient, topic: str, count: int) -> list[bytes]:
    """Publish so many messages that are dead letters then; what they say."""
    values = [f"{n}" for n in range(count)]
    await client.publish_many(topic, [penstock.Message(value, key="k", headers={"h": "1"}) for value in values])
    async with await client.consumer(topic, "g", max_in_flight=count) as consumer:
        await consumer.kill(await consumer.receive(count), "never")
    return [value.encode() for value in values]


async def read(client: AsyncClient, topic: str) -> list[penstock.StoredMessage]:
    return [message async for message in client.read(topic, 0)]


async def redrive_all(client: AsyncClient, topic: str, to: str) -> None:
    """Send all dead letters to another topic, again until none is left."""
    while await client.dead_letters(topic, limit=1):
        with suppress(ConnectionLost, penstock.BrokerClosed):
            await client.redrive(topic, to=to)


def test_Q8_letters_go_to_a_topic_of_another_process_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data", SHARDS) as servers, AsyncClient(servers.address) as client:
            topic, to = servers.topic_of(0), servers.topic_of(1, "rescued")
            values = await let_die(client, topic, 5)
            for copied in (5, 0):
                report = await client.redrive(topic, to=to)
                assert (report.selected, report.copied, report.redriven, report.skipped) == (copied, copied, 0, 0)
            assert await client.dead_letters(topic) == []
            copies = await read(client, to)
            assert [copy.value for copy in copies] == values
            assert {(copy.key, (copy.headers or {})["penstock-origin"][:-1]) for copy in copies} == {
                (b"k", f"{topic}/0/")
            }
            trace = await client.trace(f"{topic}/0/0")
            assert any(str(copies[0].id) in (line.cause or "") for line in trace.lines)
            assert await client.publish(topic, "x") == penstock.MessageId(topic, 0, 5), "its shard is where it was"

    run(work())


@pytest.mark.parametrize("number", [0, 1])
def test_any_process_sends_letters_anywhere_by_http(number: int, tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            opened(tmp_path / "data") as (servers, doors),
            AsyncClient(servers.address) as client,
        ):
            topic, to = servers.topic_of(0), servers.topic_of(1, "rescued")
            values = await let_die(client, topic, 3)
            path = f"/v1/topics/{topic}/dead-letters/redrive"
            status, report = await doors[number].ask("POST", path, {"to": to}, **{"content-type": "application/json"})
            assert (status, report["copied"]) == (200, 3)
            assert [copy.value for copy in await read(client, to)] == values

    run(work())


def test_Q8_letters_go_to_another_process_once_while_both_shards_move(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data", SHARDS) as servers, AsyncClient(servers.address) as client:
            topics = [servers.topic_in(shard) for shard in range(SHARDS)]
            for topic in topics:
                await let_die(client, topic, 300)
            moving = asyncio.create_task(wander(servers, 20))
            to = [f"rescued-{topic}" for topic in topics]
            await asyncio.gather(*(redrive_all(client, *pair) for pair in zip(topics, to, strict=True)))
            await moving
            for name in to:
                assert Counter(copy.value for copy in await read(client, name)) == {b"%d" % n: 1 for n in range(300)}

    run(work())


@pytest.mark.crash
def test_Q8_letters_go_to_another_process_once_while_both_are_killed(tmp_path: Path) -> None:
    chance = random.Random(23)

    async def work() -> None:
        async with AsyncClient(child.address) as client:
            found = await whole(client)
            names = [f"t-{n}" for n in range(100)]
            topic = names[0]
            owner = found.shards[shard_of(topic, SHARDS)].process
            to = next(name for name in names if found.shards[shard_of(name, SHARDS)].process != owner)
            values = await let_die(client, topic, 3000)
            redriving = asyncio.create_task(redrive_all(client, topic, to))
            for turn in range(4):
                await asyncio.sleep(chance.random() / 4)
                os.kill((await whole(client)).processes[turn % 2].pid, signal.SIGKILL)
            await redriving
            assert Counter(copy.value for copy in await read(client, to)) == dict.fromkeys(values, 1)
            group = await client.group(topic, "g")
            assert (group.published, group.dead) == (3000, 3000), "they stay dead there"

    with Child(tmp_path / "data", "--shards", str(SHARDS), "--processes", "2") as child:
        run(work())
