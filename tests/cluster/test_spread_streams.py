"""Topics that are spread over shards of several processes, as streams and WebSockets: all of their messages come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

import penstock
from penstock.client.client import AsyncClient
from penstock.model.placement import shards_of
from penstock.server.access.tokens import TokenFile
from tests.cluster.doors import Door, opened
from tests.cluster.test_spread_http import SHARDS, run, spread_topic


@asynccontextmanager
async def streaming(door: Door, query: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The messages of a stream, as they come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(f"GET /v1/topics/orders/stream?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    status = await reader.readline()
    assert b"200" in status, status

    async def messages() -> AsyncIterator[dict[str, Any]]:
        while (line := await reader.readline()) not in (b"", b"0\r\n"):  # the last chunk
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))

    try:
        yield messages()
    finally:
        writer.close()


async def come(messages: AsyncIterator[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """So many messages of a stream."""
    return [await anext(messages) for _ in range(count)]


async def leased(client: AsyncClient) -> int:
    return (await client.group("orders", "g")).leased


async def nothing_leased(client: AsyncClient) -> None:
    """Wait until all that was not finished is given back."""
    while await leased(client):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("at", [0, 1])
def test_a_stream_has_the_messages_of_all_slices(at: int, tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, doors, client):
            await client.publish_many("orders", [penstock.Message(f"{n}", partition=n % 8) for n in range(60)])
            async with streaming(doors[at], "group=g&credits=10") as messages:
                found = await come(messages, 10)
                assert await leased(client) == 10, "each process has its share of the credits"
                while len(found) < 60:
                    done = {"receipt_handles": [message["receipt_handle"] for message in found[-10:]]}
                    assert (await doors[1 - at].ask("POST", "/v1/messages/ack", done))[1]["settled"] == 10
                    found += await come(messages, 10)
                assert {message["value"] for message in found} == {str(n) for n in range(60)}
                await client.publish("orders", "late", partition=3)
                done = {"receipt_handles": [message["receipt_handle"] for message in found[50:]]}
                await doors[at].ask("POST", "/v1/messages/ack", done)
                assert (await come(messages, 1))[0]["value"] == "late"
            await nothing_leased(client)

    run(work())


def test_a_stream_that_cannot_be_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, doors, client):
            for door in doors:
                for query in ("", "?group=g&credits=0", "?group=g&credits=x", "?group="):
                    assert (await door.ask("GET", f"/v1/topics/orders/stream{query}"))[0] == 400
            assert [group.name for group in await client.groups()] == []

    run(work())


def test_a_stream_ends_with_a_slice_that_moves_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (servers, doors, client):
            await client.publish_many("orders", [penstock.Message(f"{n}", partition=n % 8) for n in range(8)])
            async with streaming(doors[0], "group=g&credits=100") as messages:
                assert len(await come(messages, 8)) == 8
                shard = shards_of("orders", SHARDS, SHARDS)[1]
                await servers.move(shard, 1 - servers.map.shards[shard].process, drain_s=0.01)
                with pytest.raises(StopAsyncIteration):
                    await anext(messages)
            async with streaming(doors[0], "group=g&credits=100") as messages:
                assert {message["value"] for message in await come(messages, 8)} == {str(n) for n in range(8)}

    run(work())


async def until_answer(socket: ClientConnection, found: list[dict[str, Any]]) -> dict[str, Any]:
    """The next answer; messages that come meanwhile are added."""
    while True:
        frame: dict[str, Any] = json.loads(await socket.recv())
        if frame["type"] != "message":
            return frame
        found.append(frame)


@pytest.mark.parametrize("at", [0, 1])
def test_a_websocket_has_the_messages_of_all_slices_and_finishes_them(at: int, tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, doors, client):
            await client.publish_many("orders", [penstock.Message(f"{n}", partition=n % 8) for n in range(40)])
            address = f"ws://127.0.0.1:{doors[at].port}/v1/topics/orders/ws?group=g&credits=8"
            found: list[dict[str, Any]] = []
            async with connect(address) as socket:
                while len(found) < 8:
                    found.append(json.loads(await socket.recv()))
                assert await leased(client) == 8
                handles = [message["receipt_handle"] for message in found]
                assert len({handle.partition("-")[0] for handle in handles}) == 2, "of both processes"
                await socket.send(json.dumps({"type": "ack", "receipt_handles": handles[:7]}))
                answer = await until_answer(socket, found)
                assert (answer["type"], answer["settled"], answer["lost"]) == ("settled", 7, [])
                await socket.send(json.dumps({"type": "release", "receipt_handle": handles[7]}))
                assert (await until_answer(socket, found))["settled"] == 1
                await socket.send('{"type": "credits", "credits": 100}')
                assert await until_answer(socket, found) == {"type": "credits", "credits": 100}
                while len(found) < 41:
                    found.append(json.loads(await socket.recv()))
                assert {message["value"] for message in found} == {str(n) for n in range(40)}
                await socket.send('{"type": "ping"}')
                assert await until_answer(socket, found) == {"type": "pong"}
                for wrong in ("{", '{"type": "dance"}', '{"type": "ack", "receipt_handles": [7]}', '{"type": "ack"}'):
                    await socket.send(wrong)
                    assert (await until_answer(socket, found))["type"] == "error"
                await socket.send('{"type": "ack", "receipt_handle": "1-0123456789abcdef:orders/1/0@1"}')
                assert (await until_answer(socket, found))["settled"] == 0
            await nothing_leased(client)
            assert (await client.group("orders", "g")).acked == 7

    run(work())


@pytest.mark.parametrize("query", ["", "?group=g&credits=x"])
def test_a_websocket_that_cannot_be_is_closed_with_the_reason(query: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, doors, _client):
            for door in doors:
                async with connect(f"ws://127.0.0.1:{door.port}/v1/topics/orders/ws{query}") as socket:
                    with pytest.raises(ConnectionClosed):
                        await socket.recv()
                    assert socket.close_code == 1008, socket.close_reason

    run(work())


@pytest.mark.parametrize("credits", ["true", "1e400", "-1", "100001", "9" * 5000, '"8"', "null"])
def test_credits_that_are_none_are_an_error_and_the_socket_goes_on(credits: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            spread_topic(tmp_path) as (_, doors, _client),
            connect(f"ws://127.0.0.1:{doors[0].port}/v1/topics/orders/ws?group=g") as socket,
        ):
            await socket.send(f'{{"type": "credits", "credits": {credits}}}')
            assert (await until_answer(socket, []))["type"] == "error"
            await socket.send('{"type": "ping"}')
            assert await until_answer(socket, []) == {"type": "pong"}

    run(work())


def test_tokens_count_for_streams_in_every_process(tmp_path: Path) -> None:
    async def work() -> None:
        data = tmp_path / "data"
        async with opened(data, auth="tokens") as (_, doors):
            tokens = TokenFile(str(data))
            admin, one, other = (
                {"authorization": f"Bearer {tokens.create(name, [scope], topics=topics).secret}"}
                for name, scope, topics in (
                    ("a", "admin", ["*"]),
                    ("b", "consume", ["orders"]),
                    ("c", "consume", ["cakes"]),
                )
            )
            made = {"name": "orders", "partitions": 8, "spread": SHARDS}
            assert (await doors[0].ask("POST", "/v1/topics", made, **admin))[0] == 201
            for door in doors:
                address = f"ws://127.0.0.1:{door.port}/v1/topics/orders/ws?group=g"
                assert (await door.ask("GET", "/v1/topics/orders/stream?group=g", **other))[0] == 403
                async with connect(address, additional_headers=other) as socket:
                    with pytest.raises(ConnectionClosed):
                        await socket.recv()
                async with connect(address, additional_headers=one) as socket:
                    await socket.send('{"type": "ping"}')
                    assert await until_answer(socket, []) == {"type": "pong"}

    run(work())
