"""A client follows shards from owner to owner: nothing is lost, nothing is there twice, and order stays."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock.aio
from penstock.client import AsyncClient, Client
from penstock.client.merged import MergedConsumer
from penstock.model.errors import LeaseLost
from tests.cluster.several import Several, several
from tests.server.harness import soon

SHARDS = 4


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


async def wander(servers: Several, moves: int, seed: int = 7) -> None:
    """Move shards to and fro, one after the other."""
    chance = random.Random(seed)
    for _ in range(moves):
        shard = chance.randrange(SHARDS)
        await servers.move(shard, 1 - servers.map.shards[shard].process, drain_s=0.01)
        await asyncio.sleep(0.01)


def test_a_client_finds_topics_wherever_they_are(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers, AsyncClient(servers.address) as client:
            for shard in range(SHARDS):
                topic = servers.topic_in(shard)
                assert await client.publish(topic, "two coffees") == penstock.MessageId(topic, 0, 0)
                assert [message.value async for message in client.read(topic, 0)] == [b"two coffees"]
                assert (await client.create_group(topic, "g")).lag == 1

    run(work())


def test_C12_C13_what_is_published_while_shards_move_is_there_once_in_order(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers, AsyncClient(servers.address, batch_size=20) as client:
            topics = [servers.topic_in(shard) for shard in range(SHARDS)]
            stopping = asyncio.Event()
            ids: dict[str, penstock.MessageId] = {}

            async def singly(topic: str) -> None:
                number = 0
                while not stopping.is_set():
                    ids[f"{topic} a {number}"] = await client.publish(topic, f"{topic} a {number}")
                    number += 1

            async def soon_(topic: str) -> None:
                reports = {}
                number = 0
                while not stopping.is_set():
                    reports[f"{topic} b {number}"] = await client.publish_soon(topic, f"{topic} b {number}")
                    number += 1
                    if number % 50 == 0:
                        await client.flush()
                await client.flush()
                for value, report in reports.items():
                    ids[value] = report.result()

            async def in_batches(topic: str) -> None:
                number = 0
                while not stopping.is_set():
                    values = [f"{topic} c {number + n}" for n in range(10)]
                    ids.update(zip(values, await client.publish_many(topic, values), strict=True))
                    number += 10

            tasks = [asyncio.create_task(act(topic)) for topic in topics for act in (singly, soon_, in_batches)]
            await wander(servers, 30)
            stopping.set()
            await asyncio.gather(*tasks)
            for topic in topics:
                stored = [message async for message in client.read(topic, 0)]
                values = {message.value.decode(): message.id for message in stored}
                assert max(Counter(message.value for message in stored).values()) == 1
                assert values == {value: identity for value, identity in ids.items() if identity.topic == topic}
                for kind in "abc":
                    own = [int(value.split()[2]) for value in values if value.split()[1] == kind]
                    assert own == sorted(own), "in the order in which they were published"

    run(work())


def test_a_plain_client_follows_too(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers:
            topics = [servers.topic_in(shard) for shard in range(SHARDS)]
            moving = asyncio.create_task(wander(servers, 20))

            def publish() -> dict[str, penstock.MessageId]:
                with Client(servers.address) as client:
                    found = {}
                    number = 0
                    while not moving.done() or number < 200:
                        topic = topics[number % SHARDS]
                        found[f"{number}"] = client.publish(topic, f"{number}")
                        number += 1
                    for topic in topics:
                        stored = [message.value.decode() for message in client.read(topic, 0)]
                        assert stored == [value for value, identity in found.items() if identity.topic == topic]
                    return found

            assert len(await asyncio.to_thread(publish)) >= 200
            await moving

    run(work())


async def _consume_all(client: AsyncClient, topics: list[str], expected: int, *, by_loop: bool) -> Counter[bytes]:
    """Receive and ack until everything was acked once; how often each came."""
    came: Counter[bytes] = Counter()
    acked: set[penstock.MessageId] = set()
    async with await client.consumer(topics, "g", max_in_flight=50, visibility_timeout=30) as consumer:

        async def settle(messages: list[Any]) -> None:
            for message in messages:
                assert message.id not in acked, f"{message.id} was acked, and came again"
                came[message.value] += 1
            lost: set[object] = set()
            try:
                await consumer.ack(messages)
            except LeaseLost as error:
                lost = set(error.ids)
            acked.update(message.id for message in messages if message.id not in lost)

        while len(acked) < expected:
            if by_loop:
                await settle([await anext(consumer)])
            else:
                await settle(await consumer.receive(20, wait=1))
    return came


@pytest.mark.parametrize("by_loop", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_C10_Q2_consumers_follow_and_what_was_acked_never_comes_again(
    by_loop: bool, together: bool, tmp_path: Path
) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers, AsyncClient(servers.address) as client:
            topics = [servers.topic_in(shard) for shard in range(SHARDS)]
            for topic in topics:
                await client.publish_many(topic, [f"{topic} {n}" for n in range(300)])
            moving = asyncio.create_task(wander(servers, 15))
            groups = [topics] if together else [[topic] for topic in topics]
            consuming = [_consume_all(client, some, 300 * len(some), by_loop=by_loop) for some in groups]
            came: Counter[bytes] = sum(await asyncio.gather(*consuming), Counter())
            await moving
            assert len(came) == 300 * SHARDS
            for topic in topics:
                assert (await client.group(topic, "g")).lag == 0

    run(work())


def test_one_window_counts_for_all_shards(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers, AsyncClient(servers.address) as client:
            topics = [servers.topic_in(shard) for shard in range(SHARDS)]
            for topic in topics:
                await client.publish_many(topic, ["x"] * 10)
            async with await client.consumer(topics, "g", max_in_flight=6) as consumer:
                assert isinstance(consumer.remote, MergedConsumer)
                held = await consumer.receive(100)
                assert len(held) == 6
                assert await consumer.receive(100) == []
                await consumer.ack(held[:2])
                more = await consumer.receive(100)
                assert len(more) == 2
                waiting = asyncio.create_task(consumer.receive(100, wait=20))
                await asyncio.sleep(0)
                await more[0].ack()
                assert len(await waiting) == 1

    run(work())


def test_C18_a_planned_move_repeats_only_what_is_leased_after_the_drain(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers, AsyncClient(servers.address) as client:
            topic = servers.topic_of(0)
            await client.publish_many(topic, ["kept", "finished"])
            async with await client.consumer(topic, "g", visibility_timeout=60) as consumer:
                kept, finished = await consumer.receive(2)
                moving = asyncio.create_task(servers.move(servers.map.shard_of(topic), 1, drain_s=0.2))
                await asyncio.sleep(0.05)
                await finished.ack()
                await moving
                again = await consumer.receive(10, wait=5)
                assert [(message.value, message.deliveries) for message in again] == [(b"kept", 2)]
                with pytest.raises(LeaseLost):
                    await kept.ack()
                await again[0].ack()

    run(work())


def test_a_receive_that_waits_goes_on_at_the_next_owner(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers, AsyncClient(servers.address) as client:
            topic = servers.topic_of(0)
            async with await client.consumer(topic, "g") as consumer:
                waiting = asyncio.create_task(consumer.receive(1, wait=20))
                await soon(servers.servers[0].broker.shards.of(topic).dispatcher.in_use.all, "it waits")
                await servers.move(servers.map.shard_of(topic), 1)
                await client.publish(topic, "two coffees")
                assert [message.value for message in await waiting] == [b"two coffees"]

    run(work())


def test_requests_wait_while_a_shard_is_on_its_way(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers, AsyncClient(servers.address) as client:
            topic = servers.topic_of(0)
            shard = servers.map.shard_of(topic)
            await client.publish(topic, "0")
            await servers.servers[0].release_shard(shard, 0)
            publishing = [asyncio.create_task(client.publish(topic, f"{n}")) for n in range(1, 50)]
            making = asyncio.create_task(client.create_group(topic, "g"))
            await asyncio.sleep(0.2)
            assert not any(task.done() for task in (*publishing, making))
            await servers.take(shard, 1)
            servers.tell()
            ids = [await task for task in publishing]
            assert [identity.offset for identity in ids] == list(range(1, 50))
            assert (await making).lag == 50

    run(work())


def test_clients_go_on_at_the_next_owner_when_the_last_one_answers_no_more(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers, AsyncClient(servers.address) as client:
            topic = servers.topic_of(1)
            link = client.links.link_to_topic(topic)
            assert link is not None
            async with await client.consumer(topic, "g") as consumer:
                await servers.servers[1].stop()
                await soon(lambda: not link.connected, "the connection is lost")
                receiving = asyncio.create_task(consumer.receive(10, wait=10))
                publishing = asyncio.create_task(client.publish_many(topic, ["two coffees"]))
                await asyncio.sleep(0.05)  # by now both wait for the old owner
                await servers.give_all(1, 0)
                async with asyncio.timeout(20):  # before anybody gives up
                    await publishing
                    assert [message.value for message in await receiving] == [b"two coffees"]

    run(work())
