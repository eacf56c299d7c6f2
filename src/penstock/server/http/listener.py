"""The HTTP port: uvicorn's protocol on the broker's own event loop, within the limits of the server."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, cast

from uvicorn.config import Config

from penstock.server.doors import Doors, open_doors
from penstock.server.http.connection import Connection, ConnectionState, WebSocketConnection
from penstock.server.http.express import ExpressLane
from penstock.server.http.forwarding import FROM_PEER
from penstock.server.http.front import App, Front
from penstock.server.http.members import Members

if TYPE_CHECKING:
    from penstock.server.services import Services

_CLOSING_S = 0.2
_WEBSOCKET_BYTES_MAX = 1 << 20


class HttpListener:
    """Accepts connections, enforces their limits, and closes them in order when the server stops."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loop = services.loop
        self._deadlines = services.deadlines
        self.members = Members(services)
        self._front = Front(services, self.members, self._app)
        self._config = Config(
            self._front,
            http=Connection,
            ws=WebSocketConnection,
            ws_max_size=_WEBSOCKET_BYTES_MAX,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=max(1, int(self._deadlines.idle_s)),
        )
        self._config.load()
        self._lane = ExpressLane(services, self._front)
        gone = partial(services.metrics.connection_closed, "http")
        self.state = ConnectionState(self._opened, gone, self._lane, self._deadlines)
        self._doors: Doors | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._building: asyncio.Future[App]

    async def start(self) -> tuple[str, int]:
        self._doors = await open_doors(self._services, "http", self._connection, self._connection_of_peer)
        self._building = self._loop.run_in_executor(None, _build, self._services)
        self.members.start()
        self._tick()
        return self._doors.address

    def _connection(self) -> Connection:
        return Connection(self._config, self.state, {}, self._loop)

    def _connection_of_peer(self) -> Connection:
        return Connection(self._config, self.state, {FROM_PEER: True}, self._loop)

    async def _app(self) -> App:
        """The routes: they are built while the server listens already, because loading the framework takes long."""
        return self._building.result() if self._building.done() else await asyncio.shield(self._building)

    def _opened(self, connection: Connection) -> None:
        """Count a new connection, and refuse it if there are too many."""
        self._services.metrics.connection_opened("http")
        if self._services.is_flooded:
            connection.transport.abort()
        elif self._services.is_full:
            connection.turn_away()

    def _tick(self) -> None:
        """Update the date of replies, and close connections of clients that are too slow."""
        date = formatdate(time.time(), usegmt=True).encode()
        self.state.default_headers = [(b"date", date)]
        self._lane.set_date(date)
        now_s = self._loop.time()
        for connection in list(self.state.connections):
            if isinstance(connection, Connection | WebSocketConnection):
                connection.check_deadlines(now_s)
        self._timer = self._loop.call_later(self._deadlines.look_s, self._tick)

    async def stop(self, grace_s: float) -> None:
        self._front.stopping = True
        if self._doors is not None:
            self._doors.close()
        self.members.stop_waiting()
        for connection in list(self.state.connections):
            connection.shutdown()
        deadline_s = self._loop.time() + grace_s
        while (self.state.tasks or self._lane.under_way) and self._loop.time() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        for connection in list(self.state.connections):
            connection.transport.close()
        await self._wait_for_end(max(deadline_s, self._loop.time() + _CLOSING_S))
        for connection in list(self.state.connections):
            connection.transport.abort()
        await self._wait_for_end(self._loop.time() + _CLOSING_S)
        for task in list(self.state.tasks):
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        await self.members.close()
        self._front.close()
        self._lane.close()
        await asyncio.wait([self._building])

    async def _wait_for_end(self, deadline_s: float) -> None:
        """Wait until there are no connections and no requests under way, but not beyond the deadline."""
        while (self.state.connections or self.state.tasks) and self._loop.time() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _build(services: Services) -> App:
    from penstock.server.http.app import build_app

    return cast("App", build_app(services))
