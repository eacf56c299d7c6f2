"""A server in a thread of its own, and a client that says anything to it, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

from penstock.protocol.frames import ERROR, HEADER, HEADER_BYTES, REPLY, VERSION, Command
from penstock.server.config import ServerConfig
from penstock.server.server import Server

encode = msgspec.msgpack.encode
decode = msgspec.msgpack.decode
Reply = tuple[int, int, bytes]


@contextlib.contextmanager
def serving(path: Path, **options: Any) -> Iterator[Server]:
    """A server on a free port, until the end of the block."""
    started = threading.Event()
    failed: list[BaseException] = []
    servers: list[Server] = []
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        config = ServerConfig.parse({"data_dir": str(path), "native_port": 0, "shutdown_grace": 2, **options})
        async with Server(config) as server:
            stops.append((asyncio.get_running_loop(), stop))
            servers.append(server)
            started.set()
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - the test hears of it
            failed.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    started.wait()
    try:
        if servers:
            yield servers[0]
    finally:
        for loop, stop in stops:
            loop.call_soon_threadsafe(stop.set)
        thread.join()
    if failed:
        raise failed[0]


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
