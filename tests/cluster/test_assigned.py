"""Assigned mode over several processes: each topic is dealt out in its shard, and a member takes part in all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import AsyncClient
from penstock.client.consumer import AsyncClientConsumer
from penstock.client.link import Link
from penstock.client.merged import MergedConsumer
from penstock.model.errors import ConsumerNotFound, LeaseLost
from penstock.protocol.consuming import Finish, Held, Receive, Subscribe, decode_delivery, decode_subscribed, encode
from penstock.protocol.frames import Command
from tests.cluster.several import Several, several
from tests.cluster.test_following import wander

SHARDS, PARTITIONS = 4, 4
ALL = tuple(range(PARTITIONS))


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


class Crew:
    """A group of members, each with a client of its own, that shares the topics of all shards."""

    def __init__(self, servers: Several, client: AsyncClient, stack: AsyncExitStack) -> None:
        self.servers, self.client, self._stack = servers, client, stack
        self.topics = [servers.topic_in(shard) for shard in range(SHARDS)]

    async def join(self, name: str) -> AsyncClientConsumer:
        """A new member."""
        client = await self._stack.enter_async_context(AsyncClient(self.servers.address))
        options: dict[str, Any] = {"mode": "assigned", "visibility_timeout": 600, "session_timeout": 20}
        member = await client.consumer(self.topics, "g", name=name, **options)
        assert isinstance(member.remote, MergedConsumer)
        return member

    async def publish(self, each: int = 1) -> None:
        """So many messages for each partition of each topic."""
        for topic in self.topics:
            messages = [penstock.Message(f"{n}", partition=n % PARTITIONS) for n in range(each * PARTITIONS)]
            await self.client.publish_many(topic, messages)

    async def owned(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """The partitions that members have, by topic and name."""
        return {topic: await self.owned_of(topic) for topic in self.topics}

    async def owned_of(self, topic: str) -> dict[str, tuple[int, ...]]:
        """The partitions of a topic that members have, by name."""
        return {member.name: member.partitions for member in (await self.client.group(topic, "g")).members}

    async def done(self) -> int:
        """How many messages are acked."""
        return sum([(await self.client.group(topic, "g")).acked for topic in self.topics])


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Crew]:
    async with several(path / "data", SHARDS) as servers, AsyncExitStack() as stack:
        crew = Crew(servers, await stack.enter_async_context(AsyncClient(servers.address)), stack)
        for topic in crew.topics:
            await crew.client.create_topic(topic, partitions=PARTITIONS)
        yield crew


def places(messages: list[Any]) -> set[tuple[str, int]]:
    return {(message.topic, message.partition) for message in messages}


def test_G1_each_partition_of_each_topic_has_one_owner(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as crew:
            one = await crew.join("one")
            assert await crew.owned() == {topic: {"one": ALL} for topic in crew.topics}
            two = await crew.join("two")
            owned = await crew.owned()
            assert owned == {topic: {"one": (0, 1), "two": (2, 3)} for topic in crew.topics}
            await crew.publish(3)
            for member, mine in ((one, {0, 1}), (two, {2, 3})):
                received = await member.receive(1000)
                assert places(received) == {(topic, number) for topic in crew.topics for number in mine}
                assert len(received) == 3 * 2 * SHARDS
                await member.ack(received)
            assert await crew.done() == 3 * PARTITIONS * SHARDS

    run(work())


def test_G2_joining_and_leaving_move_only_what_must_move_in_every_topic(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as crew:
            for name in ("one", "two"):
                await crew.join(name)
            before = await crew.owned()
            three = await crew.join("three")
            for topic, after in (await crew.owned()).items():
                stayed = {number for name in ("one", "two") for number in {*before[topic][name]} & {*after[name]}}
                assert len(stayed) == PARTITIONS - 1
                assert sorted(map(len, after.values())) == [1, 1, 2]
            await three.close()
            assert await crew.owned() == before

    run(work())


def test_G2_what_is_held_stays_until_it_is_finished_while_all_else_goes_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as crew:
            one = await crew.join("one")
            await crew.publish()
            held = await one.receive(1000)
            assert len(held) == PARTITIONS * SHARDS
            two = await crew.join("two")
            assert await crew.owned() == {topic: {"one": (0, 1), "two": ()} for topic in crew.topics}
            await crew.publish()
            assert await two.receive(1000) == []
            fresh = await one.receive(1000)
            assert places(fresh) == {(topic, number) for topic in crew.topics for number in (0, 1)}
            first, *others = crew.topics
            await one.ack([message for message in held if message.topic == first])
            assert await crew.owned_of(first) == {"one": (0, 1), "two": (2, 3)}
            assert places(await two.receive(1000)) == {(first, 2), (first, 3)}
            assert await crew.owned_of(others[0]) == {"one": (0, 1), "two": ()}
            await one.ack([message for message in held if message.topic != first])
            assert places(await two.receive(1000)) == {(topic, number) for topic in others for number in (2, 3)}

    run(work())


def test_leaving_hands_over_what_was_held_in_every_topic(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as crew:
            one, two = await crew.join("one"), await crew.join("two")
            await crew.publish()
            assert len(await one.receive(1000)) == 2 * SHARDS
            await one.close()
            received = await two.receive(1000)
            assert len(received) == PARTITIONS * SHARDS
            assert {(message.partition, message.deliveries) for message in received} == {(0, 2), (1, 2), (2, 1), (3, 1)}
            assert {message.failures for message in received} == {0}

    run(work())


def test_G3_G4_one_that_is_silent_in_one_shard_loses_what_it_had_there_and_cannot_ack(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as crew:
            topic = crew.topics[0]
            silent = Link(crew.servers.own_address(crew.servers.owner_of(topic)), None, 20.0)
            await silent.open()
            options: dict[str, Any] = {"mode": "assigned", "session_timeout": 1.0, "visibility_timeout": 600.0}
            body = encode(Subscribe(topics=[topic], group="g", name="silent", **options))
            number = decode_subscribed(await silent.ask(Command.SUBSCRIBE, body)).consumer
            await crew.publish()
            (rows, *_) = decode_delivery(await silent.ask(Command.RECEIVE, encode(Receive(number, 1, 0.0, None)))).rows
            two = await crew.join("two")
            assert "silent" not in (await crew.owned())[crew.topics[1]]

            async def all_are_taken() -> None:
                taken: set[tuple[str, int]] = set()
                while len(taken) < PARTITIONS * SHARDS:
                    taken |= places(await two.receive(1000, wait=1))

            await asyncio.wait_for(all_are_taken(), 30)
            assert await crew.owned_of(topic) == {"silent": (), "two": ALL}
            assert isinstance(rows.offsets, int)
            held = Held(topic, rows.partition, rows.lease, [rows.offsets, 1])
            with pytest.raises(LeaseLost):
                await silent.ask(Command.ACK, encode(Finish(number, [held])))
            await silent.close()
            assert await crew.done() == 0

    run(work())


def test_G4_heartbeats_keep_what_a_member_has_in_every_shard(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as crew:
            client = crew.client
            options: dict[str, Any] = {"mode": "assigned", "session_timeout": 1.5, "visibility_timeout": 600}
            async with await client.consumer(crew.topics, "g", name="one", **options) as one:
                await crew.join("two")
                before = await crew.owned()
                await asyncio.sleep(3)  # it is busy for twice as long as it may be silent
                assert await crew.owned() == before
                await one.heartbeat()

    run(work())


def test_G1_G4_a_move_deals_out_one_topic_anew_and_leaves_the_others_alone(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as crew:
            one, two = await crew.join("one"), await crew.join("two")
            await crew.publish()
            held = [*await one.receive(1000), *await two.receive(1000)]
            before = await crew.owned()
            moved, *others = crew.topics
            await crew.servers.move(0, 1 - crew.servers.owner_of(moved))
            again: list[Any] = []
            while len(again) < PARTITIONS:
                for member in (one, two):
                    some = await member.receive(1000, wait=0.5)
                    await member.ack(some)
                    again += some
            assert places(again) == {(moved, number) for number in ALL}
            owned = await crew.owned()
            assert sorted(number for mine in owned[moved].values() for number in mine) == list(ALL)
            assert [owned[topic] for topic in others] == [before[topic] for topic in others]
            for member in (one, two):
                own = [message for message in held if message.lease is not None and message.lease.owner is member]
                with pytest.raises((LeaseLost, ConsumerNotFound)) as lost:
                    await member.ack(own)
                assert places([m for m in own if m.topic == moved]) == {
                    (identity.topic, identity.partition)
                    for identity in getattr(lost.value, "ids", ())
                    if isinstance(identity, penstock.MessageId)
                }
            assert await crew.done() == PARTITIONS * SHARDS

    run(work())


def test_G1_G4_members_come_and_go_while_shards_move_and_all_is_done(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path) as crew:
            await crew.publish(50)
            expected, acked = 50 * PARTITIONS * SHARDS, set[penstock.MessageId]()

            async def consume(name: str) -> None:
                while len(acked) < expected:
                    async with await crew.join(name) as member:
                        for _ in range(15):
                            messages = await member.receive(20, wait=0.1)
                            assert not acked & {message.id for message in messages}, "acked, and came again"
                            ids = {message.id for message in messages}
                            try:
                                await member.ack(messages)
                            except LeaseLost as lost:
                                ids -= set(lost.ids)
                            acked.update(ids)

            await asyncio.gather(wander(crew.servers, 15), *(consume(f"m{n}") for n in range(3)))
            assert len(acked) == expected == await crew.done()
            last = await crew.join("last")
            await last.receive(1)

            async def has_all() -> bool:
                return await crew.owned() == {topic: {"last": ALL} for topic in crew.topics}

            until_s = asyncio.get_running_loop().time() + 20
            while not await has_all():
                assert asyncio.get_running_loop().time() < until_s, await crew.owned()

    run(work())
