"""Small requests that would be large objects, names of megabytes, and bodies of those who may not send them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
import pytest

from penstock.client import Client
from penstock.model.config import BrokerConfig
from penstock.model.errors import Forbidden, InvalidArgument, PenstockError
from penstock.protocol.frames import Command
from penstock.protocol.publishing import encode_publish
from tests.abuse.harness import Target
from tests.server.harness import Raw

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
    large = [b"%07d" % number for number in range(200_000)]
    with one.unharmed(sent_bytes=4 * MIB), Raw(one.port) as raw:
        for sequence, batch in enumerate(([b"first"], large, [b"behind"], [b"behind", b"it"], large, [b"last"])):
            raw.send(Command.PUBLISH, encode_publish("in-order", batch, limits, "a producer", sequence)[0])
        for _ in range(6):
            command, _, _ = raw.receive()
            assert command == Command.PUBLISH | 0x80
    with Client(one.address) as client:
        values = [message.value for message in client.read("in-order")]
    assert values == [b"first", *large, b"behind", b"behind", b"it", *large, b"last"]
