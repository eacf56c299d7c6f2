"""The text port of any process serves the topics of all: lines about others are said to their owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from penstock.client import AsyncClient
from penstock.server.access.tokens import TokenFile
from penstock.server.line.connection import Connection
from penstock.server.line.listener import LineListener
from tests.cluster.several import Several, several
from tests.server.line.harness import Talk


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[tuple[Several, list[int]]]:
    """Several servers, and a port of each: those that share one are not told apart."""
    async with several(path, ports=("native", "line"), **options) as servers:
        doors: list[asyncio.Server] = []
        for server in servers.servers:
            listener = server._listeners["line"]
            assert isinstance(listener, LineListener)
            make = partial(Connection, listener)
            doors.append(await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0))
        try:
            yield servers, [door.sockets[0].getsockname()[1] for door in doors]
        finally:
            for door in doors:
                door.close()


async def talk(port: int, said: Callable[[Talk], Any]) -> Any:
    """What somebody hears who talks to a port, in a thread."""

    def work() -> Any:
        with Talk(port) as found:
            return said(found)

    return await asyncio.to_thread(work)


def test_lines_about_any_topic_are_answered_by_any_process(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, ports):
            for owner, port in ((0, ports[1]), (1, ports[0])):
                topic = servers.topic_of(owner)

                def said(talk: Talk, topic: str = topic) -> list[str]:
                    lines = [f"PRODUCE {topic} 0 m{n}" for n in range(3)]
                    lines += [f"CONSUME {topic} 0", f"ACK {topic} 0 0", f"ACK {topic} 0 0", "PING"]
                    return [talk.say(line) for line in lines]

                heard = await talk(port, said)
                assert heard[:5] == ["OK", "OK", "OK", "0 m0", "ACK_OK"]
                assert heard[5].startswith("ERROR: ")
                assert heard[6] == "PONG"

    run(work())


def test_many_lines_at_once_keep_their_order_in_every_topic_and_in_their_replies(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, ports):
            topics = [servers.topic_of(0), servers.topic_of(1)]
            count = 1800

            def said(talk: Talk) -> tuple[list[str], list[str]]:
                talk.send("".join(f"PRODUCE {topics[n % 2]} 0 m{n}\n" for n in range(count)) + "PRODUCE\nPING\n")
                published = [talk.hear() for _ in range(count + 2)]
                talk.send(f"CONSUME {topics[0]} 0 ALL\nCONSUME {topics[1]} 0 ALL\nPING\n")
                taken = [talk.hear() for _ in range(count + 3)]
                return published, taken

            for port in ports[:1]:
                published, taken = await talk(port, said)
                assert published[:count] == ["OK"] * count
                assert published[count].startswith("ERROR: ")
                assert published[-1] == taken[-1] == "PONG"
                half = count // 2
                assert taken[:half] == [f"{n} m{2 * n}" for n in range(half)]
                assert taken[half] == taken[-2] == f"END {half}"
                assert taken[half + 1 : -2] == [f"{n} m{2 * n + 1}" for n in range(half)]

    run(work())


def test_what_a_client_held_at_another_process_is_given_back_when_it_goes(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, ports):
            topic = servers.topic_of(1)
            heard = await talk(
                ports[0], lambda talk: [talk.say(f"PRODUCE {topic} 0 x"), talk.say(f"CONSUME {topic} 0")]
            )
            assert heard == ["OK", "0 x"]

            def again(talk: Talk) -> str:
                while (line := talk.say(f"CONSUME {topic} 0")) == "No messages in queue":
                    pass
                return line

            assert await talk(ports[1], again) == "0 x"

    run(work())


def test_a_token_counts_at_all_processes_and_only_while_it_is_valid(tmp_path: Path) -> None:
    async def work() -> None:
        data = tmp_path / "data"
        async with opened(data, auth="tokens") as (servers, ports):
            topic = servers.topic_of(1)
            tokens = TokenFile(str(data))
            made = tokens.create("writer", ["publish"], topics=[topic])

            def said(talk: Talk) -> list[str]:
                heard = [talk.say(f"PRODUCE {topic} 0 x"), talk.say(f"AUTH {made.secret}")]
                heard += [talk.say(f"PRODUCE {topic} 0 y"), talk.say(f"CONSUME {topic} 0")]
                heard.append(talk.say(f"PRODUCE {servers.topic_of(1, 'other')} 0 z"))
                return heard

            heard = await talk(ports[0], said)
            assert [line.startswith("ERROR: ") for line in heard] == [True, False, False, True, True]
            assert heard[1:3] == ["OK", "OK"]

    run(work())


def test_a_client_hears_of_a_process_that_ends_and_goes_on_with_its_successor(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, ports):
            topic = servers.topic_of(1)
            loop = asyncio.get_running_loop()

            def said(talk: Talk) -> list[str]:
                heard = [talk.say(f"PRODUCE {topic} 0 before")]
                shard = servers.map.shard_of(topic)
                asyncio.run_coroutine_threadsafe(servers.move(shard, 0), loop).result(20)
                heard.append(talk.say(f"PRODUCE {topic} 0 here"))
                asyncio.run_coroutine_threadsafe(servers.move(shard, 1), loop).result(20)
                heard.append(talk.say(f"PRODUCE {topic} 0 there"))
                return heard

            assert await talk(ports[0], said) == ["OK"] * 3
            async with AsyncClient(servers.address) as client, await client.consumer(topic, "g") as consumer:
                found = await consumer.receive(10, wait=10)
                assert [message.value for message in found] == [b"before", b"here", b"there"]

    run(work())


def test_long_lines_for_another_process_are_taken_no_quicker_than_it_takes_them(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, ports):
            topic = servers.topic_of(1)
            value = "x" * 60_000

            def said(talk: Talk) -> list[str]:
                talk.send(f"PRODUCE {topic} 0 {value}\n" * 200)
                return [talk.hear() for _ in range(200)]

            assert await talk(ports[0], said) == ["OK"] * 200

    run(work())


def test_lines_about_a_topic_with_slices_in_several_processes_are_answered_by_any(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data", shards=4) as (servers, ports), AsyncClient(servers.address) as client:
            await client.create_topic("orders", partitions=8, spread=4)
            for turn, port in enumerate(ports):

                def said(talk: Talk, turn: int = turn) -> list[str]:
                    lines = [f"PRODUCE orders {n} m{n}" for n in range(8)]
                    lines += [f"CONSUME orders {n}" for n in range(8)]
                    lines += [f"ACK orders {n} {turn}" for n in range(8)]
                    lines += ["ACK orders 3 7", "CONSUME orders 3", "CONSUME orders 8", "PRODUCE orders 8 x", "PING"]
                    return [talk.say(line) for line in lines]

                told = await talk(port, said)
                assert told[:8] == ["OK"] * 8
                assert [line.split()[-1] for line in told[8:16]] == [f"m{n}" for n in range(8)]
                assert told[16:24] == ["ACK_OK"] * 8
                assert [line.split()[0] for line in told[24:]] == ["ERROR:", "No", "ERROR:", "ERROR:", "PONG"]
                assert "orders#" not in "".join(told)
            group = await client.group("orders", "line")
            assert (group.acked, group.lag) == (16, 0)
            said_of_any = '{"track": "orders", "data": {"a": [1, "two"]}}'
            assert await talk(ports[0], lambda talk: [talk.say(said_of_any) for _ in range(8)]) == ["OK"] * 8
            assert (await client.group("orders", "line")).lag == 8
            last = [message async for message in client.read("orders")][-1]
            assert last.value == b'{"a": [1, "two"]}'

    run(work())
