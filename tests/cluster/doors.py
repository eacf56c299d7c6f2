"""One process of several, asked by HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.cluster.several import Several, several


class Door:
    """One process of several, asked by HTTP: through its own socket, as those that share a port are not told apart."""

    def __init__(self, servers: Several, number: int) -> None:
        listener = servers.servers[number]._listeners["http"]
        self._server = listener
        self._loop = asyncio.get_running_loop()
        self._number = number

    async def open(self) -> None:
        connection = self._server._connection  # type: ignore[attr-defined]
        self._extra = await self._loop.create_server(connection, "127.0.0.1", 0)
        self.port = self._extra.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._extra.close()

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """The status, and what JSON says."""

        def work() -> tuple[int, Any]:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            try:
                data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
                connection.request(method, path, data, headers)
                reply = connection.getresponse()
                text = reply.read()
                return reply.status, json.loads(text) if text and "json" in reply.headers["content-type"] else text
            finally:
                connection.close()

        return await asyncio.to_thread(work)


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[tuple[Several, list[Door]]]:
    """Several servers, and a door to each."""
    async with several(path, ports=("native", "http"), **options) as servers:
        doors = [Door(servers, number) for number in range(len(servers.servers))]
        for door in doors:
            await door.open()
        try:
            yield servers, doors
        finally:
            for door in doors:
                door.close()
