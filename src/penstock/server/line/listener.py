"""The text port: accepts connections, enforces their limits, and closes them in order."""

from __future__ import annotations

import asyncio
import logging

from penstock.model.errors import BrokerClosed, Unauthenticated
from penstock.server.line.connection import Connection, silence
from penstock.server.port import Port
from penstock.server.services import Services

_log = logging.getLogger("penstock.server")


class LineListener(Port[Connection]):
    """Everything that the connections of the port share."""

    name = "line"

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self.held_bytes = 0  # of lines that were not begun, in all connections

    def connection(self) -> Connection:
        return Connection(self)

    def connection_of_peer(self) -> Connection:
        return Connection(self, is_peer=True)

    def opened(self, connection: Connection) -> None:
        """A client connected; if there are too many connections, the one that was silent for longest is closed."""
        super().opened(connection)
        if self.stopping:
            connection.dismiss(BrokerClosed("the server is stopping"))
        elif self.services.is_flooded:
            connection.abort()
        elif self.services.is_full:
            self._make_room(connection)

    def _make_room(self, newest: Connection) -> None:
        limit_s = self.deadlines.idle_s
        staying = [connection for connection in self.connections if not connection.is_leaving]
        quietest = min(staying, key=lambda connection: connection.heard_s)
        if self.loop.time() - quietest.heard_s > limit_s:
            quietest.dismiss(silence(limit_s, "and others want to connect"))
        else:
            newest.dismiss(self.full())

    def sweep(self) -> None:
        now_s = self.loop.time()
        for connection in list(self.connections):
            if connection.leaves_replies_unread(now_s):
                connection.abort()
            elif reason := connection.overdue(now_s):
                connection.dismiss(reason)
            elif not connection.is_leaving:
                self._check_access(connection)

    def _check_access(self, connection: Connection) -> None:
        """Close a connection whose token is not valid any more."""
        try:
            connection.check_access()
        except Unauthenticated as error:
            _log.warning("%s: the connection is closed", error)
            connection.dismiss(error)

    async def stop(self, grace_s: float) -> None:
        self.take_no_more()
        for connection in list(self.connections):
            connection.finish(BrokerClosed("the server is stopping"))
        serving = [connection.serving for connection in self.connections]
        await self.all_gone(grace_s)
        for connection in list(self.connections):
            connection.abort()
        if serving:
            await asyncio.wait(serving, timeout=1.0)
