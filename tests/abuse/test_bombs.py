"""Small requests that would be large objects, names of megabytes, and bodies of those who may not send them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
import pytest
from websockets.sync.client import connect

from penstock.client import Client
from penstock.model.config import BrokerConfig
from penstock.model.errors import Forbidden, InvalidArgument, PenstockError
from penstock.protocol.frames import Command
from penstock.protocol.publishing import encode_publish
from tests.abuse.harness import Target
from tests.server.harness import PATIENCE_S, Raw

encode = msgspec.msgpack.Encoder().encode
MIB = 1 << 20


def array(element: bytes, size_bytes: int) -> bytes:
    count = size_bytes // len(element)
    return b"\xdd" + struct.pack(">I", count) + element * count


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One server for all bombs: it is as well behind the last as before the first."""
    with Target(tmp_path_factory.mktemp("bombed") / "data") as started:
        yield started


def headers_bomb(element: bytes, messages: int) -> bytes:
    return b"\x93\xc0" + array(b"\xc4\x00", 2 * messages) + array(element, len(element) * messages)


NO_IDS = encode(["t", b"", None, 0, 128, *[None] * 5])[:-1]
NATIVE: dict[str, tuple[Command, bytes]] = {
    "empty maps as arguments": (Command.CALL, b"\x92\xa6status\x81\xa1a" + array(b"\x80", 1_000_000)),
    "empty lists as arguments": (Command.CALL, b"\x92\xa6replay\x81\xa1a" + array(b"\x90", 16 * MIB)),
    "a call of 56 MiB": (Command.CALL, b"\x92\xa6status\x81\xa1a" + array(b"\x80", 56 * MIB)),
    "an operation with a name of 30 MB": (Command.CALL, encode(["a" * 30_000_000, {}])),
    "an operation with a name of 1 MB": (Command.CALL, encode(["creat_topic" * 90_000, {}])),
    "many options that there are not": (Command.CALL, encode(["create_topic", {f"a{n}": 1 for n in range(90_000)}])),
    "headers without messages": (Command.PUBLISH, encode(["t", b"\x93\xc0\x91\xc4\x00" + array(b"\x80", 30 * MIB)])),
    "a million tiny headers": (Command.PUBLISH, encode(["t", headers_bomb(b"\x81\xa0\xa0", 1_000_000)])),
    "a million headers in a stage": (Command.STAGE, encode(["s", "w", 0, ["t", headers_bomb(b"\x80", 1_000_000)]])),
    "30 million dedupe ids": (
        Command.PUBLISH,
        encode(["t", b"", None, 0, 128, *[None] * 5])[:-1] + array(b"\xc0", 30 * MIB),
    ),
    "a million topics": (Command.SUBSCRIBE, b"\x82\xa5group\xa1g\xa6topics" + array(b"\xa0", 1_000_000)),
    "four million runs": (Command.ACK, b"\x92\x01\x91\x94\xa1t\x00\x01" + array(b"\x01", 4 * MIB - 20)),
    "800,000 leases": (Command.ACK, b"\x92\x01" + array(b"\x94\xa0\x00\x00\x90", 4 * MIB - 20)),
    "a PING of 60 MiB": (Command.PING, bytes(60 * MIB)),
}


@pytest.mark.parametrize("name", NATIVE)
def test_H2_a_bomb_on_the_native_port_harms_nobody(one: Target, name: str) -> None:
    command, body = NATIVE[name]
    with one.unharmed(sent_bytes=len(body)), Raw(one.port) as raw:
        raw.subscribe("t")
        with pytest.raises(PenstockError) as refused:
            raw.ask(command, body)
        assert isinstance(refused.value, InvalidArgument)
        assert len(str(refused.value)) < 20_000


def test_H3_what_a_token_is_not_for_is_refused_before_it_is_decoded(guarded: Target) -> None:
    reader = guarded.token("reader", "read")
    body = encode(["orders", b"\x93\xc0\x91\xc4\x00" + array(b"\x80", 40 * MIB)])
    call = b"\x92\xacdelete_topic\x81\xa1a" + array(b"\x80", 16 * MIB)
    with guarded.unharmed(sent_bytes=len(body) + len(call)), Raw(guarded.port, token=reader) as raw:
        for command, hostile in ((Command.PUBLISH, body), (Command.CALL, call)):
            with pytest.raises(Forbidden):
                raw.ask(command, hostile)


def test_a_large_batch_keeps_its_place_among_those_around_it(one: Target) -> None:
    """It is decoded in a thread, and what was sent behind it waits for it."""
    limits = BrokerConfig()
    large = [b"%020d" % number for number in range(60_000)]
    with one.unharmed(sent_bytes=4 * MIB), Raw(one.port) as raw:
        for sequence, batch in enumerate(([b"first"], large, [b"behind"], [b"behind", b"it"], large, [b"last"])):
            raw.send(Command.PUBLISH, encode_publish("in-order", batch, limits, "a producer", sequence)[0])
        for _ in range(6):
            command, _, _ = raw.receive()
            assert command == Command.PUBLISH | 0x80
    with Client(one.address) as client:
        values = [message.value for message in client.read("in-order")]
    assert values == [b"first", *large, b"behind", b"behind", b"it", *large, b"last"]


TINY = b'{"messages":[' + b'{"value":""},' * (4 * MIB) + b'{"value":""}]}'
HTTP: dict[str, tuple[str, str, bytes, int]] = {
    "four million messages": ("POST", "/v1/topics/t/messages", TINY, 413),
    "a million messages": ("POST", "/v1/topics/t/messages", TINY[: 13 + 13 * 900_000] + b'{"value":""}]}', 413),
    "no messages at all": ("POST", "/v1/topics/t/messages", b'{"messages":[' + b"0," * 16 * MIB + b"0]}", 413),
    "a value with many commas": (
        "POST",
        "/v1/topics/t/messages",
        b'{"messages":[{"value":"' + b"," * 9 * MIB + b'"}]}',
        200,
    ),
    "no end of a text": ("POST", "/v1/topics/t/messages", b'{"messages":[{"value":"' + b',\\"' * 2 * MIB, 400),
    "headers of one message": (
        *("POST", "/v1/topics/t/publish"),
        b'{"value":"","headers":{' + b",".join(b'"%06x":""' % number for number in range(2 * MIB)) + b"}}",
        413,
    ),
    "a topic of 1 MB": ("POST", "/v1/topics", b'{"name":"' + b"a" * 1_000_000 + b'"}', 400),
    "weights": (
        *("POST", "/v1/topics"),
        b'{"name":"t","lane_weights":{' + b",".join(b'"%05x":1' % number for number in range(90_000)) + b"}}",
        400,
    ),
    "offsets": (
        *("POST", "/v1/groups/g/offsets"),
        b'{"topic":"t","offsets":{' + b",".join(b'"%05x":1' % number for number in range(90_000)) + b"}}",
        400,
    ),
    "a million receipts": ("POST", "/v1/messages/ack", b'{"receipt_handles":[' + b'"",' * MIB + b'""]}', 400),
    "a million ids": ("POST", "/v1/topics/t/dead-letters/purge", b'{"ids":[' + b'"",' * MIB + b'""]}', 400),
    "a million topics": ("POST", "/v1/groups/g/join", b'{"topics":[' + b'"",' * 300_000 + b'""]}', 400),
    "a query of many parts": ("GET", "/v1/topics?" + "&".join(f"a{n}=" for n in range(9000)), b"", 400),
}


@pytest.mark.parametrize("name", HTTP)
def test_H2_a_bomb_on_the_http_port_harms_nobody(one: Target, name: str) -> None:
    method, path, body, status = HTTP[name]
    with one.unharmed(sent_bytes=len(body)):
        found, reply = one.ask_http(method, path, body, {"content-type": "application/json"})
        assert (found, len(reply) < 200_000) == (status, True), reply[:200]


def test_H3_what_a_token_is_not_for_is_refused_before_it_is_read_by_http(guarded: Target) -> None:
    headers = {"authorization": f"Bearer {guarded.token('reader', 'read')}", "content-type": "application/json"}
    with guarded.unharmed():
        for path in ("/v1/topics/t/messages", "/v1/topics/t/publish", "/v1/topics"):
            with guarded.connect(guarded.http_port) as connection:
                lines = [f"POST {path} HTTP/1.1", "host: localhost", f"content-length: {56 * MIB}"]
                lines += [f"{name}: {value}" for name, value in headers.items()]
                connection.sendall("\r\n".join([*lines, "", ""]).encode())
                expected = b"413" if path == "/v1/topics" else b"403"
                assert connection.recv(1 << 16).split()[1] == expected  # and nothing of the body was sent


LINES = {
    "a track of 1 MB": b'{"track":"' + b"a" * 1_000_000 + b'","data":1}',
    "a priority of 1 MB": b'{"track":"t","data":1,"priority":"' + b"a" * 1_000_000 + b'"}',
    "a number of 1 MB": b'{"track":"t","data":1,"priority":' + b"1" * 1_000_000 + b"}",
    "many fields": b"{" + b'"a":[],' * 140_000 + b'"data":1}',
    "nested": b'{"track":"t","data":' + b"[" * 1_000_000,
    "a partition of 1 MB": b"PRODUCE t " + b"1" * 1_000_000 + b" x",
    "a command of 1 MB": b"A" * 1_000_000,
    "words": b"CONSUME " + b"a " * 500_000,
    "a topic of 1 MB": b"PRODUCE " + b"a" * 1_000_000 + b" 0 x",
    "quotes": b'PRODUCE t 0 "' + b'\\"' * 500_000,
}


def test_H2_bombs_on_the_text_port_harm_nobody(one: Target) -> None:
    with one.unharmed(sent_bytes=sum(map(len, LINES.values()))), one.connect(one.line_port) as connection:
        replies = connection.makefile("rb")
        for name, line in LINES.items():
            connection.sendall(line + b"\n")
            reply = replies.readline()
            assert reply.startswith(b"ERROR: "), (name, reply[:200])
            assert len(reply) < 5_000, name


def test_H2_bombs_in_a_websocket_harm_nobody(one: Target) -> None:
    bombs = {
        "receipts": b'{"type":"ack","receipt_handles":[' + b'"",' * 300_000 + b'""]}',
        "nested": b'{"type":"ack","receipt_handles":' + b"[" * 1_000_000,
        "a type of 1 MB": b'{"type":"' + b"a" * 1_000_000 + b'"}',
        "a receipt of 1 MB": b'{"type":"ack","receipt_handle":"' + b"a" * 1_000_000 + b'"}',
        "a number of 1 MB": b'{"type":"credits","credits":' + b"1" * 1_000_000 + b"}",
    }
    address = f"ws://127.0.0.1:{one.http_port}/v1/topics/socket/ws?group=g"
    with one.unharmed(sent_bytes=sum(map(len, bombs.values()))), connect(address) as socket:
        for name, bomb in bombs.items():
            socket.send(bomb.decode())
            reply = socket.recv(timeout=PATIENCE_S)
            assert msgspec.json.decode(reply)["type"] == "error", name
            assert len(reply) < 20_000, name
