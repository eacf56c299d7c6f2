"""Requests for topics of another process are forwarded: the answer is the same, whichever process was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from penstock.client import AsyncClient
from penstock.server.access.tokens import TokenFile
from tests.cluster.doors import Door, opened

SHARDS = 4


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_publishing_receiving_and_acking_work_through_the_wrong_process(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            for owner in (0, 1):
                topic = servers.topic_of(owner)
                wrong = doors[1 - owner]
                status, published = await wrong.ask("POST", f"/v1/topics/{topic}/publish", {"value": "two coffees"})
                assert (status, published["id"]) == (200, f"{topic}/0/0")
                status, found = await wrong.ask("GET", f"/v1/topics/{topic}/receive?group=g&limit=5")
                (message,) = found["messages"]
                assert message["value"] == "two coffees"
                body = {"receipt_handle": message["receipt_handle"]}
                assert await wrong.ask("POST", "/v1/messages/ack", body) == (200, {"settled": 1})
                assert (await wrong.ask("GET", f"/v1/topics/{topic}"))[1]["group_list"][0]["lag"] == 0
                assert (await doors[owner].ask("POST", "/v1/messages/ack", body))[0] == 200, "acking twice is harmless"

    run(work())


def test_every_way_to_name_a_topic_leads_to_its_owner(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            topic = servers.topic_of(1)
            wrong = doors[0]
            assert (await wrong.ask("POST", "/v1/topics", {"name": topic, "num_partitions": 2}))[0] == 201
            assert (await wrong.ask("POST", f"/v1/topics/{topic}/messages", {"messages": [{"value": "a"}]}))[0] == 200
            assert (await wrong.ask("POST", "/v1/groups", {"topic": topic, "group": "g"}))[0] == 201
            assert (await wrong.ask("POST", "/v1/groups/g/seek", {"topic": topic, "to": "latest"}))[0] == 200
            assert (await wrong.ask("POST", "/v1/groups/g/pause", {"topic": topic}))[1]["settings"]["paused"] is True
            assert (await wrong.ask("GET", f"/v1/groups/g?topic={topic}"))[0] == 200
            assert (await wrong.ask("GET", f"/v1/traces/{topic}/0/0"))[0] in (200, 404)
            assert (await wrong.ask("PATCH", f"/v1/topics/{topic}", {"visibility_timeout": 7}))[0] == 200
            assert (await wrong.ask("GET", f"/v1/topics/{topic}/messages?limit=5"))[0] == 200
            assert (await wrong.ask("DELETE", f"/v1/groups/g?topic={topic}"))[0] == 204
            assert (await wrong.ask("DELETE", f"/v1/topics/{topic}"))[0] == 204
            assert (await wrong.ask("GET", f"/v1/topics/{topic}"))[0] == 404

    run(work())


def test_receipts_of_several_processes_are_finished_by_one_request(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            receipts = []
            for owner in (0, 1):
                topic = servers.topic_of(owner)
                await doors[0].ask("POST", f"/v1/topics/{topic}/publish", {"value": "x"})
                _, found = await doors[0].ask("GET", f"/v1/topics/{topic}/receive?group=g")
                receipts.append(found["messages"][0]["receipt_handle"])
            assert await doors[1].ask("POST", "/v1/messages/ack", {"receipt_handles": receipts}) == (
                200,
                {"settled": 2},
            )
            gone = f"{receipts[0].partition(':')[0]}:{servers.topic_of(0)}/0/99@1"
            status, told = await doors[1].ask("POST", "/v1/messages/ack", {"receipt_handles": [gone, receipts[1]]})
            assert (status, told["lost"], told["settled"]) == (410, [gone], 1)

    run(work())


def test_members_are_found_whichever_process_is_asked(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            topic = servers.topic_of(1)
            await doors[0].ask("POST", f"/v1/topics/{topic}/publish", {"value": "x"})
            status, joined = await doors[0].ask("POST", "/v1/groups/g/join", {"topics": [topic]})
            assert status == 200
            member = joined["member_id"]
            for door in doors:
                assert (await door.ask("POST", "/v1/groups/g/heartbeat", {"member_id": member}))[0] == 200
            _, polled = await doors[0].ask("GET", f"/v1/groups/g/poll?member_id={member}")
            assert [message["value"] for message in polled["messages"]] == ["x"]
            assert (await doors[0].ask("POST", "/v1/groups/g/leave", {"member_id": member}))[0] == 204
            assert (await doors[1].ask("POST", "/v1/groups/g/heartbeat", {"member_id": member}))[0] == 404

    run(work())


def test_a_long_poll_a_large_body_and_a_refusal_pass_through(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            topic = servers.topic_of(1)
            wrong = doors[0]
            large = json.dumps({"messages": [{"value": "x" * 1000}] * 3000}).encode()
            status, told = await wrong.ask("POST", f"/v1/topics/{topic}/messages", large)
            assert (status, len(told["results"])) == (200, 3000)
            assert (await wrong.ask("POST", f"/v1/topics/{topic}/publish", b"{nonsense"))[0] == 400
            other = servers.topic_of(1, "other")
            await wrong.ask("POST", "/v1/topics", {"name": other})
            waiting = asyncio.create_task(wrong.ask("GET", f"/v1/topics/{other}/receive?group=g&wait=20"))
            await asyncio.sleep(0.1)
            await wrong.ask("POST", f"/v1/topics/{other}/publish", {"value": "late"})
            _, found = await waiting
            assert [message["value"] for message in found["messages"]] == ["late"]

    run(work())


def test_C11_publishes_by_http_wait_while_a_shard_moves_and_none_is_lost(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            topic = servers.topic_of(0)
            shard = servers.map.shard_of(topic)
            stopping = asyncio.Event()
            published: list[str] = []

            async def publish(door: Door, name: str) -> None:
                number = 0
                while not stopping.is_set():
                    value = f"{name} {number}"
                    status, told = await door.ask("POST", f"/v1/topics/{topic}/publish", {"value": value})
                    assert status == 200, told
                    published.append(value)
                    number += 1

            tasks = [asyncio.create_task(publish(door, f"{n}")) for n, door in enumerate(doors)]
            for turn in range(8):
                await asyncio.sleep(0.05)
                await servers.move(shard, (turn + 1) % 2)
            stopping.set()
            await asyncio.gather(*tasks)
            async with AsyncClient(servers.address) as client:
                stored = [message.value.decode() async for message in client.read(topic, 0)]
            assert sorted(stored) == sorted(published)

    run(work())


async def _said(door: Door, *said: bytes) -> bytes:
    """All that is answered on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    try:
        writer.write(b"".join(said))
        return await reader.read()
    finally:
        writer.close()


def test_requests_for_another_process_share_a_connection_to_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            topic = servers.topic_of(1)
            opened_there = servers.servers[1].services.metrics.ports["http"]
            body = {"messages": [{"value": "x"}]}
            for _ in range(5):
                assert (await doors[0].ask("POST", f"/v1/topics/{topic}/messages", body))[0] == 200
            assert opened_there.opened == 1

    run(work())


def test_a_body_that_nobody_asked_for_is_not_taken_for_the_next_request(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            topic = servers.topic_of(1)
            path = f"/v1/topics/{topic}"
            assert (await doors[0].ask("POST", "/v1/topics", {"name": topic}))[0] == 201
            asked, hidden = (
                b"%b %b HTTP/1.1\r\nhost: localhost\r\n%b\r\n" % (method, path.encode(), more)
                for method, more in ((b"GET", b"connection: close\r\n"), (b"DELETE", b""))
            )
            for length in (b"content-length: %d" % len(hidden), b"transfer-encoding: chunked"):
                body = hidden if length.startswith(b"content") else b"%x\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden)
                head = asked.removesuffix(b"\r\n") + length + b"\r\n\r\n"
                assert (await _said(doors[0], head, body)).startswith(b"HTTP/1.1 200")
                for _ in range(3):
                    assert (await doors[0].ask("GET", path))[0] == 200

    run(work())


def test_the_rest_of_a_body_that_was_refused_is_not_taken_for_the_next_request(tmp_path: Path) -> None:
    async def work() -> None:
        data = tmp_path / "data"
        async with opened(data, auth="tokens") as (servers, doors):
            tokens = TokenFile(str(data))
            reader = {"authorization": f"Bearer {tokens.create('reader', ['read'], ['*'], None).secret}"}
            topic = servers.topic_of(1)
            for _ in range(3):  # its owner refuses it while its body is on its way
                large = b"x" * (8 << 20)
                assert (await doors[0].ask("POST", f"/v1/topics/{topic}/messages", large, **reader))[0] == 403
                assert (await doors[0].ask("GET", f"/v1/topics/{topic}", **reader))[0] == 404

    run(work())


@pytest.mark.parametrize("mark", ["X-Penstock-Not-Owner", "Connection"])
def test_a_client_cannot_pretend_to_be_a_process(mark: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            topic = servers.topic_of(1)
            path = f"/v1/topics/{topic}/publish"
            status, told = await doors[0].ask("POST", path, {"value": "x"}, **{mark: "1"})
            assert (status, told["id"]) == (200, f"{topic}/0/0")

    run(work())


def test_a_websocket_about_a_topic_of_another_process_is_passed_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors), AsyncClient(servers.address) as client:
            for owner in (0, 1):
                topic = servers.topic_of(owner)
                await client.publish(topic, "two coffees")
                address = f"ws://127.0.0.1:{doors[1 - owner].port}/v1/topics/{topic}/ws?group=g"
                async with connect(address) as socket:
                    message = json.loads(await socket.recv())
                    assert (message["type"], message["value"]) == ("message", "two coffees")
                    await socket.send(json.dumps({"type": "ack", "receipt_handle": message["receipt_handle"]}))
                    assert json.loads(await socket.recv()) == {"type": "settled", "settled": 1, "lost": []}
                    await socket.send('{"type":"ping"}')
                    assert json.loads(await socket.recv()) == {"type": "pong"}
                    await socket.send("nonsense")
                    assert json.loads(await socket.recv())["type"] == "error"
                assert (await client.group(topic, "g")).acked == 1

    run(work())


def test_a_websocket_that_is_passed_on_ends_as_its_owner_ends_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors), AsyncClient(servers.address) as client:
            topic = servers.topic_of(1)
            await client.create_topic(topic)
            address = f"ws://127.0.0.1:{doors[0].port}/v1/topics/{topic}/ws"
            async with connect(address) as socket:
                with pytest.raises(ConnectionClosed):
                    await socket.recv()
                assert (socket.close_code, socket.close_reason) == (1008, "say which group to consume for: ?group=…")
            async with connect(f"{address}?group=g") as socket:
                await socket.send('{"type":"ping"}')
                assert json.loads(await socket.recv()) == {"type": "pong"}
                await servers.move(servers.map.shard_of(topic), 0)
                with pytest.raises(ConnectionClosed):
                    await asyncio.wait_for(socket.recv(), 20)
            await client.publish(topic, "after")
            async with connect(f"{address}?group=g") as socket:
                assert json.loads(await socket.recv())["value"] == "after"

    run(work())


def test_what_a_websocket_held_elsewhere_is_given_back_when_its_client_goes(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors), AsyncClient(servers.address) as client:
            topic = servers.topic_of(1)
            await client.publish(topic, "x")
            for _ in range(2):
                async with connect(f"ws://127.0.0.1:{doors[0].port}/v1/topics/{topic}/ws?group=g") as socket:
                    assert json.loads(await asyncio.wait_for(socket.recv(), 20))["value"] == "x"

    run(work())


def test_a_websocket_from_a_foreign_page_is_refused_wherever_its_topic_is(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            for owner in (0, 1):
                address = f"ws://127.0.0.1:{doors[0].port}/v1/topics/{servers.topic_of(owner)}/ws?group=g"
                with pytest.raises(InvalidStatus):
                    await connect(address, origin="http://elsewhere.example")  # type: ignore[arg-type]

    run(work())
