"""Clients that take their time to hold connections, before anybody has said who they are."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from penstock.protocol.frames import HEADER, Command
from tests.abuse.harness import Target
from tests.server.harness import until

_HEAD = b"POST /v1/login HTTP/1.1\r\nHost: localhost\r\n"
DRIPS = {
    "a greeting": ("native", HEADER.pack(1, Command.HELLO, 1, 10_000), b"x"),
    "pings as text": ("line", b"", b"PING\n"),
    "a line": ("line", b"PRODUCE t 0 ", b"x"),
    "a head": ("http", b"GET /livez HTTP/1.1\r\nX: ", b"x"),
    "the head of a second request": ("http", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /livez", b"x"),
    "a body": ("http", _HEAD + b"Content-Length: 10000\r\n\r\n", b"x"),
    "a body that was refused": ("http", _HEAD.replace(b"login", b"topics") + b"Content-Length: 99\r\n\r\n", b"x"),
    "chunks": ("http", _HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
}


def test_H5_nobody_unknown_holds_a_connection_by_a_byte_now_and_then(tmp_path: Path) -> None:
    timeouts = {"login_timeout": "1s", "request_timeout": "1s", "unread_timeout": "1s"}
    with (
        Target(tmp_path / "data", tokens=True, **timeouts) as target,
        target.unharmed(),
        contextlib.ExitStack() as stack,
    ):
        ports = {"native": target.port, "line": target.line_port, "http": target.http_port}
        there = sockets_of(target.pid)
        slow: dict[str, socket.socket] = {}
        for kind, (port, start, _) in DRIPS.items():
            slow[kind] = stack.enter_context(target.connect(ports[port]))
            slow[kind].sendall(start)
            slow[kind].setblocking(False)  # noqa: FBT003 - that is its way
        until(lambda: sockets_of(target.pid) == there + len(slow), "all of them are there")

        def all_closed() -> bool:
            for kind, connection in slow.items():
                with contextlib.suppress(OSError):
                    connection.send(DRIPS[kind][2])
            return sockets_of(target.pid) == there

        until(all_closed, "the end of all of them")


def sockets_of(pid: int) -> int:
    """How many sockets a process has."""
    count = 0
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(entry.path).startswith("socket:")  # noqa: PTH115 - a Path would be resolved
    return count
