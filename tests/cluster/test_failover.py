"""Clients of servers on several machines: whichever of these is cut off or silent, they go on with the others.

Between clients and each server is a line that can be cut or held back, while the test says who has which shard.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.client import AsyncClient, Client
from penstock.client.client import AsyncClient as Awaited
from penstock.model.cluster_map import ClusterMap
from penstock.model.errors import LeaseLost, NotOwner, ShardLost
from penstock.testing.line import Line
from tests.cluster.several import Several, several
from tests.server.harness import soon


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


@asynccontextmanager
async def behind_lines(path: Path) -> AsyncIterator[tuple[Several, list[Line]]]:
    """Three servers on a network; clients reach them by lines alone."""
    async with several(path, shards=6, processes=3, network=True) as servers:
        with ExitStack() as stack:
            lines = [stack.enter_context(Line(server.address[1])) for server in servers.servers]
            servers.map = ClusterMap(servers.map.shards, {n: line.address for n, line in enumerate(lines)})
            servers.tell()
            try:
                yield servers, lines
            finally:
                for line in lines:
                    line.let_go()


def end(line: Line) -> None:
    """The machine at the end of a line is gone, as clients see it."""
    line.refusing = True
    line.cut()


def all_of(lines: list[Line]) -> str:
    return ",".join(line.address for line in lines)


def test_questions_go_to_another_server_when_the_one_that_was_asked_is_gone(tmp_path: Path) -> None:
    async def work() -> None:
        async with behind_lines(tmp_path / "data") as (servers, lines), AsyncClient(all_of(lines)) as client:
            topic = servers.topic_of(2)
            await client.create_topic(topic)
            end(lines[0])
            assert [info.name for info in await client.topics()] == [topic]
            assert client.link.address == lines[1].address
            end(lines[1])
            lines[0].refusing = False
            assert [info.name for info in await client.topics()] == [topic]
            assert client.link.address in (lines[0].address, lines[2].address)

    run(work())


def test_a_client_that_was_given_one_address_knows_the_others_from_the_map(tmp_path: Path) -> None:
    async def work() -> None:
        async with behind_lines(tmp_path / "data") as (_, lines), AsyncClient(lines[0].address) as client:
            await client.create_topic("t")
            end(lines[0])
            assert [info.name for info in await client.topics()] == ["t"]
            assert client.link.address in (lines[1].address, lines[2].address)

    run(work())


def test_C12_what_a_lost_owner_has_published_is_there_once_when_it_is_repeated(tmp_path: Path) -> None:
    async def work() -> None:
        async with behind_lines(tmp_path / "data") as (servers, lines), AsyncClient(all_of(lines)) as client:
            topic = servers.topic_of(1)
            shard = servers.map.shard_of(topic)
            assert (await client.publish(topic, "0")).offset == 0
            lines[1].hold_back()
            publishing = [asyncio.create_task(client.publish_many(topic, [f"{n}"])) for n in range(1, 20)]
            await soon(lines[1].held_back.is_set, "it was published, and the reply is on its way")
            end(lines[1])
            await servers.move(shard, 2)
            found = [(await task)[0].offset for task in publishing]
            assert found == list(range(1, 20))
            stored = [message.value async for message in client.read(topic, 0)]
            assert stored == [b"%d" % n for n in range(20)]

    run(work())


@pytest.mark.parametrize("is_silent", [False, True], ids=["gone", "silent"])
def test_C12_a_thread_that_waits_for_a_lost_owner_gets_its_reply_from_the_next(is_silent: bool, tmp_path: Path) -> None:
    async def work() -> None:
        async with behind_lines(tmp_path / "data") as (servers, lines):
            topic = servers.topic_of(1)
            shard = servers.map.shard_of(topic)
            ready, lost = asyncio.Event(), asyncio.Event()
            loop = asyncio.get_running_loop()

            def publish() -> list[int]:
                with Client(all_of(lines)) as client:
                    found = [client.publish(topic, f"{n}").offset for n in range(20)]  # its own thread has the socket
                    loop.call_soon_threadsafe(ready.set)
                    asyncio.run_coroutine_threadsafe(lost.wait(), loop).result()
                    return [*found, client.publish(topic, "20").offset]

            publishing = asyncio.create_task(asyncio.to_thread(publish))
            await ready.wait()
            lines[1].hold_back()
            lost.set()
            await soon(lines[1].held_back.is_set, "it was published, and the reply is on its way")
            if not is_silent:
                end(lines[1])
            await servers.move(shard, 2)
            async with asyncio.timeout(10):  # and not when the client gives up
                assert await publishing == list(range(21))
            async with AsyncClient(lines[2].address) as client:
                assert [message.offset async for message in client.read(topic, 0)] == list(range(21))

    run(work())


def test_what_was_leased_by_a_server_that_is_gone_for_good_is_lost(tmp_path: Path) -> None:
    async def work() -> None:
        async with behind_lines(tmp_path / "data") as (servers, lines), AsyncClient(all_of(lines)) as client:
            topic = servers.topic_of(1)
            await client.publish(topic, "one")
            link = client.links.link_to_topic(topic)
            assert link is not None
            async with await client.consumer(topic, "g") as consumer:
                messages = await consumer.receive(1, wait=10)
                end(lines[1])
                await soon(lambda: not link.connected, "the connection is lost")
                await servers.move(servers.map.shard_of(topic), 2)
                servers.map = ClusterMap(servers.map.shards, {0: lines[0].address, 2: lines[2].address})
                servers.tell()
                await soon(lambda: link.closed, "it is known to be gone")
                for finish in (consumer.ack, consumer.release):
                    with pytest.raises(LeaseLost):
                        await finish(messages)
                assert [message.value for message in await consumer.receive(1, wait=10)] == [b"one"]

    run(work())


def test_C12_what_an_owner_was_writing_when_it_lost_its_shard_is_repeated_at_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with behind_lines(tmp_path / "data") as (servers, lines), AsyncClient(all_of(lines)) as client:
            topic = servers.topic_of(1)
            shard = servers.map.shard_of(topic)
            await client.publish(topic, "0")
            async with await client.consumer(topic, "g") as consumer:
                messages = await consumer.receive(1, wait=10)
                journal = servers.servers[1].broker.shards[shard].journal
                write = journal._write

                def lose(*group: Any) -> None:
                    write(*group)
                    journal.abandon(NotOwner("it was taken", shard))
                    raise OSError(errno.EIO, "nobody answers any more")

                monkeypatch.setattr(journal, "_write", lose)
                publishing = asyncio.create_task(client.publish(topic, "1"))
                acking = asyncio.create_task(consumer.ack(messages))
                await soon(lambda: journal.frozen, "it is lost")
                await servers.servers[1].lose_shard(shard, NotOwner("it was taken", shard))
                await servers.take(shard, 2)
                servers.tell()
                assert (await publishing).offset == 1
                with pytest.raises((ShardLost, LeaseLost)):  # that it cannot know
                    await acking
                assert [message.value async for message in client.read(topic, 0)] == [b"0", b"1"]

    run(work())


def test_a_server_that_is_silent_is_left_for_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.link._SILENT_S", 0.1)

    async def work() -> None:
        async with behind_lines(tmp_path / "data") as (_, lines), AsyncClient(all_of(lines)) as client:
            await client.create_topic("t")
            lines[0].hold_back()
            async with asyncio.timeout(10):
                assert [info.name for info in await client.topics()] == ["t"]
            assert client.link.address != lines[0].address

    run(work())


def test_who_asks_nothing_of_a_server_that_is_silent_stays_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.link._SILENT_S", 0.2)

    async def work() -> None:
        async with behind_lines(tmp_path / "data") as (_, lines), AsyncClient(all_of(lines)) as client:
            await client.topics()
            lines[0].hold_back()
            await asyncio.sleep(1.0)  # in which it is looked at
            lines[0].let_go()
            await client.topics()
            assert client.link.address == lines[0].address

    run(work())


def test_consumers_go_on_at_the_next_owner_of_their_topic(tmp_path: Path) -> None:
    async def work() -> None:
        async with behind_lines(tmp_path / "data") as (servers, lines), AsyncClient(all_of(lines)) as client:
            topic = servers.topic_of(1)
            shard = servers.map.shard_of(topic)
            await client.publish_many(topic, [f"{n}" for n in range(100)])
            acked: Counter[bytes] = Counter()
            async with await client.consumer(topic, "g") as consumer:
                for message in await consumer.receive(40):
                    await message.ack()
                    acked[message.value] += 1
                end(lines[1])
                waiting = asyncio.create_task(consumer.receive(100, wait=20))
                await asyncio.sleep(0.05)  # nobody has the shard for a moment
                await servers.move(shard, 0)
                while len(acked) < 100:
                    for message in await waiting:
                        await message.ack()
                        acked[message.value] += 1
                    waiting = asyncio.create_task(consumer.receive(100, wait=1))
                await waiting
            assert max(acked.values()) == 1

    run(work())


def test_members_that_are_gone_are_not_called_any_more(tmp_path: Path) -> None:
    async def work() -> None:
        async with behind_lines(tmp_path / "data") as (servers, lines), AsyncClient(lines[0].address) as client:
            gone = client.links.link_to_topic(servers.topic_of(1))
            assert gone is not None
            await gone.ready(10)
            end(lines[1])
            await soon(lambda: not gone.connected, "the connection is lost")
            servers.map.addresses.pop(1)
            for shard, place in enumerate(servers.map.shards):
                if place.process == 1:
                    await servers.move(shard, 0)
            await soon(lambda: gone.closed, "it is forgotten")
            assert (await client.publish(servers.topic_of(0), "x")).offset == 0

    run(work())


def test_who_waits_for_a_member_that_is_gone_goes_to_the_next_owner(tmp_path: Path) -> None:
    async def work() -> None:
        async with behind_lines(tmp_path / "data") as (servers, lines), AsyncClient(all_of(lines)) as client:
            topic = servers.topic_of(1)
            await client.create_topic(topic)
            link = client.links.link_to_topic(topic)
            assert link is not None
            end(lines[1])
            await soon(lambda: not link.connected)
            waiting = asyncio.create_task(client.links.ready(topic, 30))
            await asyncio.sleep(0)  # it waits now
            servers.map.addresses.pop(1)
            for shard, place in enumerate(servers.map.shards):
                if place.process == 1:
                    await servers.move(shard, 2)
            await waiting
            assert (await client.publish(topic, "a")).offset == 0

    run(work())


def test_C12_C13_clients_survive_one_server_after_the_other(tmp_path: Path) -> None:
    async def publish(client: Awaited, topic: str, stopping: asyncio.Event) -> list[int]:
        found: list[int] = []
        while not stopping.is_set():
            found.append((await client.publish(topic, f"{len(found)}")).offset)
        return found

    async def work() -> None:
        async with behind_lines(tmp_path / "data") as (servers, lines), AsyncClient(all_of(lines)) as client:
            stopping = asyncio.Event()
            topics = [servers.topic_in(shard) for shard in range(6)]
            publishing = [asyncio.create_task(publish(client, topic, stopping)) for topic in topics]
            for number in (0, 1, 2, 0, 1, 2):
                await asyncio.sleep(0.1)
                end(lines[number])
                await asyncio.sleep(0.05)
                for shard, place in enumerate(servers.map.shards):
                    if place.process == number:
                        await servers.move(shard, (number + 1) % 3)
                lines[number].refusing = False
            stopping.set()
            for topic, offsets in zip(topics, await asyncio.gather(*publishing), strict=True):
                assert offsets == list(range(len(offsets)))
                stored = [message.value.decode() async for message in client.read(topic, 0)]
                assert stored == [f"{n}" for n in range(len(offsets))]

    run(work())
