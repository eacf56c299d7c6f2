"""Those who only say that they are members: they are told so, shut out, counted, and disturb nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.client import AsyncClient
from penstock.protocol.frames import Command, frame
from penstock.protocol.peering import LINE_BYTES_MAX, PREFIX, Introduction
from penstock.protocol.session import Hello, encode
from tests.cluster.several import SECRET, Several, several

Work = Callable[[Several], Awaitable[None]]
_FIRST = Introduction(SECRET, "http", 1, "0" * 32, b"").first()


def run(path: Path, work: Work) -> None:
    """Do something to two servers on a network, and see that a client is served all the while."""

    async def main() -> None:
        async with (
            several(path / "data", network=True, ports=("native", "http", "line")) as servers,
            AsyncClient(servers.own_address(1)) as client,
        ):
            await asyncio.wait_for(work(servers), 60)
            topic = servers.topic_of(0)  # by way of the other server
            await client.publish(topic, "x")
            assert [info.name for info in await client.topics()] == [topic]
            assert client.link.generation == 1, "its connection was never lost"

    asyncio.run(main())


async def told(servers: Several, *said: bytes) -> bytes:
    """All that a server answers to what is said, each after the line that answers what was said before."""
    reader, writer = await asyncio.open_connection(*servers.servers[1].address)
    heard = b""
    try:
        for number, each in enumerate(said):
            heard += await reader.readline() if number else b""
            writer.write(each)
        return heard + await reader.read()
    except ConnectionResetError:  # what was said behind the end
        return heard
    finally:
        writer.close()


def refused(servers: Several) -> int:
    return servers.servers[1].services.metrics.peers_refused


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (PREFIX + b"GARBAGE\n", b"the first line names a port, the number of a member and a nonce"),
        (PREFIX + b"\xff\xfe\n", b"the first line names a port, the number of a member and a nonce"),
        (PREFIX + b"http 1 " + b"0" * LINE_BYTES_MAX, b"a line of a greeting has less than"),
        (PREFIX + b"http " + b"9" * 200 + b" " + b"0" * 32 + b"\n", b"the first line names a port"),
        (b"PENSTOCK-PEER/2 http 1 " + b"0" * 32 + b"\n", b"a line of a greeting begins with PENSTOCK-PEER/1"),
        (_FIRST.replace(b"http", b"metrics"), b"this member has no port called metrics"),
        (_FIRST.replace(b" 1 ", b" 7 "), b"this is member 1, not 7"),
    ],
)
def test_what_is_no_greeting_is_refused_with_a_reason(said: bytes, why: bytes, tmp_path: Path) -> None:
    async def work(servers: Several) -> None:
        answer = await told(servers, said)
        assert answer.startswith(PREFIX + b"refused: ") and why in answer
        assert refused(servers) == 1

    run(tmp_path, work)


def test_a_wrong_proof_is_refused_and_what_follows_it_is_not_heard(tmp_path: Path) -> None:
    async def work(servers: Several) -> None:
        hello = frame(Command.HELLO, 1, encode(Hello([1])))
        answer = await told(servers, _FIRST, PREFIX + b"0" * 64 + b"\n" + hello)
        assert answer.endswith(PREFIX + b"refused: the proof is wrong: members of one cluster have the same secret\n")
        assert refused(servers) == 1

    run(tmp_path, work)


def test_a_proof_that_was_overheard_opens_nothing(tmp_path: Path) -> None:
    async def work(servers: Several) -> None:
        reader, writer = await asyncio.open_connection(*servers.servers[1].address)
        introduction = Introduction(SECRET, "http", 1, "0" * 32, b"")
        writer.write(introduction.first())
        proof = introduction.answer((await reader.readline()).removesuffix(b"\n"))
        writer.write(proof)
        assert await reader.readline() == PREFIX + b"welcome\n"
        writer.close()
        assert b"refused: the proof is wrong" in await told(servers, introduction.first(), proof)
        assert refused(servers) == 1

    run(tmp_path, work)


@pytest.mark.parametrize("begun", [PREFIX, _FIRST])
def test_a_slow_greeting_is_ended(begun: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.native.arrival.HANDSHAKE_S", 0.05)

    async def work(servers: Several) -> None:
        assert (await told(servers, begun)).endswith(b"refused: the greeting was not over within 0.05 s\n")
        assert refused(servers) == 1

    run(tmp_path, work)


def test_many_who_begin_a_greeting_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    async def work(servers: Several) -> None:
        native = servers.servers[1].services.metrics.ports["native"]
        for _ in range(50):
            _, writer = await asyncio.open_connection(*servers.servers[1].address)
            writer.write(_FIRST)
            writer.close()
        while native.opened < 50 or native.open > 2:  # noqa: ASYNC110 - which the client has
            await asyncio.sleep(0.01)
        assert refused(servers) == 0

    run(tmp_path, work)


def test_a_server_that_has_no_members_on_a_network_does_not_greet(tmp_path: Path) -> None:
    async def main() -> None:
        async with several(tmp_path / "data") as servers:
            answer = await told(servers, _FIRST)
            assert b"this is the native port of Penstock" in answer and PREFIX + b"refused" not in answer

    asyncio.run(main())
