"""A consumer of topics in several processes: fair, within one window, and held up by no shard that is missing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import AsyncClient
from penstock.client.merged import MergedConsumer
from penstock.client.remote import RemoteConsumer
from penstock.model.errors import LeaseLost
from penstock.protocol.frames import REPLY, Command
from tests.cluster.several import Several, several
from tests.server.harness import soon

SHARDS = 4


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[Several, AsyncClient, list[str]]]:
    """Servers, a client, and a topic of each shard."""
    async with several(path / "data", SHARDS) as servers, AsyncClient(servers.address) as client:
        yield servers, client, [servers.topic_in(shard) for shard in range(SHARDS)]


async def leased(client: AsyncClient, topics: list[str], group: str = "g") -> int:
    """How many messages of all topics are leased."""
    return sum([(await client.group(topic, group)).leased for topic in topics])


async def fill(client: AsyncClient, topics: list[str], count: int) -> None:
    for topic in topics:
        await client.publish_many(topic, [f"{n}" for n in range(count)])


# Fairness.


@pytest.mark.parametrize("large", range(SHARDS))
def test_no_topic_starves_beside_a_large_backlog(large: int, tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as (_, client, topics):
            await fill(client, topics, 20)
            await fill(client, [topics[large]], 3000)
            seen: Counter[str] = Counter()
            async with await client.consumer(topics, "g", max_in_flight=20) as consumer:
                for _ in range(2 * SHARDS):  # each of the others needs two turns
                    messages = await consumer.receive(10)
                    assert len(messages) == 10
                    seen.update(message.topic for message in messages)
                    await consumer.ack(messages)
            assert seen == dict.fromkeys(topics, 20)

    run(work())


def test_a_loop_serves_small_topics_beside_a_large_backlog(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as (_, client, topics):
            await fill(client, topics[1:], 20)
            await fill(client, topics[:1], 3000)
            seen: Counter[str] = Counter()
            async with await client.consumer(topics, "g", max_in_flight=20) as consumer:
                async for message in consumer:
                    seen[message.topic] += 1
                    await message.ack()
                    if all(seen[topic] == 20 for topic in topics[1:]):
                        break
            assert seen[topics[0]] <= 40

    run(work())


def test_what_is_published_meanwhile_waits_for_no_backlog(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as (_, client, topics):
            await fill(client, topics[:1], 3000)
            async with await client.consumer(topics, "g") as consumer:
                for turn in range(20):
                    topic = topics[1 + turn % 3]
                    identity = await client.publish(topic, "small")
                    came: set[penstock.MessageId] = set()
                    for _ in range(SHARDS):
                        messages = await consumer.receive(10)
                        came |= {message.id for message in messages}
                        await consumer.ack(messages)
                    assert identity in came

    run(work())


# One window.


def test_the_window_is_kept_by_tasks_that_share_a_consumer(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as (_, client, topics):
            await fill(client, topics, 100)
            acked: set[penstock.MessageId] = set()
            held = 0
            async with await client.consumer(topics, "g", max_in_flight=7) as consumer:

                async def consume() -> None:
                    nonlocal held
                    while len(acked) < 100 * SHARDS:
                        messages = await consumer.receive(5, wait=0.2)
                        held += len(messages)
                        assert held <= 7
                        await asyncio.sleep(0.01)  # others ask meanwhile
                        acked.update(message.id for message in messages)
                        held -= len(messages)
                        await consumer.ack(messages)

                await asyncio.gather(*(consume() for _ in range(4)))
            assert len(acked) == 100 * SHARDS

    run(work())


def test_messages_that_are_extended_count_for_as_long_as_they_are_held(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as (_, client, topics):
            await fill(client, topics, 10)
            options: dict[str, Any] = {"max_in_flight": 6, "visibility_timeout": 0.5, "auto_extend": True}
            async with await client.consumer(topics, "g", **options) as consumer:
                held = await consumer.receive(100)
                assert len(held) == 6
                assert await consumer.receive(100, wait=1.5) == []  # three times as long as they were leased for
                assert await leased(client, topics) == 6
                await consumer.ack(held)
                assert len(await consumer.receive(100)) == 6

    run(work())


def test_what_was_lost_with_a_move_makes_room_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as (servers, client, topics):
            topic = topics[0]
            await client.publish_many(topic, ["a", "b"])
            async with await client.consumer(topics, "g", max_in_flight=2, visibility_timeout=600) as consumer:
                held = await consumer.receive(2)
                assert len(held) == 2
                owner = servers.owner_of(topic)
                await servers.move(servers.map.shard_of(topic), 1 - owner)
                again = await consumer.receive(2, wait=20)
                assert [message.deliveries for message in again] == [2, 2]
                with pytest.raises(LeaseLost):
                    await consumer.ack(held)
                await client.publish(topics[1], "more")
                assert await consumer.receive(1) == [], "what came again counts, although the first was finished"
                await consumer.ack(again)
                assert len(await consumer.receive(1)) == 1

    run(work())


# What is held ready for a loop.


def test_Q6_what_a_slow_loop_holds_ready_stays_leased_and_does_not_fail(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as (_, client, topics):
            for topic in topics[:2]:
                await client.create_topic(topic, max_deliveries=1)
            await fill(client, topics[:2], 6)
            came: list[tuple[int, int]] = []
            async with await client.consumer(topics[:2], "g", visibility_timeout=0.6) as consumer:
                async for message in consumer:
                    came.append((message.deliveries, message.failures))
                    await asyncio.sleep(0.2)  # what is ready waits for longer than it was leased for
                    await message.ack()
                    if len(came) == 12:
                        break
            assert came == [(1, 0)] * 12
            assert [(await client.group(topic, "g")).dead for topic in topics[:2]] == [0, 0]

    run(work())


def _is_nowhere(remote: MergedConsumer[Any]) -> bool:
    return not any(part.is_joined for part in remote._parts)


def test_Q2_what_a_loop_holds_ready_and_loses_is_not_handed_out_but_comes_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as (servers, client, topics):
            await fill(client, topics[:2], 20)
            came: Counter[penstock.MessageId] = Counter()
            async with await client.consumer(topics[:2], "g") as consumer:
                assert isinstance(consumer.remote, MergedConsumer)
                async for message in consumer:
                    await message.ack()
                    came[message.id] += 1
                    if len(came) == 5:
                        for topic in topics[:2]:
                            await servers.move(servers.map.shard_of(topic), 1 - servers.owner_of(topic))
                        await soon(partial(_is_nowhere, consumer.remote), "the client knows of it")
                    if len(came) == 40:
                        break
            assert set(came.values()) == {1}

    run(work())


def test_Q2_messages_of_a_reply_that_comes_late_are_not_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their shard has moved meanwhile, and others have them."""

    async def work() -> None:
        async with opened(tmp_path) as (servers, client, topics), AsyncClient(servers.address) as other:
            topic = topics[0]
            late: list[tuple[int, int, bytes]] = []
            async with await client.consumer(topic, "g") as consumer:
                connection = consumer.remote.link._connection
                assert connection is not None
                handle = connection._on_frame

                def hold_deliveries(command: int, correlation: int, body: memoryview | bytes) -> None:
                    if command == Command.RECEIVE | REPLY:
                        late.append((command, correlation, bytes(body)))
                    else:
                        handle(command, correlation, body)

                monkeypatch.setattr(connection, "_on_frame", hold_deliveries)
                receiving = asyncio.create_task(consumer.receive(10, wait=20))
                await other.publish(topic, "first")
                await soon(lambda: late, "the messages are on their way")
                await servers.move(servers.map.shard_of(topic), 1 - servers.owner_of(topic))
                async with await other.consumer(topic, "g") as second:
                    for message in await second.receive(1, wait=10):
                        await message.ack()
                for reply in late:
                    handle(*reply)
                await other.publish(topic, "second")
                assert [message.value for message in await receiving] == [b"second"]

    run(work())


# Shards that are missing.


def test_a_shard_that_is_nowhere_holds_up_no_other_and_is_not_taken_for_empty(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as (servers, client, topics):
            await fill(client, topics, 100)
            async with await client.consumer(topics, "g") as consumer:
                shard = servers.map.shard_of(topics[2])
                await servers.servers[servers.owner_of(topics[2])].release_shard(shard, 0)
                seen: Counter[str] = Counter()
                async with asyncio.timeout(10):  # it would be waited for three times as long
                    while seen.total() < 300:
                        messages = await consumer.receive(10)
                        seen.update(message.topic for message in messages)
                        await consumer.ack(messages)
                assert seen[topics[2]] == 0
                asking = asyncio.create_task(consumer.receive(10))
                await asyncio.sleep(0.1)
                assert not asking.done(), "nobody knows whether there is nothing"
                await servers.take(shard, 1)
                servers.tell()
                assert {message.topic for message in await asking} == {topics[2]}

    run(work())


def test_a_process_that_does_not_answer_holds_up_the_others_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with opened(tmp_path) as (_, client, topics):
            await fill(client, topics, 20)
            async with await client.consumer(topics, "g") as consumer:
                assert isinstance(consumer.remote, MergedConsumer)
                hung = consumer.remote._by_topic[topics[3]]
                answering = asyncio.Event()
                receive_now = RemoteConsumer.receive_now

                async def receive_late(part: Any, *arguments: Any) -> Any:
                    if part is hung:
                        await answering.wait()
                    return await receive_now(part, *arguments)

                monkeypatch.setattr(RemoteConsumer, "receive_now", receive_late)
                async with asyncio.timeout(20):
                    seen = Counter(message.topic for message in await consumer.receive(100))
                assert seen == dict.fromkeys(topics[:3], 20)
                asking = asyncio.create_task(consumer.receive(100))
                await asyncio.sleep(0)
                answering.set()
                assert {message.topic for message in await asking} == {topics[3]}

    run(work())


# Cancelling.


def test_Q2_cancelling_a_receive_from_several_shards_gives_everything_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            opened(tmp_path) as (_, client, topics),
            await client.consumer(topics, "g", visibility_timeout=600) as consumer,
        ):
            for turn in range(40):
                receiving = asyncio.create_task(consumer.receive(10, wait=30))
                for _ in range(turn % 8):
                    await asyncio.sleep(0.001)
                publishing = [asyncio.create_task(client.publish(topic, f"{turn}")) for topic in topics]
                for _ in range(turn // 8):
                    await asyncio.sleep(0.001)
                receiving.cancel()
                with suppress(asyncio.CancelledError):
                    await consumer.release(await receiving)
                await asyncio.gather(*publishing)
            until_s = asyncio.get_running_loop().time() + 20
            while await leased(client, topics):
                assert asyncio.get_running_loop().time() < until_s
            seen: set[penstock.MessageId] = set()
            while messages := await consumer.receive(1000):
                await consumer.ack(messages)
                seen |= {message.id for message in messages}
            assert len(seen) == 40 * SHARDS

    run(work())


def test_closing_ends_a_receive_that_waits_for_a_missing_shard(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as (servers, client, topics):
            consumer = await client.consumer(topics, "g")
            await servers.servers[servers.owner_of(topics[0])].release_shard(servers.map.shard_of(topics[0]), 0)
            asking = asyncio.create_task(consumer.receive(10))
            remote = consumer.remote
            assert isinstance(remote, MergedConsumer)
            await soon(lambda: remote._joining, "a part is missing")
            await consumer.close()
            with suppress(penstock.BrokerClosed):
                assert await asyncio.wait_for(asking, 20) == []
            await servers.take(servers.map.shard_of(topics[0]), 1)
            servers.tell()

    run(work())
