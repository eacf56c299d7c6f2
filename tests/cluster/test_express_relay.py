"""Small plain publishes for another process take the express lane to it: who asks cannot tell the difference."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.client import AsyncClient
from penstock.server.peer_places import OneMachine
from tests.cluster.doors import Door, opened

_BODY = b'{"value": "x"}'


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


async def _replies(door: Door, *requests: bytes) -> bytes:
    """All that comes back until the server closes the connection, as the last request asks it to."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    try:
        writer.write(b"".join(requests))
        return await reader.read()
    finally:
        writer.close()


def _post(topic: str, body: bytes = _BODY, version: str = "1.1", more: str = "") -> bytes:
    head = f"POST /v1/topics/{topic}/publish HTTP/{version}\r\nhost: x\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def _without_date(reply: bytes) -> bytes:
    return re.sub(rb"date: [^\r]*\r\n", b"", reply)


@pytest.mark.parametrize(
    "requests",
    [
        lambda topic: [_post(topic, more="connection: close\r\n")],
        lambda topic: [_post(topic, version="1.0")],
        lambda topic: [_post(topic), _post(topic), _post(topic, more="connection: close\r\n")],
        lambda topic: [_post(topic, b"{nonsense", more="connection: close\r\n")],
    ],
    ids=["the last request", "HTTP 1.0", "one behind the other", "a body that is refused"],
)
def test_a_reply_that_is_passed_on_is_that_of_the_owner(requests: Callable[[str], list[bytes]], tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            topic, other = servers.topic_of(0), servers.topic_of(1)
            direct = await _replies(doors[0], *requests(topic))
            passed_on = await _replies(doors[0], *requests(other))
            assert _without_date(passed_on) == _without_date(direct.replace(topic.encode(), other.encode()))
            assert passed_on.count(b"HTTP/1.1 ") == len(requests(topic))

    run(work())


def test_a_publish_is_not_repeated_when_its_owner_ends_in_the_middle(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            asked: list[bytes] = []

            async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                asked.append(await reader.readuntil(_BODY))
                writer.close()

            membership = servers.servers[0].membership
            assert membership is not None
            sockets = tmp_path / "dying"
            sockets.mkdir()
            membership.neighbours = OneMachine(0, 0, sockets)
            async with await asyncio.start_unix_server(die, sockets / "1.http"):
                status, told = await doors[0].ask("POST", f"/v1/topics/{servers.topic_of(1)}/publish", _BODY)
            assert (status, len(asked)) == (503, 1) and "not known whether it was done" in told["error"]

    run(work())


def test_a_publish_waits_for_an_owner_that_cannot_be_reached_yet(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors), AsyncClient(servers.address) as client:
            membership = servers.servers[0].membership
            assert membership is not None
            topic, right = servers.topic_of(1), membership.neighbours
            looked = asyncio.Event()

            class Nowhere(OneMachine):
                def socket_of(self, member: int, port: str) -> str:
                    looked.set()
                    return str(tmp_path / "nobody")

            membership.neighbours = Nowhere(0, 0, tmp_path)
            asking = asyncio.create_task(doors[0].ask("POST", f"/v1/topics/{topic}/publish", {"value": "x"}))
            await looked.wait()
            membership.neighbours = right
            status, told = await asking
            assert (status, told["id"]) == (200, f"{topic}/0/0")
            assert [message.value async for message in client.read(topic, 0)] == [b"x"]

    run(work())
