"""HTTP load over connections that are all to one process of a server, whichever port they came through.

The processes of a server listen on one port, and the kernel deals connections out to them. Which process has which is
seen from outside, where the kernel says who holds the other end; `wrk` has no choice of its connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from time import perf_counter
from typing import Any

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"


class KeptConnection(asyncio.Protocol):
    """Sends one request again and again, each when the one before was answered."""

    def __init__(self) -> None:
        self._transport: Any
        self._request = b""
        self._received = b""
        self._until_s = 0.0
        self._answered = 0
        self._done: asyncio.Future[int]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    async def repeat(self, request: bytes, seconds: float = 0.0) -> int:
        """Send a request for some seconds, at least once; how often it was answered. Raises if one fails."""
        self._request, self._answered = request, 0
        self._until_s = perf_counter() + seconds
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._done

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(_HEAD_END)
        length = _LENGTH.search(head + end)
        if not end or (length is not None and len(body) < int(length[1])):
            return
        if not head.startswith(b"HTTP/1.1 200") or length is None:
            self._fail(RuntimeError(f"a request failed: {self._received[:1000]!r}"))
            return
        self._received = b""
        self._answered += 1
        if perf_counter() < self._until_s:
            self._transport.write(self._request)
        else:
            self._done.set_result(self._answered)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or RuntimeError("the server closed the connection"))

    def _fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    @property
    def port(self) -> int:
        """Of this end."""
        return int(self._transport.get_extra_info("sockname")[1])

    def close(self) -> None:
        """Close it."""
        self._transport.close()


def post_of(path: str, body: object) -> bytes:
    """A request as bytes."""
    data = json.dumps(body).encode()
    lines = (
        f"POST {path} HTTP/1.1",
        "host: 127.0.0.1",
        "content-type: application/json",
        f"content-length: {len(data)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + data


@contextlib.asynccontextmanager
async def at_one_process(
    address: str, processes: Collection[int], count: int
) -> AsyncIterator[tuple[int, list[KeptConnection]]]:
    """So many connections that one process has, and its id."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    opened: list[KeptConnection] = []
    by_process: dict[int, list[KeptConnection]] = {process: [] for process in processes}
    try:
        while max(map(len, by_process.values())) < count:
            _, connection = await loop.create_connection(KeptConnection, host, int(port))
            opened.append(connection)
            await connection.repeat(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")  # then somebody has accepted it
            by_process[_holder(connection.port, processes)].append(connection)
        process, kept = max(by_process.items(), key=lambda found: len(found[1]))
        yield process, kept
    finally:
        for connection in opened:
            connection.close()


async def post(connections: list[KeptConnection], request: bytes, seconds: float) -> tuple[int, float]:
    """Send a request over all of them for some seconds: how many were answered, and in what time."""
    start_s = perf_counter()
    answered = await asyncio.gather(*(connection.repeat(request, seconds) for connection in connections))
    return sum(answered), perf_counter() - start_s


def _holder(client_port: int, processes: Collection[int]) -> int:
    """Which of these processes holds the end of a connection that leads to this port."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[2].endswith(f":{client_port:04X}") and fields[9] != "0":
            wanted = f"socket:[{fields[9]}]"
            for process in processes:
                if wanted in _open_files(process):
                    return process
    raise RuntimeError(f"none of the processes {list(processes)} has a connection from port {client_port}")


def _open_files(process: int) -> set[str]:
    found = set()
    for path in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(str(path.readlink()))
    return found
