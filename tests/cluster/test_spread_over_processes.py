"""Topics that are spread over shards of several servers: published to, consumed and looked after as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import penstock.aio
from penstock import Message
from penstock.client.client import AsyncClient
from penstock.client.consumer import AsyncReceived
from penstock.model.errors import GroupNotFound, TopicExists, TopicNotFound
from penstock.model.placement import shards_of
from tests.cluster.several import Several, several

SHARDS = 4


@asynccontextmanager
async def spread_topic(path: Path, name: str = "orders") -> AsyncIterator[tuple[Several, AsyncClient]]:
    """Two servers, a client of one of them, and a topic with a slice in every shard."""
    async with several(path / "data", SHARDS) as servers, penstock.aio.connect(servers.address) as client:
        made = await client.create_topic(name, partitions=8, spread=SHARDS)
        assert [partition.number for partition in made.partitions] == list(range(8))
        yield servers, client


def test_L1_messages_go_to_all_slices_and_are_read_back_from_them(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (servers, client):
            ids = await asyncio.gather(*(client.publish("orders", f"{n}", key=f"key {n}") for n in range(40)))
            ids += await client.publish_many("orders", [Message(f"{n}", key=f"key {n}") for n in range(40, 80)])
            ids += [await client.publish("orders", f"{n}") for n in range(80, 100)]
            read = {message.id: message.value async for message in client.read("orders")}
            assert read == {identity: str(n).encode() for n, identity in enumerate(ids)}
            assert {identity.partition for identity in ids} == set(range(8))
            by_server = [
                sum(
                    sum(partition.messages.committed_end for partition in shard.topic("orders").partitions)
                    for shard in server.broker.shards
                )
                for server in servers.servers
            ]
            assert sum(by_server) == 100
            assert all(by_server)

    asyncio.run(work())


def test_O1_messages_of_a_key_keep_their_order_while_the_client_learns_of_the_slices(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, client):
            for round_ in range(5):  # not gathered together: many requests are under way when the first is refused
                for n in range(50):
                    await client.publish_soon("orders", f"{round_ * 50 + n}", key=f"key {n % 7}")
                await asyncio.sleep(0)
            await client.flush()
            found: dict[bytes, list[int]] = {}
            async for message in client.read("orders"):
                found.setdefault(message.key or b"", []).append(int(message.value))
            assert sum(map(len, found.values())) == 250
            assert all(numbers == sorted(numbers) for numbers in found.values())

    asyncio.run(work())


def test_L7_what_is_repeated_is_there_once_with_the_same_ids(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (servers, client):
            batch = [Message(f"{n}", key=f"key {n}" if n % 2 else None) for n in range(20)]
            first = await client.publish_many("orders", batch, producer="till", sequence=1)
            async with penstock.aio.connect(servers.address) as another:
                assert await another.publish_many("orders", batch, producer="till", sequence=1) == first
                once = await client.publish("orders", "a cake", dedupe_id="till-7/81")
                assert await another.publish("orders", "a cake", dedupe_id="till-7/81") == once
            assert len([message async for message in client.read("orders")]) == 21

    asyncio.run(work())


def test_Q1_a_consumer_gets_the_messages_of_all_slices_and_its_group_is_one(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, client):
            ids = await client.publish_many("orders", [Message(f"{n}", key=f"key {n}") for n in range(60)])
            async with await client.consumer("orders", "kitchen") as consumer:
                found: list[AsyncReceived] = []
                while len(found) < 60:
                    found += await consumer.receive(max_messages=60, wait=5)
                assert {message.id for message in found} == set(ids)
                await found[0].kill("burnt")
                await consumer.ack(found[1:])
            group = await client.group("orders", "kitchen")
            assert (group.published, group.acked, group.dead, group.lag) == (60, 59, 1, 0)
            (letter,) = await client.dead_letters("orders")
            assert letter.origin == found[0].id
            assert (await client.redrive("orders")).redriven == 1
            async with await client.consumer("orders", "kitchen") as consumer:
                (again,) = await consumer.receive(max_messages=10, wait=5)
                assert again.id == found[0].id
                await again.ack()
            trace = await client.trace(again.id)
            assert [line.kind for line in trace.lines][-1] == "acked"

    asyncio.run(work())


def test_operations_on_a_topic_reach_all_of_its_slices(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, client):
            with pytest.raises(TopicExists):
                await client.create_topic("orders", partitions=8, spread=SHARDS)
            (info,) = await client.topics()
            assert (info.name, len(info.partitions)) == ("orders", 8)
            changed = await client.configure_topic("orders", visibility_timeout=7)
            assert changed.config.visibility_timeout == 7
            assert len((await client.layout("orders")).messages) == 8
            made = await client.create_group("orders", "kitchen", max_in_flight=10)
            assert made.settings.max_in_flight == 10
            await client.publish_many("orders", [Message(f"{n}", key=f"key {n}") for n in range(40)])
            assert (await client.pause_group("orders", "kitchen")).settings.paused
            assert not (await client.resume_group("orders", "kitchen")).settings.paused
            await client.seek_group("orders", "kitchen", "latest")
            assert (await client.group("orders", "kitchen")).lag == 0
            assert [group.name for group in await client.groups()] == ["kitchen"]
            assert await client.replay("orders", "again") == 40
            late = await client.publish("orders", "later", key="alex", delay="1h")
            assert [message.id for message in await client.delayed("orders")] == [late]
            assert await client.cancel_delayed(late)
            await client.delete_group("orders", "again")
            with pytest.raises(GroupNotFound):
                await client.group("orders", "again")
            await client.delete_topic("orders")
            assert await client.topics() == []
            with pytest.raises(TopicNotFound):
                await client.group("orders", "kitchen")

    asyncio.run(work())


@pytest.mark.parametrize("spread", [1, 2])
def test_L3_a_topic_made_again_goes_on_with_higher_offsets(spread: int, tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, client):
            for before, after in ((SHARDS, spread), (spread, SHARDS)):
                await client.delete_topic("orders")
                await client.create_topic("orders", partitions=8, spread=before)
                ids = await client.publish_many("orders", [Message("v", partition=5)] * 20)
                await client.delete_topic("orders")
                await client.create_topic("orders", partitions=8, spread=after)
                for partition in range(8):
                    new = await client.publish("orders", "new", partition=partition)
                    assert new.offset > max(identity.offset for identity in ids)

    asyncio.run(work())


def test_C12_publishing_and_consuming_go_on_while_slices_move(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (servers, client):
            published: list[object] = []
            stop = asyncio.Event()

            async def publish() -> None:
                while not stop.is_set():
                    n = len(published)
                    published.append(await client.publish("orders", f"{n}", key=f"key {n % 11}"))

            got: dict[object, int] = {}

            async def consume() -> None:
                async with await client.consumer("orders", "kitchen") as consumer:
                    while not (stop.is_set() and len(got) >= len(published)):
                        for message in await consumer.receive(max_messages=20, wait=0.2):
                            await message.ack()
                            got[message.id] = got.get(message.id, 0) + 1

            tasks = [asyncio.create_task(publish()), asyncio.create_task(consume())]
            for shard in shards_of("orders", SHARDS, SHARDS):
                await servers.move(shard, 1 - servers.map.shards[shard].process, drain_s=0.5)
            stop.set()
            await asyncio.wait_for(asyncio.gather(*tasks), 30)
            assert set(got) == set(published)
            assert set(got.values()) == {1}

    asyncio.run(work())
