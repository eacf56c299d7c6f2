"""Streams and WebSockets of clients that do not read, flood, vanish, or say what they should not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import connect

from tests.server.harness import PATIENCE_S, until
from tests.server.http.harness import HttpRunning

_ALIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
_UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@contextlib.contextmanager
def line_to(server: HttpRunning, path: str, more: bytes = b"\r\n") -> Iterator[socket.socket]:
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(PATIENCE_S)
        line.connect(("127.0.0.1", server.http_port))
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n".encode() + more)
        yield line


def listener(server: HttpRunning) -> Any:
    return server.server._listeners["http"]


def nobody(server: HttpRunning) -> bool:
    joined = [member for member in listener(server).members._by_id.values() if not member.shared]
    return not joined and not server.server.services.metrics.connections


def leased(server: HttpRunning, topic: str) -> int:
    return sum(info.leased for info in server.broker.groups(topic))


def socket_to(server: HttpRunning, topic: str, query: str = "group=g", **options: Any) -> Any:
    return connect(f"ws://127.0.0.1:{server.http_port}/v1/topics/{topic}/ws?{query}", proxy=None, **options)


@pytest.mark.parametrize("action", ["stream", "ws"])
def test_whoever_goes_before_the_first_message_leaves_no_member_behind(
    server: HttpRunning, topic: str, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = listener(server).members
    joining, join = asyncio.Event(), members.join

    async def join_late(*arguments: Any, **options: Any) -> Any:
        member = await join(*arguments, **options)
        await joining.wait()
        return member

    monkeypatch.setattr(members, "join", join_late)
    server.broker.publish(topic, "x")
    with line_to(server, f"/v1/topics/{topic}/{action}?group=g", _UPGRADE if action == "ws" else b"\r\n"):
        until(lambda: len(members) == 1, "it has joined")
    until(lambda: not listener(server).state.connections, "it is gone")
    server.call(joining.set)
    until(lambda: nobody(server), "it has left")
    until(lambda: not server.broker.group(topic, "g").members, "the group knows")


def test_a_stream_with_a_request_behind_it_ends_with_its_connection(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic)
    with line_to(server, f"/v1/topics/{topic}/stream?group=g") as line:
        line.recv(1000)
        until(lambda: server.waiters(topic) == 1, "it waits")
        line.sendall(_ALIVE)
        until(lambda: any(known.pipeline for known in listener(server).state.connections), "it came")
    server.broker.publish_many(topic, ["a", "b"])
    until(lambda: not leased(server, topic) and not server.broker.group(topic, "g").members, "it has left")


def test_a_websocket_does_not_begin_behind_a_request_that_is_under_way(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic)
    with line_to(server, f"/v1/topics/{topic}/stream?group=g") as line:
        line.recv(1000)
        until(lambda: server.waiters(topic) == 1, "it waits")
        line.sendall(f"GET /v1/topics/{topic}/ws?group=g HTTP/1.1\r\nHost: localhost\r\n".encode() + _UPGRADE)
        while line.recv(1000):
            pass  # it hangs up
    until(lambda: nobody(server), "all have left")


def test_websockets_that_ended_are_not_counted_any_more(
    server: HttpRunning, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        with socket_to(server, topic):
            pass
        with line_to(server, f"/v1/topics/{topic}/ws?group=g", _UPGRADE) as line:
            line.recv(10)
    until(lambda: nobody(server), "they are counted out")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_whoever_does_not_read_is_sent_only_so_much_and_disturbs_nobody(server: HttpRunning, topic: str) -> None:
    count = 200
    server.broker.publish_many(topic, [bytes(100_000)] * count)
    stream, websocket = (f"/v1/topics/{topic}/{action}?group={action}&credits=1000" for action in ("stream", "ws"))
    with line_to(server, stream), line_to(server, websocket, _UPGRADE):

        def stuck() -> bool:
            waiting = [known.transport.get_write_buffer_size() for known in listener(server).state.connections]
            return len(waiting) == 2 and all(waiting)

        until(stuck, "both are stuck")
        for connection in list(listener(server).state.connections):
            assert connection.transport.get_write_buffer_size() < 1_000_000
        other = server.get(f"/v1/topics/{topic}/receive", group="other", limit=count)["messages"]
        assert other
    until(lambda: not listener(server).state.connections, "they are gone")
    until(lambda: not sum(info.leased for info in server.broker.groups(topic) if info.name != "other"), "given back")


def test_a_frame_that_is_too_large_ends_the_websocket(server: HttpRunning, topic: str) -> None:
    with socket_to(server, topic) as client, pytest.raises(ConnectionClosed) as closed:
        client.send("x" * (2 << 20))
        while True:
            client.recv(PATIENCE_S)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
    until(lambda: nobody(server), "it has left")


def test_a_flood_of_frames_is_answered_one_by_one(server: HttpRunning, topic: str) -> None:
    with socket_to(server, topic) as client:
        for number in range(300):
            client.send('{"type": "ping"}' if number % 2 else b"\xff\x00")
        told = [json.loads(client.recv(PATIENCE_S))["type"] for _ in range(300)]
    assert told == ["error", "pong"] * 150


def test_the_reason_of_a_refusal_fits_whatever_was_asked_for(server: HttpRunning) -> None:
    for query in ("group=" + "%F0%9F%98%80" * 60, "group=" + "%C3%A4" * 200, "group=g&credits=" + "%C3%A4" * 90):
        with socket_to(server, "t", query) as client, pytest.raises(ConnectionClosed) as closed:
            client.recv(PATIENCE_S)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008 and closed.value.rcvd.reason


def test_websockets_where_there_are_none_are_refused(
    server: HttpRunning, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("/", "/nothing", "/v1/live", f"/v1/topics/{topic}/stream", f"/v1/topics/{topic}/publish"):
        address = f"ws://127.0.0.1:{server.http_port}{path}"
        with pytest.raises((InvalidHandshake, ConnectionClosed)), connect(address, proxy=None) as client:
            client.recv(PATIENCE_S)
    until(lambda: nobody(server), "nobody is left")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_many_watch_the_figures_at_once(server: HttpRunning) -> None:
    with contextlib.ExitStack() as watching:
        lines = [watching.enter_context(line_to(server, "/v1/live")) for _ in range(100)]
        for line in lines:
            seen = b""
            while b"event: history" not in seen:
                seen += line.recv(1 << 16)
        assert server.ask("GET", "/livez").status == 200
    until(lambda: nobody(server), "all are gone")
    until(lambda: server.tasks() == 0, "nobody works for them")


def masked(opcode: int, payload: bytes, flags: int = 0x80) -> bytes:
    """A frame of a client; the mask changes nothing."""
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2)
    return bytes([flags | opcode]) + size + bytes(4) + payload


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (b"\x81\x01x", 1002),  # not masked
        (masked(3, b"x"), 1002),
        (masked(1, b"x", 0xA0), 1002),
        (masked(0, b"x"), 1002),
        (masked(9, b"x", 0x00), 1002),
        (masked(9, b"x" * 200), 1002),
        (masked(8, b"x"), 1002),
        (masked(8, b"\x03\xe7"), 1002),
        (masked(8, b"\x03\xe8\xff"), 1007),
        (b"\x81\xff" + (1 << 40).to_bytes(8) + bytes(4), 1009),
        (masked(1, b"\xff\xfe"), 1007),
        (masked(1, b"\xff\xfe") * 3, 1007),
        (masked(1, b"\xc3", 0x00) + masked(0, b"x"), 1007),
        (masked(1, b"a", 0x00) + masked(1, b"b"), 1002),
    ],
)
def test_frames_that_are_none_close_the_socket_and_fail_nothing(
    server: HttpRunning, topic: str, caplog: pytest.LogCaptureFixture, frames: bytes, code: int
) -> None:
    faults: list[Any] = []
    server._loop.set_exception_handler(lambda _, context: faults.append(context))
    with line_to(server, f"/v1/topics/{topic}/ws?group=g", _UPGRADE) as line:
        assert line.recv(4096).startswith(b"HTTP/1.1 101")
        line.sendall(frames)
        heard = b""
        with contextlib.suppress(ConnectionError):
            while some := line.recv(4096):
                heard += some
    assert heard[0] == 0x88 and int.from_bytes(heard[2:4]) == code
    until(lambda: nobody(server) and server.tasks() == 0, "it is gone")
    server._loop.set_exception_handler(None)
    assert not faults
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "head",
    [
        b"X: y\r\n" * 400 + _UPGRADE,
        b"X: " + b"y" * 20_000 + b"\r\n" + _UPGRADE,
        b"Content-Length: 3\r\n" + _UPGRADE + b"abc",
        b"Transfer-Encoding: chunked\r\n" + _UPGRADE + b"0\r\n\r\n",
        _UPGRADE.replace(b"13", b"12"),
    ],
)
def test_a_handshake_that_cannot_be_is_answered_or_closed(
    server: HttpRunning, topic: str, caplog: pytest.LogCaptureFixture, head: bytes
) -> None:
    faults: list[Any] = []
    server._loop.set_exception_handler(lambda _, context: faults.append(context))
    with line_to(server, f"/v1/topics/{topic}/ws?group=g", head[:-50]) as line:
        line.sendall(head[-50:])
        reply = line.recv(4096)
    assert reply.startswith((b"HTTP/1.1 4", b"HTTP/1.1 101")), reply
    until(lambda: nobody(server) and server.tasks() == 0, "it is gone")
    server._loop.set_exception_handler(None)
    assert not faults
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_frames_before_the_end_of_the_handshake_fail_nothing(
    server: HttpRunning, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    faults: list[Any] = []
    server._loop.set_exception_handler(lambda _, context: faults.append(context))
    with line_to(server, f"/v1/topics/{topic}/ws?group=g", _UPGRADE) as line, contextlib.suppress(ConnectionError):
        line.sendall(masked(3, b"x") * 10)
        while line.recv(4096):
            pass
    until(lambda: nobody(server) and server.tasks() == 0, "it is gone")
    server._loop.set_exception_handler(None)
    assert not faults
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
