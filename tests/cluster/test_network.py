"""Members on a network reach every port of one another through the native port, once they have proven that they may."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httptools
import pytest
import uvloop
from websockets.asyncio.client import connect

from penstock.client import AsyncClient
from penstock.model.cluster_map import ClusterMap, ShardPlace
from penstock.model.errors import BrokerClosed
from penstock.protocol.peering import PREFIX, Introduction, PeerRefused
from penstock.server.access.principal import ANYBODY
from penstock.server.access.tls import peer_context
from penstock.server.http.destinations import by_body, split_by_process
from penstock.server.membership import Membership
from penstock.server.peer_places import ManyMachines, Neighbours, open_streams
from penstock.testing.line import Line
from tests.cluster.several import SECRET, Several, several
from tests.server.certificates import Certificates, make_certificates
from tests.server.harness import soon

_PORTS = ("native", "http", "line")
Work = Callable[[Several], Awaitable[None]]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def run(path: Path, work: Work, *, loop: Any = asyncio, **options: Any) -> None:
    """Do something with two servers on a network."""

    async def main() -> None:
        async with several(path / "data", network=True, ports=_PORTS, **options) as servers:
            await asyncio.wait_for(work(servers), 60)

    loop.run(main())


async def _ask_http(servers: Several, number: int, request: bytes) -> tuple[int, Any]:
    config, answer = servers.servers[number].config, bytearray()
    context = None if config.tls_cert is None else peer_context(config)
    reader, writer = await asyncio.open_connection(*servers.servers[number].addresses["http"], ssl=context)
    writer.write(request)
    parser = httptools.HttpResponseParser(type("Parts", (), {"on_body": lambda _, body: answer.extend(body)})())
    parser.feed_data(await reader.read())
    writer.close()
    return parser.get_status_code(), json.loads(answer)


def _post(path: str, body: bytes, more: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _use_all_ports(servers: Several, client: AsyncClient, certificates: Certificates | None) -> None:
    """Ask one server, by every port, for what the other one has."""
    topic = servers.topic_of(1)
    await client.create_topic(topic)
    assert [info.name for info in await client.topics()] == [topic], "the native port asks all"
    for more in ("", "origin: http://localhost\r\n"):  # in the express lane, and beside it
        path = f"/v1/topics/{topic}/publish"
        status, told = await _ask_http(servers, 0, _post(path, b'{"value": "by HTTP"}', more))
        assert status == 200, told
    reader, writer = await _line(servers, 0)
    writer.write(f"PRODUCE {topic} 0 by_line\r\n".encode())
    assert (await reader.readline()).startswith(b"OK")
    writer.close()
    scheme, context = ("ws", None) if certificates is None else ("wss", peer_context(servers.servers[0].config))
    port = servers.servers[0].addresses["http"][1]
    async with connect(f"{scheme}://localhost:{port}/v1/topics/{topic}/ws?group=g", ssl=context) as events:
        heard = [json.loads(await events.recv())["value"] for _ in range(3)]
    assert heard == ["by HTTP", "by HTTP", "by_line"]


async def _line(servers: Several, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    config = servers.servers[number].config
    context = None if config.tls_cert is None else peer_context(config)
    return await asyncio.open_connection(*servers.servers[number].addresses["line"], ssl=context)


@pytest.mark.parametrize("loop", [asyncio, uvloop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("encrypted", ["", "tls", "mutual tls"])
def test_every_port_answers_for_every_member(
    loop: Any, encrypted: str, tmp_path: Path, certificates: Certificates
) -> None:
    own, options = certificates if encrypted else None, {}
    if own is not None:
        options = {"tls_cert": str(own.server), "tls_key": str(own.server_key)}
    if own is not None and encrypted == "mutual tls":
        options["tls_client_ca"] = str(own.ca)

    async def work(servers: Several) -> None:
        shown: dict[str, Any] = {} if own is None else {"ca": own.ca, "cert": own.client, "key": own.client_key}
        async with AsyncClient(servers.own_address(0), **shown) as client:
            await _use_all_ports(servers, client, own)

    run(tmp_path, work, loop=loop, **options)


def test_a_member_with_another_secret_is_refused_and_told_why(tmp_path: Path, caplog: Any) -> None:
    async def work(servers: Several) -> None:
        stranger = ManyMachines(5, b"the secret of another", {1: servers.own_address(1)})
        with pytest.raises(PeerRefused, match="does not know the secret of this cluster"):
            await open_streams(stranger.place_of(1), "http", 1024)
        assert "member 1, at 127.0.0.1:" in caplog.text

    run(tmp_path, work)


def test_a_member_that_took_over_an_address_is_not_taken_for_the_one_that_had_it(tmp_path: Path) -> None:
    async def work(servers: Several) -> None:
        mistaken = ManyMachines(5, SECRET, {4: servers.own_address(1)})
        with pytest.raises(PeerRefused, match="this is member 1, not 4"):
            await open_streams(mistaken.place_of(4), "http", 1024)

    run(tmp_path, work)


def test_a_member_whose_address_nobody_knows_cannot_be_reached(tmp_path: Path) -> None:
    async def work(servers: Several) -> None:
        with pytest.raises(OSError, match="nobody knows where member 4 is"):
            await open_streams(ManyMachines(5, SECRET).place_of(4), "http", 1024)

    run(tmp_path, work)


def test_a_member_that_answers_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.peer_places._CONNECT_S", 0.05)

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:  # who connects is not even accepted
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            with pytest.raises(TimeoutError):
                await open_streams(ManyMachines(5, SECRET, {4: address}).place_of(4), "http", 1024)

    asyncio.run(main())


def test_those_who_ask_at_once_share_a_link(tmp_path: Path) -> None:
    async def work(servers: Several) -> None:
        first, native = servers.servers[0].services, servers.servers[1].services.metrics.ports["native"]
        await asyncio.gather(*(first.call(ANYBODY, "topics") for _ in range(10)))
        await soon(lambda: native.open == 1, "the others are closed")

    run(tmp_path, work)


def test_a_member_that_is_gone_for_good_is_not_called_any_more(tmp_path: Path) -> None:
    async def work(servers: Several) -> None:
        first = servers.servers[0]
        assert first.services.peers is not None
        assert first.membership is not None
        link = await first.services.peers._link(1)
        servers.map.addresses.pop(1)
        servers.tell()
        assert link.closed
        with pytest.raises(BrokerClosed, match="process 1 cannot be reached"):
            await first.services.peers._link(1)

    run(tmp_path, work)


@pytest.mark.parametrize("more", ["", "origin: http://localhost\r\n"], ids=["express", "usual"])
def test_C15_a_request_by_http_waits_for_whoever_takes_over_what_a_lost_member_had(more: str, tmp_path: Path) -> None:
    async def work(servers: Several) -> None:
        topic = servers.topic_of(1)
        lost = servers.map.addresses.pop(1)  # nobody can reach it
        asking = asyncio.create_task(
            _ask_http(servers, 0, _post(f"/v1/topics/{topic}/publish", b'{"value": "x"}', more))
        )
        await asyncio.sleep(2.5)  # nothing is heard of it for so long
        assert not asking.done()
        servers.map.addresses[1] = lost
        await servers.move(servers.map.shard_of(topic), 0)
        status, told = await asking
        assert (status, told["id"]) == (200, f"{topic}/0/0")

    run(tmp_path, work)


def test_members_may_have_any_number(tmp_path: Path) -> None:
    machines = ManyMachines(0, SECRET)
    membership = Membership(0, machines, ClusterMap([ShardPlace(1, 123_456_789_012)], {}))
    body = b'{"member_id": "123456789012-%b"}' % (b"0" * 16)
    assert by_body(membership, "/v1/groups/g/leave", body) == 123_456_789_012
    assert list(split_by_process(["123456789012-%s:t/0/0@1" % ("0" * 16)])) == [123_456_789_012]


@pytest.mark.parametrize("more", ["", "origin: http://localhost\r\n"], ids=["express", "usual"])
def test_nobody_waits_for_a_member_that_is_taken_for_gone(more: str, tmp_path: Path) -> None:
    async def work(servers: Several) -> None:
        topic = servers.topic_of(1)
        with Line(servers.servers[1].address[1]) as line:
            servers.map.addresses[1] = line.address
            request = _post(f"/v1/topics/{topic}/publish", b'{"value": "x"}', more)
            assert (await _ask_http(servers, 0, request))[0] == 200
            assert len(await servers.servers[0].services.call(ANYBODY, "topics")) == 1
            line.hold_back()  # it is there, and says nothing
            held = asyncio.create_task(_ask_http(servers, 0, request))
            lists = asyncio.create_task(servers.servers[0].services.call(ANYBODY, "topics"))
            silent = servers.servers[1]
            await soon(
                lambda: silent.broker.layout(topic).messages[0].end == 2,
                "it was published, and its reply is held back",
            )
            for shard, place in enumerate(servers.map.shards):
                if place.process == 1:
                    await silent.release_shard(shard, 0)
                    await servers.take(shard, 0)
            servers.map = ClusterMap(servers.map.shards, {0: servers.map.addresses[0]})
            servers.tell()
            status, told = await held
            assert status == 503 and "it is not known whether it was done" in told["error"]
            assert [info.name for info in await lists] == [topic]

    run(tmp_path, work)


def test_a_request_that_another_member_passes_on_is_not_judged_by_the_name_that_it_came_by(tmp_path: Path) -> None:
    async def work(servers: Several) -> None:
        path = f"/v1/topics/{servers.topic_of(1)}".encode()
        request = b"GET %b HTTP/1.1\r\nhost: another.machine\r\nconnection: close\r\n\r\n" % path
        assert (await _ask_http(servers, 1, request))[0] == 403
        member = ManyMachines(0, SECRET, {1: servers.own_address(1)})
        reader, writer = await open_streams(member.place_of(1), "http", 1 << 16)
        writer.write(request)
        assert (await reader.read()).startswith(b"HTTP/1.1 404")
        writer.close()

    run(tmp_path, work)


def test_who_has_been_let_in_is_asked_for_the_token_of_the_client(tmp_path: Path) -> None:
    async def work(servers: Several) -> None:
        member: Neighbours = ManyMachines(0, SECRET, {1: servers.own_address(1)})
        reader, writer = await open_streams(member.place_of(1), "http", 1 << 16)
        writer.write(b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 401")
        writer.close()
        reader, writer = await open_streams(member.place_of(1), "line", 1 << 16)
        writer.write(b"PRODUCE orders 0 x\r\n")
        assert b"asks for a token" in await reader.readline()
        writer.close()

    run(tmp_path, work, auth="tokens")


def test_what_is_said_behind_the_proof_is_not_lost(tmp_path: Path) -> None:
    async def work(servers: Several) -> None:
        reader, writer = await asyncio.open_connection(*servers.servers[1].address)
        introduction = Introduction(SECRET, "line", 1, "0" * 32, b"")
        writer.write(introduction.first())
        proof = introduction.answer((await reader.readline()).removesuffix(b"\n"))
        writer.write(proof + b"PING\r\n")
        assert await reader.readline() == PREFIX + b"welcome\n"
        assert (await reader.readline()).startswith(b"PONG")
        writer.close()

    run(tmp_path, work)
