"""How a link gets a connection: it says HELLO at one address after the other, until a server welcomes it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from penstock.client.addresses import Addresses, text_of
from penstock.client.connection import Connection, OnFrame, connect, explain_end, explain_tls
from penstock.model.errors import BrokerClosed, ConnectionLost, Forbidden, PenstockError, Unauthenticated
from penstock.protocol.failures import decode_failure
from penstock.protocol.frames import ERROR, Command, frame
from penstock.protocol.session import Hello, Welcome, decode_goodbye, decode_welcome, encode

_PATIENCE_S = 10.0
_PATIENCE_OF_SEVERAL_S = 3.0  # with an address; then another one is tried

Dial = Callable[[Callable[[], Connection]], Awaitable[Connection]]
"""Makes a connection."""
OnLost = Callable[[Connection, BaseException | None], None]


class Route:
    """The addresses of a server, and what is said to it first."""

    def __init__(self, address: str, hello: Hello, tls: ssl.SSLContext | None, dial: Dial | None) -> None:
        """With `dial`, the address is only a name."""
        self.addresses = None if dial is not None else Addresses(address)
        self._name, self._dial = address, dial
        self._hello, self._tls = encode(hello), tls

    @property
    def name(self) -> str:
        """The address that was tried last."""
        return self._name if self.addresses is None else text_of(self.addresses.current)

    @property
    def names(self) -> str:
        """All of them."""
        return self._name if self.addresses is None else str(self.addresses)

    @property
    def host(self) -> str:
        """The host that was tried last."""
        return "" if self.addresses is None else self.addresses.current[0]

    @property
    def has_several(self) -> bool:
        """Whether there is more than one address."""
        return self.addresses is not None and len(self.addresses) > 1

    async def connect(self, timeout_s: float, on_frame: OnFrame, on_lost: OnLost) -> tuple[Connection, Welcome]:
        """A connection to the first of the addresses where a server welcomes this client; raises if none does."""
        if self.addresses is None:
            return await self._greet(timeout_s, on_frame, on_lost)
        failed: list[PenstockError] = []
        tried = self.addresses.in_turn()
        patience_s = min(timeout_s, _PATIENCE_S if len(tried) == 1 else _PATIENCE_OF_SEVERAL_S)
        for address in tried:
            self.addresses.turn_to(address)
            try:
                return await self._greet(patience_s, on_frame, on_lost)
            except (Unauthenticated, Forbidden):
                raise
            except PenstockError as error:
                failed.append(error)
        if len(failed) == 1:
            raise failed[0]
        told = f"no Penstock server answers at any of {', '.join(map(text_of, tried))}"
        raise ConnectionLost(f"{told}: {'; '.join(map(str, failed))}") from failed[0]

    async def _greet(self, patience_s: float, on_frame: OnFrame, on_lost: OnLost) -> tuple[Connection, Welcome]:
        """Open a connection, and wait until the server accepts it."""
        name = self.name
        greeted: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()

        def heard(command: int, correlation: int, body: memoryview | bytes) -> None:
            if greeted.done():
                on_frame(command, correlation, body)
            elif command == ERROR:
                greeted.set_exception(decode_failure(body))
            elif command == Command.GOODBYE:
                greeted.set_exception(BrokerClosed(decode_goodbye(body).reason))
            else:
                greeted.set_result(decode_welcome(body))

        def lost(connection: Connection, error: BaseException | None) -> None:
            if not greeted.done():
                greeted.set_exception(explain_end(name, error, with_tls=self._tls is not None))
            else:
                on_lost(connection, error)

        connection: Connection | None = None
        try:
            async with asyncio.timeout(patience_s):
                connection = await self._open(lambda: Connection(heard, lost))
                connection.send(frame(Command.HELLO, 0, self._hello))
                welcome = await greeted
        except (OSError, TimeoutError) as error:
            if connection is not None:
                connection.abort()
            if isinstance(error, ssl.SSLError):
                raise explain_tls(name, error) from error
            raise ConnectionLost(
                f"no Penstock server answers at {name}{' by TLS' if self._tls else ''}: "
                f"{str(error) or 'no answer in time'}"
            ) from error
        except BaseException:
            if connection is not None:
                connection.abort()
            raise
        if connection.lost:
            raise ConnectionLost(f"{name} closed the connection at once")
        return connection, welcome

    async def _open(self, make: Callable[[], Connection]) -> Connection:
        if self.addresses is None:
            assert self._dial is not None
            return await self._dial(make)
        return await connect(self.addresses.current, self._tls, make)
