"""Processes of a server are killed, stopped and drained under clients that publish and consume, and keep the books."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import AsyncClient
from penstock.model.errors import ConnectionLost
from penstock.model.placement import shard_of
from penstock.model.processes import ClusterInfo
from tests.server.harness import Child, run, soon

SHARDS, PROCESSES = 4, 2
TOPICS = [next(f"t-{n}" for n in range(1000) if shard_of(f"t-{n}", SHARDS) == shard) for shard in range(SHARDS)]


class Books:
    """What was acknowledged, topic by topic: to publishers, and by consumers."""

    def __init__(self) -> None:
        self.published: dict[str, penstock.MessageId] = {}
        self.acked: set[penstock.MessageId] = set()
        self.unsure: set[penstock.MessageId] = set()
        self.delivered: Counter[penstock.MessageId] = Counter()

    def take(self, message: Any) -> None:
        """A message came."""
        assert message.id not in self.acked, f"{message.id} was acked, and came again"
        self.delivered[message.id] += 1

    def grew(self, published: int, acked: int) -> bool:
        """Whether much has happened since."""
        return len(self.published) >= published + 200 and len(self.acked) >= acked + 50

    def check(self, topic: str, stored: list[penstock.StoredMessage]) -> None:
        """Nothing acknowledged is missing, nothing is there twice, all in order."""
        values = [message.value.decode() for message in stored]
        assert len(set(values)) == len(values), "nothing is there twice"
        own = {value: identity for value, identity in self.published.items() if identity.topic == topic}
        assert {message.value.decode(): message.id for message in stored} == own
        for producer in {value.split(".")[0] for value in values}:
            numbers = [int(value.split(".")[1]) for value in values if value.split(".")[0] == producer]
            assert numbers == sorted(numbers), "in the order in which they were published"


async def _books_under(child: Child, books: Books, disturb: Any) -> None:
    """Publish and consume in every shard while something happens; then everything is accounted for."""
    async with AsyncClient(child.address, batch_size=50) as client:
        stopping = asyncio.Event()

        async def publish(topic: str, name: str) -> None:
            number = 0
            while not stopping.is_set():
                value = f"{name}.{number}"
                books.published[value] = await client.publish(topic, value)
                number += 1

        async def publish_many(topic: str, name: str) -> None:
            number = 0
            while not stopping.is_set():
                values = [f"{name}.{number + n}" for n in range(20)]
                books.published |= dict(zip(values, await client.publish_many(topic, values), strict=True))
                number += 20
                await asyncio.sleep(0.005)

        async def settle(consumer: Any, messages: list[Any]) -> None:
            ids = {message.id for message in messages}
            try:
                await consumer.ack(messages)
            except ConnectionLost:
                books.unsure |= ids
            except penstock.LeaseLost as lost:
                books.acked |= ids - set(lost.ids) - books.unsure
            else:
                books.acked |= ids

        async def receive(topics: list[str]) -> None:
            async with await client.consumer(topics, "g", visibility_timeout=20) as consumer:
                while not stopping.is_set():
                    messages = await consumer.receive(20, wait=0.3)
                    for message in messages:
                        books.take(message)
                    await settle(consumer, messages)

        work = [publish(topic, f"a{topic}") for topic in TOPICS]
        work += [publish_many(topic, f"b{topic}") for topic in TOPICS]
        work += [receive(TOPICS), receive(TOPICS[:1]), receive(TOPICS[2:])]
        tasks = [asyncio.create_task(one) for one in work]
        try:
            await disturb(client)
        finally:
            stopping.set()
            await asyncio.gather(*tasks)
        for topic in TOPICS:
            stored = [message async for message in client.read(topic, 0)]
            books.check(topic, stored)
            async with await client.consumer(topic, "g", max_in_flight=100_000) as consumer:
                while messages := await consumer.receive(10_000, wait=0.2):
                    for message in messages:
                        books.take(message)
                    await consumer.ack(messages)
                    books.acked |= {message.id for message in messages}
            assert {message.id for message in stored} <= books.acked | books.unsure
            assert (await client.group(topic, "g")).lag == 0


async def _whole(client: AsyncClient) -> ClusterInfo:
    """How all stands, as soon as every shard is open."""
    while True:
        try:
            found = await client.cluster()
        except ConnectionLost:
            continue
        if all(shard.state == "open" for shard in found.shards):
            return found
        await asyncio.sleep(0.01)


@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_L1_Q2_C12_C14_processes_end_and_nothing_acknowledged_is_lost_or_comes_again(
    number: signal.Signals, tmp_path: Path
) -> None:
    chance, books = random.Random(7), Books()

    async def end_some(client: AsyncClient) -> None:
        for turn in range(4):
            await soon(partial(books.grew, len(books.published), len(books.acked)), "progress")
            victim = (await _whole(client)).processes[turn % PROCESSES]
            await asyncio.sleep(chance.random() / 10)
            os.kill(victim.pid, number)

    with Child(tmp_path / "data", "--shards", str(SHARDS), "--processes", str(PROCESSES)) as child:
        run(_books_under(child, books, end_some))
    assert len(books.published) > 500


@pytest.mark.crash
def test_C10_C18_shards_move_and_nothing_acknowledged_is_lost_or_comes_again(tmp_path: Path) -> None:
    chance, books = random.Random(9), Books()

    async def move_some(client: AsyncClient) -> None:
        for _ in range(8):
            found = await _whole(client)
            shard = chance.randrange(SHARDS)
            await client.move_shard(shard, 1 - found.shards[shard].process)
        await client.drain_process(0)
        await client.balance_shards()

    with Child(tmp_path / "data", "--shards", str(SHARDS), "--processes", str(PROCESSES)) as child:
        run(_books_under(child, books, move_some))
    assert len(books.published) > 200


@pytest.mark.crash
def test_C15_a_process_that_was_stopped_is_killed_and_everything_goes_on(tmp_path: Path) -> None:
    books = Books()

    async def stop_one(client: AsyncClient) -> None:
        victim = (await _whole(client)).processes[0]
        os.kill(victim.pid, signal.SIGSTOP)
        await soon(lambda: "said nothing" in child.log(), "it was noticed")
        await soon(partial(books.grew, len(books.published), len(books.acked)), "progress")

    with Child(tmp_path / "data", "--shards", str(SHARDS), "--processes", str(PROCESSES)) as child:
        run(_books_under(child, books, stop_one))
