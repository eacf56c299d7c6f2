"""Shards that are in several servers of one directory, and move between them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from penstock.client.link import Link
from penstock.model.errors import NotOwner
from penstock.protocol.frames import REPLY, VERSION, Command
from penstock.protocol.publishing import encode_publish
from penstock.protocol.session import Hello, decode_welcome, encode
from tests.cluster.several import several
from tests.server.harness import Raw


async def _publish(link: Link, topic: str, sequence: int) -> bytes:
    body, _ = encode_publish(topic, [b"two coffees"], link.limits, "somebody", sequence, own=True)
    return await link.ask(Command.PUBLISH, body)


def test_C11_a_request_at_the_wrong_place_does_nothing_and_names_the_owner(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers:
            topic = servers.topic_of(1)
            link = Link(servers.own_address(0), None, 5.0)
            await link.open()
            with pytest.raises(NotOwner) as refused:
                await _publish(link, topic, 1)
            await link.close()
            shard = servers.map.shard_of(topic)
            assert (refused.value.shard, refused.value.epoch) == (shard, servers.map.shards[shard].epoch)
            assert refused.value.address == servers.map.addresses[1]
            assert topic not in servers.servers[1].broker.shards.of(topic).catalog.by_name

    asyncio.run(work())


def test_C12_a_publish_repeated_at_the_next_owner_is_there_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers:
            topic = servers.topic_of(0)
            links = [Link(servers.own_address(number), None, 5.0) for number in (0, 1)]
            for link in links:
                await link.open()
            first = await _publish(links[0], topic, 1)
            await servers.move(servers.map.shard_of(topic), 1)
            with pytest.raises(NotOwner):
                await _publish(links[0], topic, 1)
            assert await _publish(links[1], topic, 1) == first
            assert len(list(servers.servers[1].broker.read(topic))) == 1
            for link in links:
                await link.close()

    asyncio.run(work())


def test_a_client_that_does_not_follow_is_told_of_no_shards(tmp_path: Path) -> None:
    async def work() -> None:
        async with several(tmp_path / "data") as servers:
            here, there = servers.topic_of(0), servers.topic_of(1)
            port = int(servers.own_address(0).rsplit(":", 1)[1])
            has_moved = threading.Event()

            def talk() -> None:
                with Raw(port, hello=False) as raw:
                    welcome = decode_welcome(raw.ask(Command.HELLO, encode(Hello([VERSION]))))
                    assert welcome.map is None
                    raw.publish(here, "x")
                    with pytest.raises(NotOwner, match="another process of this server"):
                        raw.publish(there, "x")
                    loop.call_soon_threadsafe(may_move.set)
                    assert has_moved.wait(20)
                    number = raw.send(Command.PING, b"\xc0")
                    assert raw.receive()[:2] == (Command.PING | REPLY, number), "nobody told it of the move"
                    with pytest.raises(NotOwner, match="another process of this server"):
                        raw.publish(here, "x")

            loop, may_move = asyncio.get_running_loop(), asyncio.Event()
            talking = asyncio.create_task(asyncio.to_thread(talk))
            await may_move.wait()
            await servers.move(servers.map.shard_of(here), 1)
            has_moved.set()
            await talking

    asyncio.run(asyncio.wait_for(work(), 60))
