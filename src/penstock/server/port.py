"""What the native and the text port have in common: their connections, checking them regularly, and stopping."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.model.errors import Overloaded
from penstock.server.access.tls import listen_options

if TYPE_CHECKING:
    from penstock.server.services import Services

_BACKLOG = 1024

Client = TypeVar("Client", bound=asyncio.BaseProtocol)


class Port(ABC, Generic[Client]):
    """Listens, and knows its connections."""

    name: str
    """As options and metrics call it."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.config = services.config
        self.loop = services.loop
        self.deadlines = services.deadlines
        self.connections: set[Client] = set()
        self.stopping = False
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._all_gone = asyncio.Event()

    @abstractmethod
    def connection(self) -> Client:
        """A connection that is about to be made."""

    @abstractmethod
    def sweep(self) -> None:
        """Close connections whose client is too late with something, or may not use the server any more."""

    async def start(self) -> tuple[str, int]:
        port = getattr(self.config, f"{self.name}_port")
        self._server = await self.loop.create_server(
            self.connection, self.config.host, port, backlog=_BACKLOG, **listen_options(self.services.tls)
        )
        self._sweep_again()
        address = self._server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    def opened(self, connection: Client) -> None:
        """A client came."""
        self.connections.add(connection)
        self.services.metrics.connection_opened(self.name)

    def gone(self, connection: Client) -> None:
        """A client went."""
        self.connections.discard(connection)
        self.services.metrics.connection_closed(self.name)
        if self.stopping and not self.connections:
            self._all_gone.set()

    def full(self) -> Overloaded:
        """The error for a client that connects when there are too many connections."""
        limit = self.services.max_connections
        return Overloaded(f"there are {limit} connections already (max_connections): try later")

    def _sweep_again(self) -> None:
        self.sweep()
        self._sweeping = self.loop.call_later(self.deadlines.look_s, self._sweep_again)

    def take_no_more(self) -> None:
        """Begin to stop: accept no more connections."""
        self.stopping = True
        if not self.connections:
            self._all_gone.set()
        if self._server is not None:
            self._server.close()
        if self._sweeping is not None:
            self._sweeping.cancel()

    async def all_gone(self, patience_s: float) -> None:
        """Wait until all connections are closed, but not longer than this."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_gone.wait(), max(0.1, patience_s))
