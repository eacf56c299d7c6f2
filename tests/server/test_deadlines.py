"""A byte now and then keeps no connection for ever, on any port; who is slow and honest, or just waits, may stay."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.protocol.consuming import Receive
from penstock.protocol.frames import HEADER, REPLY, Command, frame
from penstock.protocol.session import Hello, encode
from penstock.server.deadlines import BYTES_A_SECOND
from tests.server.harness import PATIENCE_S, Raw, Running, until
from tests.server.http.harness import HttpRunning

SHORT = {"login_timeout": "300ms", "request_timeout": "300ms", "unread_timeout": "300ms"}
KIB = 1 << 10
_HEAD = b"POST /v1/topics/t/publish HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpRunning]:
    """A server with all ports, that is patient with nobody."""
    with HttpRunning(tmp_path, line_port=0, **SHORT) as running:
        yield running


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[HttpRunning]:
    """One that asks for tokens."""
    with HttpRunning(tmp_path, line_port=0, auth="tokens", **SHORT) as running:
        yield running


def line_to(server: Running, port: str) -> socket.socket:
    return socket.create_connection(server.server.addresses[port], PATIENCE_S)


def drip(line: socket.socket, pieces: Iterable[bytes]) -> bytes:
    """Say one piece after the other until the server hangs up; what it has said meanwhile."""
    heard, ends_s = bytearray(), time.monotonic() + PATIENCE_S
    for piece in pieces:
        assert time.monotonic() < ends_s, "the server listens for ever"
        try:
            line.sendall(piece)
            while select.select([line], [], [], 0.05)[0]:
                some = line.recv(1 << 16)
                if not some:
                    return bytes(heard)
                heard += some
        except ConnectionError:
            return bytes(heard)
    raise AssertionError("the server hung on")


def zeros() -> Iterator[bytes]:
    return itertools.repeat(b"\0")


def connections(server: Running) -> int:
    return int(server.server.services.metrics.connections)


# Sending.

NATIVE = {
    "a header": (b"", HEADER.pack(1, Command.HELLO, 1, 100)),
    "a HELLO": (HEADER.pack(1, Command.HELLO, 1, 16 * KIB), b""),
    "a request": (frame(Command.HELLO, 1, encode(Hello([1]))) + HEADER.pack(1, Command.PUBLISH, 2, 1 << 20), b""),
    "a request behind another": (
        frame(Command.HELLO, 1, encode(Hello([1]))) + frame(Command.PING, 2, b"") + HEADER.pack(1, 3, 2, 1 << 20),
        b"",
    ),
}


@pytest.mark.parametrize("kind", NATIVE)
def test_H5_a_native_frame_does_not_arrive_for_ever(kind: str, server: HttpRunning) -> None:
    at_once, slowly = NATIVE[kind]
    with line_to(server, "native") as line:
        line.sendall(at_once)
        said = drip(line, itertools.chain((bytes([byte]) for byte in slowly), zeros()))
    assert b"_timeout)" in said
    until(lambda: connections(server) == 0)


def test_H5_pings_do_not_put_off_the_login_of_the_text_port(guarded: HttpRunning) -> None:
    with line_to(guarded, "line") as line:
        said = drip(line, itertools.repeat(b"PING\n"))
    assert said.endswith(b"ERROR: there was no AUTH within 0.3 s (login_timeout)\n")
    until(lambda: connections(guarded) == 0)


def test_H5_a_line_does_not_arrive_for_ever(tmp_path: Path) -> None:
    with Running(tmp_path, line_port=0, request_timeout="20ms") as server, line_to(server, "line") as line:
        line.sendall(b"PING\n")
        said = drip(line, itertools.repeat(b"x"))
    assert said.startswith(b"PONG\nERROR: a line had no end after 0.4")


HTTP = {
    "the first head": (b"", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ", b"x", 408),
    "a later head": (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /livez HTTP/1.1\r\nX: ", b"x", 408),
    "a plain publish": (_HEAD + b"Content-Length: 1000\r\n\r\n", b'{"value": "', b"x", 408),
    "a large body": (_HEAD + b"Content-Length: 1000000\r\n\r\n", b'{"value": "', b"x", 408),
    "chunks": (_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"", b"1\r\nx\r\n", 408),
    "the length of a chunk": (_HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"", b"x", 408),
    "a trailer": (_HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ", b"", b"x", 408),
    "a body that was answered": (
        b"POST /v1/topics/t/publish/ HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000000\r\n\r\n",
        b"",
        b"x",
        403,
    ),
}


@pytest.mark.parametrize("kind", HTTP)
def test_H5_an_http_request_does_not_arrive_for_ever(kind: str, server: HttpRunning) -> None:
    at_once, start, rest, status = HTTP[kind]
    with line_to(server, "http") as line:
        line.sendall(at_once)
        said = drip(line, itertools.chain((bytes([byte]) for byte in start), itertools.repeat(rest)))
    assert said[said.rindex(b"HTTP/1.1") :].startswith(b"HTTP/1.1 %d" % status)
    until(lambda: connections(server) == 0 and server.tasks() == 0)
    assert server.broker.topics() == []


@pytest.mark.parametrize("before", [b"", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_H5_ends_of_lines_are_no_sign_of_life_on_an_http_connection(before: bytes, tmp_path: Path) -> None:
    with HttpRunning(tmp_path, idle_timeout=1) as server, line_to(server, "http") as line:
        line.sendall(before)
        drip(line, itertools.repeat(b"\r\n"))
        until(lambda: connections(server) == 0)


# Reading.


def ask_native(line: socket.socket) -> None:
    echo = frame(Command.PING, 2, bytes(1 << 20))
    line.sendall(frame(Command.HELLO, 1, encode(Hello([1]))))
    line.settimeout(0.2)
    for _ in range(100):
        line.sendall(echo)


def ask_lines(line: socket.socket) -> None:
    line.settimeout(0.2)
    for _ in range(100):
        line.sendall(b"HELP\n" * 10_000)


def ask_http(line: socket.socket) -> None:
    line.settimeout(0.2)
    for _ in range(100):
        line.sendall(b"GET /docs/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)


def ask_http_for_a_last_time(line: socket.socket) -> None:
    line.sendall(
        b"GET /v1/topics/large/messages?limit=1000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    )


def ask_for_a_stream(line: socket.socket) -> None:
    line.sendall(b"GET /v1/topics/large/stream?group=s HTTP/1.1\r\nHost: localhost\r\n\r\n")


def ask_by_websocket(line: socket.socket) -> None:
    line.sendall(
        b"GET /v1/topics/large/ws?group=w&max_in_flight=1000 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )


ASKERS: dict[str, tuple[str, Callable[[socket.socket], None]]] = {
    "native": ("native", ask_native),
    "lines": ("line", ask_lines),
    "many requests": ("http", ask_http),
    "a last request": ("http", ask_http_for_a_last_time),
    "a stream": ("http", ask_for_a_stream),
    "a websocket": ("http", ask_by_websocket),
}


def with_large_messages(server: Running) -> None:
    for _ in range(12):
        server.broker.publish_many("large", [bytes(1 << 20)] * 2)


@pytest.mark.parametrize("half_closed", [False, True])
@pytest.mark.parametrize("kind", ASKERS)
def test_H5_replies_do_not_wait_for_ever_to_be_read(
    kind: str, half_closed: bool, server: HttpRunning, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, ask = ASKERS[kind]
    monkeypatch.setattr("penstock.server.deadlines.BYTES_A_SECOND", 1 << 40)  # large replies get no more time
    with_large_messages(server)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        line.connect(server.server.addresses[port])
        with contextlib.suppress(TimeoutError, ConnectionError):
            ask(line)
        until(lambda: server.server.services.metrics.ports[port].opened == 1, "it is there")
        if half_closed:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_WR)
        line.setblocking(False)  # noqa: FBT003 - that is its way

        def gone() -> bool:
            with contextlib.suppress(OSError):
                line.recv(1)  # a byte now and then
            return connections(server) == 0

        until(gone, "the server goes on")
    until(lambda: server.tasks() == 0, "nobody works for it")


# Who may stay.


def wait_until_somebody_else_was_closed(server: Running) -> None:
    """Long enough for every deadline, and for all connections to have been looked at."""
    for _ in range(2):
        with line_to(server, "native") as line:
            drip(line, zeros())


def test_clients_that_wait_for_messages_stay(server: HttpRunning) -> None:
    with (
        Raw(server.port) as native,
        line_to(server, "line") as text,
        line_to(server, "http") as poll,
        line_to(server, "http") as stream,
        line_to(server, "http") as websocket,
    ):
        asked = native.send(Command.RECEIVE, encode(Receive(native.subscribe("large"), 1, 60.0)))
        poll.sendall(b"GET /v1/topics/large/receive?group=p&wait=20 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        ask_for_a_stream(stream)
        ask_by_websocket(websocket)
        until(lambda: len(server.broker.groups("large")) == 4)
        wait_until_somebody_else_was_closed(server)
        server.broker.publish("large", "at last")
        assert native.receive()[:2] == (Command.RECEIVE | REPLY, asked)
        text.sendall(b"CONSUME large 0\n")
        assert text.recv(100) == b"0 at last\n"
        for line in (poll, stream, websocket):
            heard = b""
            while b"at last" not in heard and b"YXQgbGFzdA" not in heard:
                some = line.recv(1 << 16)
                assert some, heard
                heard += some


def slowly(data: bytes) -> Iterator[bytes]:
    """Pieces that come slower than short deadlines allow, and faster than the slowest rate."""
    size = len(data) // 8
    for place in range(0, len(data), size):
        yield data[place : place + size]
        time.sleep(0.1)


def upload_native(server: HttpRunning, value: bytes) -> None:
    with Raw(server.port) as raw:
        for piece in slowly(frame(Command.PUBLISH, 5, encode(["t", encode([None, [value], None])]))):
            raw.socket.sendall(piece)
        assert raw.receive()[:2] == (Command.PUBLISH | REPLY, 5)


def upload_line(server: HttpRunning, value: bytes) -> None:
    with line_to(server, "line") as line:
        for piece in slowly(b"PRODUCE t 0 " + value + b"\n"):
            line.sendall(piece)
        assert line.recv(100) == b"OK\n"


def upload_http(server: HttpRunning, value: bytes) -> None:
    with line_to(server, "http") as line:
        line.sendall(_HEAD + b"Content-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % len(value))
        for piece in slowly(value):
            line.sendall(piece)
        assert line.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("upload", [upload_native, upload_line, upload_http])
def test_a_large_request_may_take_its_time(upload: Callable[[HttpRunning, bytes], None], server: HttpRunning) -> None:
    value = b"x" * (BYTES_A_SECOND * 20)
    upload(server, value)
    assert [message.value for message in server.broker.read("t")] == [value]


def test_a_client_that_reads_slowly_and_steadily_gets_everything(server: HttpRunning) -> None:
    with_large_messages(server)
    with line_to(server, "http") as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
        ask_http_for_a_last_time(line)
        heard, some = 0, b" "
        while some:
            some = line.recv(1 << 20)
            heard += len(some)
            time.sleep(0.002)
        assert heard > 24 << 20


def test_a_request_that_the_server_has_no_room_for_is_not_late(
    server: HttpRunning, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read while too much is under way: that is no fault of the client."""
    from penstock.server.native import connection as connections

    monkeypatch.setattr(connections, "_OPEN_REQUESTS_MAX", 4)
    commits: Any = server.server.services.commits
    reply_after, held = commits.reply_after, deque[Any]()
    monkeypatch.setattr(commits, "reply_after", lambda *arguments: held.append(arguments))
    publish = frame(Command.PUBLISH, 7, encode(["t", encode([None, [b"x", b"y"], None])]))
    last = frame(Command.PING, 9, bytes(100))
    with Raw(server.port) as raw:
        raw.socket.sendall(publish * 4 + last[:50])
        until(lambda: any(not one._reading for one in server.native.connections))
        wait_until_somebody_else_was_closed(server)
        for arguments in held:
            server.call(partial(reply_after, *arguments))
        raw.socket.sendall(last[50:])
        assert sorted(raw.receive()[1] for _ in range(5)) == [7] * 4 + [9]
