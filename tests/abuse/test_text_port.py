"""Hostile lines: bytes that are costly to look at, before anybody has said who they are."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.abuse.harness import Target

MIB = 1 << 20
FLOODS = {
    "telnet subnegotiations that never end": b"\xff\xfa" * 400_000 + b"\n",
    "telnet subnegotiations with ends": b"\xff\xfa\xff\xf0" * 200_000 + b"\n",
    "telnet options": b"\xff\xfd\x01" * 300_000 + b"\n",
    "telnet options, line by line": b"\xff\xfd\x01\n" * 100_000,
    "blank lines": b"\n" * 500_000,
    "short lines that mean nothing": b"x\n" * 50_000,
    "pings": b"PING\n" * 50_000,
    "one word": b"x" * (MIB - 10) + b"\n",
    "many words": b"CONSUME" + b" x" * (MIB // 2 - 10) + b"\n",
    "blanks": b" " * (MIB - 10) + b"x\n",
    "an open quote": b'PRODUCE t 0 "' + b"\\" * (MIB - 20) + b"\n",
    "almost HTTP": b"GET " + b"/x" * (MIB // 2 - 10) + b"\n",
    "lists in lists": b'{"track": "t", "data": ' + b"[" * (MIB - 50) + b"\n",
}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One server for all floods, which asks for tokens."""
    with Target(tmp_path_factory.mktemp("attacked") / "data", tokens=True) as started:
        yield started


@pytest.mark.parametrize("flood", FLOODS)
def test_H1_hostile_lines_before_login_do_not_hold_up_the_server(flood: str, attacked: Target) -> None:
    data = FLOODS[flood]
    with attacked.unharmed(sent_bytes=len(data)), attacked.connect(attacked.line_port) as connection:
        send_and_read(connection, data)


def send_and_read(connection: socket.socket, data: bytes) -> None:
    """Send it all, reading replies meanwhile, until the server has closed the connection."""
    connection.setblocking(False)  # noqa: FBT003 - that is its way
    rest = memoryview(data + b"QUIT\n")
    heard = None
    while heard != b"":
        try:
            if rest:
                rest = rest[connection.send(rest) :]
        except BlockingIOError:
            pass
        except ConnectionError:
            return
        try:
            connection.settimeout(None if not rest else 0.001)
            heard = connection.recv(MIB)
        except TimeoutError:
            pass
        except ConnectionError:
            return
        finally:
            connection.setblocking(False)  # noqa: FBT003
