"""A client that says anything to a server, byte by byte."""

from __future__ import annotations

import socket
from typing import Any, Self

import msgspec

from penstock.protocol.frames import ERROR, HEADER, HEADER_BYTES, REPLY, VERSION, Command

encode = msgspec.msgpack.encode
decode = msgspec.msgpack.decode
Reply = tuple[int, int, bytes]


class Wire:
    """One connection; every frame can be anything."""

    def __init__(self, address: tuple[str, int], *, greet: bool = True) -> None:
        self._socket = socket.create_connection(address)
        self._socket.settimeout(20)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self._correlation = 0
        if greet:
            self.ask(Command.HELLO, {"versions": [1], "client": "test"})

    def send(self, command: int, body: bytes, correlation: int | None = None) -> int:
        """Send a frame; its correlation."""
        if correlation is None:
            self._correlation += 1
            correlation = self._correlation
        self.send_bytes(HEADER.pack(VERSION, command, correlation, len(body)) + body)
        return correlation

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self) -> Reply:
        """The next frame; EOFError if the server closed the connection."""
        header = self._file.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            raise EOFError
        version, command, correlation, length = HEADER.unpack(header)
        assert version == VERSION
        return command, correlation, self._file.read(length)

    def ask(self, command: Command, body: object) -> Any:
        """Ask and wait for the reply to it, decoded; an AssertionError has the error that came."""
        correlation = self.send(command, encode(body))
        while True:
            answered, about, reply = self.read()
            if about == correlation and answered in (ERROR, command | REPLY):
                assert answered != ERROR, decode(reply)
                return decode(reply)

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
