"""Clients that misbehave, by malice or by mistake: they hear what is wrong, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import AsyncClient, Client
from penstock.model.errors import ConsumerNotFound, Overloaded
from penstock.protocol.consuming import Cancel, ConsumerRequest, Finish, Held, Push, Receive
from penstock.protocol.failures import decode_failure
from penstock.protocol.frames import ERROR, HEADER, REPLY, Command, ProtocolError, frame
from penstock.protocol.session import Call, Hello, Read, encode
from penstock.server.native import connection as connections
from penstock.server.operations import HANDLERS
from tests.server.harness import Child, Raw, Running, publishing_lightly, run, until

MIB = 1 << 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as running:
        yield running


def said_before_the_end(raw: Raw) -> list[penstock.PenstockError]:
    """The errors that the server told until it closed the connection."""
    errors = []
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            command, _, body = raw.receive()
            if command == ERROR:
                errors.append(decode_failure(body))
    return errors


# Bytes that are nothing.

NONSENSE: dict[str, tuple[bytes, str]] = {
    "an HTTP request": (b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP, TLS and text are spoken elsewhere"),
    "a TLS greeting": (bytes.fromhex("16030100f8010000f40303") + bytes(200), "HTTP, TLS and text"),
    "another version": (HEADER.pack(9, Command.HELLO, 1, 0), "version 9 of the native protocol is not known"),
    "zeros": (bytes(1000), "version 0"),
    "a length beyond the limit": (HEADER.pack(1, Command.HELLO, 7, 0xFFFF_FFFF), "a frame of 4 GiB is too large"),
    "no greeting": (frame(Command.PING, 1, b""), "the first frame of a connection is HELLO"),
    "a publish without a greeting": (frame(Command.PUBLISH, 1, b"\x90"), "the first frame"),
    "only other versions": (
        frame(Command.HELLO, 3, encode(Hello([2, 3]))),
        "the client speaks versions",
    ),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_R6_nonsense_is_told_as_such_and_ends_the_connection(kind: str, server: Running) -> None:
    data, text = NONSENSE[kind]
    with Raw(server.port, hello=False) as raw:
        raw.socket.sendall(data)
        (error,) = said_before_the_end(raw)
        assert isinstance(error, ProtocolError)
        assert text in str(error)
    until(lambda: server.connections == 0)


BAD_HELLOS = {
    "no msgpack": b"\xc1",
    "no versions": encode({"client": "x"}),
    "versions that are no numbers": encode({"versions": ["one"]}),
    "too many versions": encode({"versions": [1] * 65}),
    "an announced list": b"\x81\xa8versions\xdd\xff\xff\xff\xff",
    "text that is not UTF-8": b"\x82\xa8versions\x91\x01\xa6client\xa1\xff",
}


@pytest.mark.parametrize("kind", BAD_HELLOS)
def test_R6_a_bad_hello_ends_the_connection_and_nothing_behind_it_is_read(kind: str, server: Running) -> None:
    with Raw(server.port, hello=False) as raw:
        publish = frame(Command.PUBLISH, 2, encode(["t", b"\x93\xc0\x91\xc4\x01x\xc0"]))
        good = frame(Command.HELLO, 3, encode(Hello([1])))
        raw.socket.sendall(frame(Command.HELLO, 1, BAD_HELLOS[kind]) + good + publish)
        (error,) = said_before_the_end(raw)
        assert "the body of HELLO" in str(error)
    until(lambda: server.connections == 0)
    assert server.broker.topics() == []


@pytest.mark.parametrize("first", ["nothing", "a good HELLO", "a bad HELLO"])
def test_H2_a_hello_is_small_whatever_came_before_it(first: str, server: Running) -> None:
    before = {"nothing": b"", "a good HELLO": encode(Hello([1])), "a bad HELLO": b"\xc1"}[first]
    with Raw(server.port, hello=False) as raw:
        if before:
            raw.send(Command.HELLO, before)
        large = encode({"versions": [1], "client": "x" * (16 << 10)})
        raw.socket.sendall(frame(Command.HELLO, 2, large))
        error = said_before_the_end(raw)[-1]
        assert isinstance(error, ProtocolError) or first == "a bad HELLO"
    until(lambda: server.connections == 0)


def test_requests_may_follow_hello_without_waiting_for_its_reply(server: Running) -> None:
    large = encode(["t", encode([None, [bytes(MIB)], None])])
    with Raw(server.port, hello=False) as raw:
        raw.socket.sendall(frame(Command.HELLO, 1, encode(Hello([1]))) + frame(Command.PUBLISH, 2, large) * 2)
        assert [raw.receive()[:2] for _ in range(3)] == [
            (Command.HELLO | REPLY, 1),
            (Command.PUBLISH | REPLY, 2),
            (Command.PUBLISH | REPLY, 2),
        ]


def test_R6_noise_of_all_kinds_leaves_the_server_and_its_clients_well(tmp_path: Path) -> None:
    chance = random.Random(7)
    with Child(tmp_path / "data") as child, publishing_lightly(child.address) as took:
        for number in range(300):
            with Raw(child.port, hello=number % 3 > 0) as raw, contextlib.suppress(OSError):
                for _ in range(chance.randrange(1, 5)):
                    body = chance.randbytes(chance.choice([0, 1, 7, 100, 5000]))
                    if number % 2:
                        raw.socket.sendall(body)
                    else:
                        length = chance.choice([len(body), len(body), len(body) + 3, 0])
                        command = chance.choice([*Command, 0, 0x42, 0x80, 0xFF])
                        raw.socket.sendall(HEADER.pack(1, command, chance.randrange(1 << 32), length) + body)
                if number % 5 == 0:
                    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        assert "Traceback" not in child.log(), child.log()
    assert sorted(took)[len(took) // 2] < 0.5


def test_R6_bodies_that_are_msgpack_but_not_what_is_asked_for_are_refused_one_by_one(server: Running) -> None:
    bodies = [
        *(b"", b"\xc1", b"\xc0", b"\x90", b"\x80", b"\x01", b"\xa3abc", b"\x91" * 5000, b"\x93\x01\x02\x03"),
        encode({"topics": ["no topic"], "group": "g"}),
        encode([1, 2, 3, 4, 5, 6, 7, 8, 9]),
        encode(["t", b"\x93\xc0\x91\xc4\x01x\xc0", "p", -1]),
        encode(["t", b"\xff", None, 0]),
        encode({"topics": ["\ud7ff"], "group": 5}),
        b"\x92\xa1\xff\x90",
    ]
    with Raw(server.port) as raw:
        for command in Command:
            if command in (Command.HELLO, Command.PING, Command.DELIVER, Command.GOODBYE):
                continue
            for body in bodies:
                number = raw.send(command, body)
                raw.send(Command.PING, b"")
                replies: list[tuple[int, int, bytes]] = []
                while not replies or replies[-1][0] != Command.PING | REPLY:
                    replies.append(raw.receive())
                if command in (Command.CANCEL, Command.TAKEN) and len(replies) == 1:
                    continue  # they have no reply where nothing is wrong
                ((replied, correlation, told), _) = replies
                assert (replied, correlation) == (ERROR, number), (command, body)
                assert not isinstance(decode_failure(told), ProtocolError)
        assert server.call(lambda: [one._open_requests for one in server.native.connections]) == [0]
        unknown = raw.send(0x42, b"")
        assert raw.receive()[:2] == (ERROR, unknown)


ARGUMENTS = ("topic", "group", "name", "identity", "limit", "to", "rate", "start", "time", "only", "ids")


def test_R6_calls_with_arguments_of_any_type_are_answered(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    odd: list[Any] = [None, -1, 1 << 62, 0.5, float("nan"), "", "no topic", b"\xff", [], [1], {"a": 1}, True, "t/0/0"]
    safe = {"settle", "retain", "delete_topic"}
    server.broker.publish("t", "x")
    with Raw(server.port) as raw:
        for name in sorted(set(HANDLERS) - safe):
            for argument in ARGUMENTS:
                for value in odd:
                    arguments = {"topic": "t", "group": "g", "name": "u", argument: value}
                    number = raw.send(Command.CALL, encode(Call(name, arguments)))
                    command, correlation, _ = raw.receive()
                    assert correlation == number
                    assert command in (ERROR, Command.CALL | REPLY)
        with pytest.raises(penstock.InvalidArgument, match="did you mean redrive"):
            raw.ask(Command.CALL, encode(Call("redrives")))
        with pytest.raises(penstock.InvalidArgument, match="there is no operation"):
            raw.ask(Command.CALL, encode(Call("close")))
        with pytest.raises(penstock.InvalidArgument, match="unexpected keyword"):
            raw.ask(Command.CALL, encode(Call("topics", {"x": 1})))
    bugs = [record for record in caplog.records if record.levelname == "ERROR"]
    assert not bugs, bugs[0].exc_text


def test_R6_requests_about_consumers_that_are_not_there(server: Running) -> None:
    with Raw(server.port) as raw, Raw(server.port) as other:
        mine, theirs = raw.subscribe("t"), other.subscribe("t")
        other.publish("t", "x")
        for command, body in (
            (Command.RECEIVE, encode(Receive(99, 1))),
            (Command.ACK, encode(Finish(99, []))),
            (Command.PUSH, encode(Push(99, 1))),
            (Command.UNSUBSCRIBE, encode(ConsumerRequest(99))),
            (Command.HEARTBEAT, encode(ConsumerRequest(99))),
        ):
            with pytest.raises(ConsumerNotFound, match="subscribe first"):
                raw.ask(command, body)
        assert (mine, theirs) == (1, 1)
        raw.send(Command.CANCEL, encode(Cancel(99, 5)))
        raw.send(Command.TAKEN, encode(Finish(99, [])))
        for runs in ([1], [0, 0], [-1, 5], [5, 1 << 40], [0, 100_001]):
            with pytest.raises(penstock.InvalidArgument):
                raw.ask(Command.ACK, encode(Finish(mine, [Held("t", 0, 1, runs)])))
            raw.send(Command.TAKEN, encode(Finish(mine, [Held("t", 0, 1, runs)])))
        with pytest.raises(penstock.LeaseLost):
            raw.ask(Command.ACK, encode(Finish(mine, [Held("t", 0, 1, [0, 1]), Held("u", 7, 1, [0, 1])])))
        raw.ask(Command.UNSUBSCRIBE, encode(ConsumerRequest(mine)))
        assert server.call(lambda: sorted(one._open_requests for one in server.native.connections)) == [0, 0]


def test_Q4_nobody_can_settle_or_prolong_what_another_consumer_holds(server: Running) -> None:
    server.broker.publish("t", "x")
    with Raw(server.port) as holder, Raw(server.port) as thief:
        number, thiefs = holder.subscribe("t", visibility_timeout=0.4), thief.subscribe("t")
        reply = holder.ask(Command.RECEIVE, encode(Receive(number, 1)))
        lease = msg(reply).rows[0].lease
        held = [Held("t", 0, lease, [0, 1])]
        acts: list[tuple[Command, dict[str, Any]]] = [
            (Command.ACK, {}),
            (Command.EXTEND, {"seconds": 60.0}),
            (Command.RELEASE, {}),
            (Command.FAIL, {"reason": "x"}),
            (Command.KILL, {"reason": "x"}),
        ]
        for command, more in acts:
            with pytest.raises(penstock.LeaseLost):
                thief.ask(command, encode(Finish(thiefs, held, **more)))
        for _ in range(14):
            thief.send(Command.TAKEN, encode(Finish(thiefs, held)))
            time.sleep(0.05)
        assert server.broker.group("t", "g").leased == 0


def msg(reply: bytes) -> Any:
    from penstock.protocol.consuming import decode_delivery

    return decode_delivery(reply)


# Clients that do not read.


def buffered(server: Running) -> int:
    """What all connections hold for their clients."""

    def count() -> int:
        held = 0
        for one in server.native.connections:
            transport = one._transport
            assert transport is not None
            held += transport.get_write_buffer_size() + one._reply_bytes
        return held

    return int(server.call(count))


def deaf(server: Running) -> Raw:
    raw = Raw(server.port)
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return raw


def ask_for_pages(raw: Raw) -> None:
    for form in ("rows", "arrow") * 300:
        raw.send(Command.READ, encode(Read("t", 0, form=form)))


def ask_for_pushes(raw: Raw) -> None:
    raw.ask(Command.PUSH, encode(Push(raw.subscribe("t", max_in_flight=1_000_000), 1_000_000)))


def ask_for_messages(raw: Raw) -> None:
    number = raw.subscribe("t", max_in_flight=1_000_000)
    raw.socket.sendall(b"".join(frame(Command.RECEIVE, n, encode(Receive(number, 1000))) for n in range(100, 800)))


def ask_for_messages_acked(raw: Raw) -> None:
    number = raw.subscribe("t", max_in_flight=1_000_000, autoack=True)
    raw.socket.sendall(b"".join(frame(Command.RECEIVE, n, encode(Receive(number, 1000))) for n in range(100, 800)))


def wait_for_messages(raw: Raw) -> None:
    numbers = [raw.subscribe("t", f"g{n}") for n in range(8)]
    for number in numbers:
        requests = (frame(Command.RECEIVE, number << 16 | n, encode(Receive(number, 1000, 60.0))) for n in range(1, 40))
        raw.socket.sendall(b"".join(requests))


def ask_for_echoes(raw: Raw) -> None:
    raw.socket.settimeout(0.5)
    with contextlib.suppress(TimeoutError, ConnectionError):
        for _ in range(300):
            raw.send(Command.PING, bytes(MIB))


@pytest.mark.parametrize(
    ("ask", "settled"),
    [
        *((ask_for_pages, True), (ask_for_pushes, True), (ask_for_messages, True)),
        *((ask_for_messages_acked, False), (ask_for_echoes, False)),
    ],
)
def test_R1_a_client_that_does_not_read_what_it_asks_for_is_not_served_further(
    ask: Callable[[Raw], None], settled: bool, server: Running
) -> None:
    for _ in range(16):
        server.broker.publish_many("t", [bytes(500_000)] * 16)
    if settled:
        server.broker.settle()
    with publishing_lightly(server.address) as took, deaf(server) as raw:
        ask(raw)
        most = 0
        ends_s = time.monotonic() + 0.3
        while time.monotonic() < ends_s:
            most = max(most, buffered(server))
            time.sleep(0.01)
        assert most < 48 * MIB
    assert sorted(took)[len(took) // 2] < 0.5
    until(lambda: server.connections == 0)


def test_R1_a_client_that_does_not_read_gets_what_it_asked_for_when_it_does(server: Running) -> None:
    server.broker.publish_many("t", [bytes(200_000)] * 100)
    with Raw(server.port) as raw:
        number = raw.subscribe("t", max_in_flight=1000)
        asked = [raw.send(Command.RECEIVE, encode(Receive(number, 5))) for _ in range(20)]
        asked += [raw.send(Command.READ, encode(Read("t", 0, limit=3))) for _ in range(20)]
        asked += [raw.send(Command.PING, b"") for _ in range(20)]
        time.sleep(0.2)
        answered = [raw.receive()[:2] for _ in asked]
        assert sorted(correlation for _, correlation in answered) == sorted(asked)
        assert ERROR not in [command for command, _ in answered]
        assert server.broker.group("t", "g").leased == 100


def test_R6_messages_do_not_wait_for_a_client_that_does_not_read(server: Running) -> None:
    with deaf(server) as raw, Client(server.address) as client:
        for _ in range(4):
            server.broker.publish_many("big", [bytes(MIB)] * 8)
        wait_for_messages(raw)
        until(lambda: server.waiters("t", "g7") == 39)
        ask_for_echoes(raw)  # and from now on it takes nothing
        client.publish_many("t", [f"{n}" for n in range(100)])
        with client.consumer("t", "g3") as consumer:
            received: list[Any] = []
            while len(received) < 100:
                received += until(lambda: consumer.receive(100, wait=5))
            assert sorted(message.offset for message in received) == list(range(100))


def test_R1_the_memory_of_a_server_does_not_grow_with_what_a_client_asks_for(tmp_path: Path) -> None:
    with Child(tmp_path / "data") as child:
        with Client(child.address) as client:
            client.publish_many("t", [bytes(100_000)] * 100)
            list(client.read("t"))
            list(client.read_arrow("t"))
        before = child.memory_mib()
        with publishing_lightly(child.address), Raw(child.port) as raw:
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            ask_for_pages(raw)  # some gigabytes
            time.sleep(0.5)
            assert child.memory_mib() - before < 200


def test_R1_requests_that_wait_for_messages_have_a_limit(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.server.native import delivering

    monkeypatch.setattr(delivering, "_WAITING_MAX", 50)
    with Raw(server.port) as raw:
        number = raw.subscribe("t")
        asked = [raw.send(Command.RECEIVE, encode(Receive(number, 1, 60.0))) for _ in range(60)]
        refused = [raw.receive() for _ in range(10)]
        assert {command for command, _, _ in refused} == {ERROR}
        assert isinstance(decode_failure(refused[0][2]), Overloaded)
        with pytest.raises(penstock.InvalidArgument, match="waits already"):
            raw.socket.sendall(frame(Command.RECEIVE, asked[0], encode(Receive(number, 1, 60.0))))
            raise decode_failure(raw.receive()[2])
        for correlation in asked[:50]:
            raw.send(Command.CANCEL, encode(Cancel(number, correlation)))
        assert sorted(raw.receive()[1] for _ in range(50)) == asked[:50]
        raw.send(Command.RECEIVE, encode(Receive(number, 1, 60.0)))
        until(lambda: server.waiters() == 1)


def test_R1_more_requests_than_a_connection_may_have_open_are_all_answered(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_OPEN_REQUESTS_MAX", 20)
    with Raw(server.port) as raw:
        publish = encode(["t", b"\x93\xc0\x91\xc4\x01x\xc0"])
        raw.socket.sendall(b"".join(frame(Command.PUBLISH, n, publish) for n in range(1, 1001)))
        raw.socket.sendall(b"".join(frame(Command.CALL, n, encode(Call("status"))) for n in range(1001, 1101)))
        answered = [raw.receive() for _ in range(1100)]
        assert sorted(correlation for _, correlation, _ in answered) == list(range(1, 1101))
        assert ERROR not in [command for command, _, _ in answered]
    assert len(list(server.broker.read("t"))) == 1000


# Clients that are slow, or too many.


def test_R1_large_requests_that_never_end_are_ended_where_they_are_too_many(tmp_path: Path) -> None:
    with (
        Running(tmp_path, max_frame_bytes="4MiB", max_buffered_bytes="16MiB") as server,
        publishing_lightly(server.address) as took,
        contextlib.ExitStack() as stack,
    ):
        slow = [stack.enter_context(Raw(server.port)) for _ in range(12)]
        for raw in slow:
            with contextlib.suppress(ConnectionError):
                raw.socket.sendall(HEADER.pack(1, Command.PUBLISH, 1, 4 * MIB) + bytes(3 * MIB))
        until(lambda: server.connections <= 1 + 5)
        assert server.native.buffered_bytes <= 16 * MIB
        told = [error for raw in slow if _is_closed(raw) for error in said_before_the_end(raw)]
        assert all("max_buffered_bytes" in str(error) for error in told)
        for raw in slow:
            raw.close()
        until(lambda: server.native.buffered_bytes == 0)
        with Client(server.address) as client:
            client.publish("t", bytes(3 * MIB))
    assert sorted(took)[len(took) // 2] < 0.5


def _is_closed(raw: Raw) -> bool:
    raw.socket.setblocking(False)  # noqa: FBT003 - that is its way
    try:
        return raw.socket.recv(1, socket.MSG_PEEK) is not None
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        raw.socket.settimeout(30)


def test_R1_connections_beyond_the_limit_are_refused_and_later_ones_are_not(tmp_path: Path) -> None:
    with Running(tmp_path, max_connections=5) as server:
        with contextlib.ExitStack() as stack:
            for _ in range(5):
                stack.enter_context(Client(server.address)).publish("t", "x")
            for _ in range(3):
                with pytest.raises(Overloaded, match="there are 5 connections already"):
                    Client(server.address)
            with Raw(server.port, hello=False) as raw:
                (error,) = said_before_the_end(raw)
                assert isinstance(error, Overloaded)
        until(lambda: server.connections == 0)
        with Client(server.address) as client:
            assert len(list(client.read("t"))) == 5


def test_H5_connections_that_say_nothing_are_closed_after_a_while(tmp_path: Path) -> None:
    with Running(tmp_path, idle_timeout="300ms") as server:
        with Raw(server.port, hello=False) as silent, Raw(server.port) as quiet, Raw(server.port) as half:
            half.socket.sendall(HEADER.pack(1, Command.PUBLISH, 1, 1000) + bytes(10))
            number = quiet.subscribe("t")
            quiet.send(Command.RECEIVE, encode(Receive(number, 1, 60.0)))
            started_s = time.monotonic()
            assert silent.receive()[0] == Command.GOODBYE
            assert silent.ended()
            assert quiet.ended()
            assert half.ended()
            assert time.monotonic() - started_s < 10
        until(lambda: server.connections == 0)
        assert server.broker.group("t", "g").members == ()


def test_R4_a_closed_connection_does_not_wait_for_a_client_that_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CLOSING_S", 0.1)
    with Running(tmp_path) as server, deaf(server) as raw:
        ask_for_echoes(raw)
        (connection,) = server.native.connections
        server.call(connection.close)
        until(lambda: server.connections == 0)


def test_R6_a_request_in_tiny_pieces_is_a_request(server: Running) -> None:
    with Raw(server.port) as raw:
        data = frame(Command.PUBLISH, 5, encode(["t", b"\x93\xc0\x91\xc4\x01x\xc0"]))
        for byte in data:
            raw.socket.sendall(bytes([byte]))
        assert raw.receive()[:2] == (Command.PUBLISH | REPLY, 5)


def test_R6_clients_that_never_pause_do_not_keep_a_server_from_stopping(tmp_path: Path) -> None:
    batch = frame(Command.PUBLISH, 1, encode(["t", b"\x93\xc0\x92\xc4\x01x\xc4\x01y\xc0"])) * 200
    with Running(tmp_path, shutdown_grace="10m") as server:  # the harness waits for less than that
        raws = [Raw(server.port) for _ in range(4)]

        def flood(raw: Raw) -> None:
            with contextlib.suppress(OSError):
                while True:
                    raw.socket.sendall(batch)

        threads = [threading.Thread(target=flood, args=(raw,)) for raw in raws]
        threads += [threading.Thread(target=raw.ended) for raw in raws]
        for thread in threads:
            thread.start()
        until(lambda: server.broker.topics() and server.broker.topics()[0].partitions[0].end_offset > 1000)
    for thread in threads:
        thread.join()
    for raw in raws:
        raw.close()


def test_R6_requests_that_take_hours_keep_nobody_waiting(tmp_path: Path) -> None:
    with Child(tmp_path / "data") as child, Raw(child.port) as raw, Client(child.address) as client:
        client.publish_many("t", ["a", "b"] * 20)
        with client.consumer("t", "g") as consumer:
            consumer.kill(consumer.receive(40), "for now")
        for _ in range(20):
            raw.send(Command.CALL, encode(Call("redrive", {"topic": "t", "rate": 0.001})))
        with publishing_lightly(child.address) as took:
            raw.publish("t", b"x")
            assert raw.ask(Command.RECEIVE, encode(Receive(raw.subscribe("u"), 1))) is not None
            assert len(raw.ask(Command.READ, encode(Read("t", 0)))) > 10
            client.settle()
        assert sorted(took)[len(took) // 2] < 0.5


# Many at once.


def test_a_thousand_idle_and_a_hundred_busy_connections(tmp_path: Path) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:

            async def connect() -> AsyncClient:
                return await stack.enter_async_context(AsyncClient(child.address))

            for _ in range(10):
                await asyncio.gather(*(connect() for _ in range(100)))
            busy = [await connect() for _ in range(100)]
            ends_s = time.monotonic() + 1

            async def work(number: int, client: AsyncClient) -> int:
                topic, published, received = f"t{number}", 0, 0
                async with await client.consumer(topic, "g") as consumer:
                    while time.monotonic() < ends_s or published < 3:
                        await client.publish(topic, f"{published}")
                        published += 1
                        for message in await consumer.receive(10):
                            assert message.value == b"%d" % received
                            await message.ack()
                            received += 1
                    while received < published:
                        messages = await consumer.receive(10, wait=10)
                        await consumer.ack(messages)
                        received += len(messages)
                info = await client.group(topic, "g")
                assert (info.published, info.acked, info.lag) == (published, published, 0)
                return published

            counts = await asyncio.gather(*(work(number, client) for number, client in enumerate(busy)))
            assert min(counts) >= 3
            status = await busy[0].status()
            assert (status.topics, status.groups) == (100, 100)

    with Child(tmp_path / "data") as child:
        run(main())
