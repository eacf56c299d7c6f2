"""The native port: accepts connections, enforces their limits, and closes them in order."""

from __future__ import annotations

import asyncio
import logging

import penstock
from penstock.model.errors import BrokerClosed, Unauthenticated
from penstock.protocol.frames import Command, frame
from penstock.protocol.session import Moved, encode
from penstock.server.native.connection import Connection
from penstock.server.native.lingering import Lingering
from penstock.server.native.session import NativeSession
from penstock.server.native.singles import Singles
from penstock.server.port import Port
from penstock.server.services import Services

_log = logging.getLogger("penstock.server")


class NativeListener(Port[Connection]):
    """Everything that the connections of one port share."""

    name = "native"

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self.broker = services.broker
        self.access = services.access
        self.workers = services.workers
        self.commits = services.commits
        self.commits.send_ready = self._flush
        self.singles = Singles(self)
        self.lingering = Lingering(self.loop)
        self.server_name = f"penstock {penstock.__version__}"
        self.buffered_bytes = 0
        self._unflushed: list[Connection] = []
        if services.membership is not None:
            services.membership.on_changed.append(self._tell_moved)

    def connection(self) -> Connection:
        return Connection(self)

    def connection_of_peer(self) -> Connection:
        connection = Connection(self)
        connection.is_peer = True
        return connection

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        NativeSession(self, connection)
        if self.stopping:
            connection.close(BrokerClosed("the server is stopping"))
        elif self.services.is_flooded:
            connection.abort()
        elif self.services.is_full:
            connection.close(self.full())

    def _tell_moved(self) -> None:
        """Shards have moved: tell those who follow them."""
        assert self.services.membership is not None
        moved = frame(Command.MOVED, 0, encode(Moved(self.services.membership.map)))
        for connection in self.connections:
            if connection.follows:
                connection.send(moved)

    def flush_soon(self, connection: Connection) -> None:
        """Write the replies of a connection at the end of this turn of the loop, together with all others."""
        if not self._unflushed:
            self.loop.call_soon(self._flush)
        self._unflushed.append(connection)

    def _flush(self) -> bool:
        """Write the replies of all connections; returns whether there were any."""
        unflushed, self._unflushed = self._unflushed, []
        for connection in unflushed:
            connection.flush()
        return bool(unflushed)

    def sweep(self) -> None:
        now_s = self.loop.time()
        for connection in list(self.connections):
            if connection.leaves_replies_unread(now_s):
                connection.abort()
            elif reason := connection.overdue(now_s):
                connection.say_goodbye(reason)
                connection.close()
            else:
                self._check_access(connection)

    def _check_access(self, connection: Connection) -> None:
        """Close a connection whose token is not valid any more."""
        try:
            self.access.check(connection.principal)
        except Unauthenticated as error:
            _log.warning("%s: the connection is closed", error, extra={"peer": connection.peer})
            connection.close(error)

    async def stop(self, grace_s: float) -> None:
        self.take_no_more()
        for connection in list(self.connections):
            connection.say_goodbye("the server is stopping")
            connection.take_no_more()
        deadline_s = self.loop.time() + grace_s
        while self.loop.time() < deadline_s:
            if not self.commits and not self.workers.busy and all(connection.idle for connection in self.connections):
                break
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.close()
        await self.all_gone(deadline_s - self.loop.time())
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)
