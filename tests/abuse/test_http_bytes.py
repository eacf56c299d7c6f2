"""Bytes that are no HTTP, no JSON and no WebSocket, on the HTTP port, before anybody has said who they are."""

from __future__ import annotations

import contextlib

import pytest

from tests.abuse.harness import Target, heard_until_the_end

_HOST = b"Host: localhost\r\n"
_UPGRADE = (
    b"GET /v1/topics/t/ws?group=g HTTP/1.1\r\n" + _HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
_WISH = b"GET /livez HTTP/1.1\r\n" + _HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"


def login(body: bytes) -> bytes:
    return b"POST /v1/login HTTP/1.1\r\n" + _HOST + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize(
    "data",
    [
        _WISH * 20_000,
        login(b"[" * 60_000) * 50,
        login(b'{"token": "\xff"}') * 500,
        _UPGRADE + b"X: y\r\n" * 5000 + b"\r\n",
        _UPGRADE + b"\r\n" + b"\x83\x81\x00\x00\x00\x00x" * 50_000,
        b"GET  /livez HTTP/1.1\r\n" * 50_000,
        b"".join(b"GET /ui/%d%%00 HTTP/1.1\r\n" % number + _HOST + b"\r\n" for number in range(2000)),
        b"GET /v1/topics?" + b"a&" * 30_000 + b" HTTP/1.1\r\n" + _HOST + b"\r\n",
    ],
    ids=["wishes", "deep", "no-utf8", "headers", "frames", "lines", "files", "parameters"],
)
def test_H1_hostile_bytes_on_the_http_port_hold_nobody_up(data: bytes, target: Target) -> None:
    with target.unharmed(sent_bytes=len(data)), target.connect(target.http_port) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(data + b"garbage\r\n\r\n")
        heard_until_the_end(connection)


def test_H1_the_first_who_ask_for_the_description_hold_nobody_up(target: Target) -> None:
    request = b"GET /docs/openapi.json HTTP/1.1\r\n" + _HOST + b"Connection: close\r\n\r\n"
    with contextlib.ExitStack() as connected, target.unharmed():
        connections = [connected.enter_context(target.connect(target.http_port)) for _ in range(64)]
        for connection in connections:
            connection.sendall(request)
        assert {heard_until_the_end(connection)[:12] for connection in connections} == {b"HTTP/1.1 200"}
