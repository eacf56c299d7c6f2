"""What the native and the text port have in common: their connections, checking them regularly, and stopping."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.model.errors import Overloaded
from penstock.server.doors import Doors, open_doors

if TYPE_CHECKING:
    from penstock.server.services import Services

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
        self._doors: Doors | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._all_gone = asyncio.Event()

    @abstractmethod
    def connection(self) -> Client:
        """A connection that is about to be made."""

    @abstractmethod
    def connection_of_peer(self) -> Client:
        """A connection from another process of this server."""

    @abstractmethod
    def sweep(self) -> None:
        """Close connections whose client is too late with something, or may not use the server any more."""

    async def start(self) -> tuple[str, int]:
        self._doors = await open_doors(self.services, self.name, self.connection, self.connection_of_peer)
        self._sweep_again()
        return self._doors.address

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
        if self._doors is not None:
            self._doors.close()
        if self._sweeping is not None:
            self._sweeping.cancel()

    async def all_gone(self, patience_s: float) -> None:
        """Wait until all connections are closed, but not longer than this."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_gone.wait(), max(0.1, patience_s))
