"""The link to a server: it outlives connections. Requests are answered once, or fail with what is known of them.

A request that can be repeated without harm (publishing with a sequence, questions) is sent again on the next
connection, in the order of the first time; any other that was under way when the connection broke fails.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import ssl
from collections.abc import Callable
from typing import Any

from penstock.client.addresses import parse_address
from penstock.client.connection import Connection, TlsFailed, explain_tls
from penstock.model.config import BrokerConfig
from penstock.model.errors import (
    BrokerClosed,
    ConnectionLost,
    Forbidden,
    LimitExceeded,
    PenstockError,
    RequestTimeout,
    Unauthenticated,
)
from penstock.model.units import format_size
from penstock.protocol.failures import decode_failure
from penstock.protocol.frames import CORRELATION_MAX, ERROR, VERSION, Command, frame
from penstock.protocol.session import Hello, Welcome, decode_goodbye, decode_welcome, encode
from penstock.version import __version__

_log = logging.getLogger("penstock.client")
_BACKOFF_FIRST_S, _BACKOFF_MAX_S = 0.05, 2.0
_SWEEP_S = 0.25
_jitter = random.Random()  # its own: the program may have seeded the global one

DIRECT = CORRELATION_MAX
"""The correlation of requests that are sent past the link (`direct.py`)."""

OnReply = Callable[[bytes | None, PenstockError | None], None]
OnPush = Callable[[memoryview | bytes], None]


class Request:
    """A request: what was sent, who waits for the reply, and until when."""

    __slots__ = ("asked_s", "command", "deadline_s", "frame", "on_reply", "repeatable", "sent_s")

    def __init__(
        self, command: int, data: bytes, on_reply: OnReply, repeatable: bool, asked_s: float, timeout_s: float
    ) -> None:
        self.command = command
        self.frame = data
        self.on_reply = on_reply
        self.repeatable = repeatable
        self.asked_s = asked_s
        self.deadline_s = asked_s + timeout_s
        self.sent_s: float | None = None


class Link:
    """Keeps a connection to one server."""

    def __init__(
        self,
        address: str,
        token: str | None,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        name: str | None = None,
    ) -> None:
        self.host, self.port = parse_address(address)
        self.address = f"{self.host}:{self.port}"
        self.timeout_s = timeout_s
        self.loop = asyncio.get_running_loop()
        self.generation = 0  # how many connections there have been
        self.limits = BrokerConfig()
        self.welcome: Welcome
        self.on_push: dict[int, OnPush] = {}  # by the number of the consumer
        self.on_connected: list[Callable[[], None]] = []
        self.on_quiet: Callable[[Connection], None] | None = None  # called when the last reply has come
        self.alone = 0  # how many of the last requests were sent when all before them were answered
        self._token = token
        self._name = name
        self._tls = tls
        self._requests: dict[int, Request] = {}
        self._last_correlation = 0
        self._connection: Connection | None = None  # once it is welcome
        self._connected = asyncio.Event()
        self._reconnecting: asyncio.Task[None] | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._why_not: BaseException | None = None
        self._refused: PenstockError | None = None  # the server does not let this client in (any more)
        self.closed = False

    async def open(self) -> None:
        """Connect for the first time; raises if that fails."""
        await self._connect()
        self._sweep()

    # Requests.

    def send(
        self, command: int, body: bytes, on_reply: OnReply, *, repeatable: bool = False, timeout_s: float | None = None
    ) -> int:
        """Send a request whose reply goes to `on_reply`; the correlation."""
        if self.closed:
            raise BrokerClosed("the client is closed")
        if self._refused is not None:
            self.loop.call_soon(on_reply, None, _again(self._refused))
            return 0
        limit = self.welcome.limits.get("max_frame_bytes", len(body))
        if len(body) > limit:  # the server would end the connection, and so everything else that is under way
            raise LimitExceeded(
                f"the request has {format_size(len(body))}; the limit is {format_size(limit)} (max_frame_bytes)"
            )
        correlation = self._next_correlation()
        patience_s = self.timeout_s if timeout_s is None else timeout_s
        request = Request(
            command, frame(command, correlation, body), on_reply, repeatable, self.loop.time(), patience_s
        )
        self.alone = 0 if self._requests else self.alone + 1
        self._requests[correlation] = request
        if self._connection is not None:
            request.sent_s = self.loop.time()
            self._connection.send(request.frame)
        return correlation

    def adopt(self, request: Request, connection: Connection) -> None:
        """Go on with a request that others had for a connection, whether it was sent or not."""
        if self.closed:
            request.on_reply(None, BrokerClosed("the client was closed before the reply came"))
        elif self._refused is not None:
            request.on_reply(None, _again(self._refused, "; it is not known what was done"))
        elif connection is not self._connection and request.sent_s is not None and not request.repeatable:
            request.on_reply(None, self._cut_off(request))
        else:
            self._requests[DIRECT] = request
            if self._connection is not None and (connection is not self._connection or request.sent_s is None):
                request.sent_s = self.loop.time()
                self._connection.send(request.frame)

    def tell(self, command: int, body: bytes) -> None:
        """Send a frame that has no reply, if there is a connection."""
        if self._connection is not None:
            self._connection.send(frame(command, 0, body))

    async def ask(
        self, command: int, body: bytes, *, repeatable: bool = False, timeout_s: float | None = None
    ) -> bytes:
        """Send a request and wait for the reply."""
        future: asyncio.Future[bytes] = self.loop.create_future()

        def on_reply(reply: bytes | None, error: PenstockError | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(reply or b"")

        self.send(command, body, on_reply, repeatable=repeatable, timeout_s=timeout_s)
        return await future

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None

    async def ready(self, patience_s: float | None = None) -> None:
        """Wait until there is a connection (at most `patience_s`) and the server takes more."""
        try:
            async with asyncio.timeout(patience_s):
                while self._connection is None:
                    if self.closed:
                        raise BrokerClosed("the client is closed")
                    if self._refused is not None:
                        raise _again(self._refused)
                    await self._connected.wait()
                await self._connection.drained()
        except TimeoutError:
            raise ConnectionLost(
                f"{self.address} could not be reached in time ({self._why_not or 'no connection'}): nothing was sent"
            ) from None

    def _next_correlation(self) -> int:
        correlation = self._last_correlation % (DIRECT - 1) + 1
        while correlation in self._requests:
            correlation = correlation % (DIRECT - 1) + 1
        self._last_correlation = correlation
        return correlation

    def _received(self, command: int, correlation: int, body: memoryview | bytes) -> None:
        if command == Command.DELIVER:
            on_push = self.on_push.get(correlation)
            if on_push is not None:
                on_push(body)
            return
        if command == Command.GOODBYE:
            _log.info("%s says goodbye: %s", self.address, decode_goodbye(body).reason)
            return
        request = self._requests.pop(correlation, None)
        if request is None:
            if command == ERROR and not correlation:
                _log.warning("%s: %s", self.address, decode_failure(body))
            return
        if command == ERROR:
            request.on_reply(None, decode_failure(body))
        else:
            request.on_reply(bytes(body), None)
        if self.on_quiet is not None and not self._requests and self._connection is not None:
            self.on_quiet(self._connection)

    # Connections.

    async def _connect(self) -> None:
        """Open a connection, wait until the server accepts it, and send the requests that are to be repeated."""
        greeted: asyncio.Future[Welcome] = self.loop.create_future()

        def on_frame(command: int, correlation: int, body: memoryview | bytes) -> None:
            if greeted.done():
                self._received(command, correlation, body)
            elif command == ERROR:
                greeted.set_exception(decode_failure(body))
            elif command == Command.GOODBYE:
                greeted.set_exception(BrokerClosed(decode_goodbye(body).reason))
            else:
                greeted.set_result(decode_welcome(body))

        def on_lost(lost: Connection, error: BaseException | None) -> None:
            if not greeted.done():
                greeted.set_exception(self._turned_away(error))
            else:
                self._lost(lost, error)

        connection: Connection | None = None
        try:
            async with asyncio.timeout(min(self.timeout_s, 10.0)):
                _, connection = await self.loop.create_connection(
                    lambda: Connection(on_frame, on_lost),
                    self.host,
                    self.port,
                    ssl=self._tls,
                    server_hostname=None if self._tls is None else self.host,
                )
                hello = Hello([VERSION], f"penstock-python {__version__}", self._token, self._name)
                connection.send(frame(Command.HELLO, 0, encode(hello)))
                self.welcome = await greeted
        except (OSError, TimeoutError) as error:
            if connection is not None:
                connection.abort()
            if isinstance(error, ssl.SSLError):
                raise explain_tls(self.address, error) from error
            raise ConnectionLost(
                f"no Penstock server answers at {self.address}{' by TLS' if self._tls else ''}: "
                f"{str(error) or 'no answer in time'}"
            ) from error
        except BaseException:
            if connection is not None:
                connection.abort()
            raise
        if self.closed:
            connection.abort()
            return
        if connection.lost:
            raise ConnectionLost(f"{self.address} closed the connection at once")
        self.generation += 1
        known = {field.name for field in dataclasses.fields(BrokerConfig)}
        limits: dict[str, Any] = {name: size for name, size in self.welcome.limits.items() if name in known}
        self.limits = dataclasses.replace(BrokerConfig(), **limits)
        self._connection = connection
        for request in self._requests.values():
            request.sent_s = self.loop.time()
            connection.send(request.frame)
        self._connected.set()
        for resume in list(self.on_connected):
            resume()

    def _lost(self, connection: Connection, error: BaseException | None) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._connected.clear()
        self._why_not = error
        self.on_push.clear()  # their numbers were those of this connection
        if self.closed:
            return
        _log.warning("the connection to %s was lost%s: connecting again", self.address, f" ({error})" if error else "")
        for correlation, request in list(self._requests.items()):
            if not request.repeatable and request.sent_s is not None:
                del self._requests[correlation]
                request.on_reply(None, self._cut_off(request))
        self._reconnecting = self.loop.create_task(self._reconnect())

    def _cut_off(self, request: Request) -> ConnectionLost:
        lost = f"the connection to {self.address} was lost before the reply to {_name(request.command)} came"
        return ConnectionLost(f"{lost}: it is not known whether it was done")

    def _turned_away(self, error: BaseException | None) -> ConnectionLost:
        """Why a connection ended before the server said a word."""
        if isinstance(error, ssl.SSLError):
            return explain_tls(self.address, error)
        told = f"{self.address} closed the connection at once"
        if error is not None and not isinstance(error, ConnectionResetError):
            return ConnectionLost(f"{told}: {error}")
        if self._tls is None:
            return TlsFailed(f"{told} (a server that speaks TLS does: give tls or ca)")
        return TlsFailed(f"{told} (one that asks clients for a certificate does: give cert and its key)")

    async def _reconnect(self) -> None:
        backoff_s = _BACKOFF_FIRST_S
        while not self.closed:
            await asyncio.sleep(backoff_s * _jitter.uniform(0.5, 1.0))
            backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
            try:
                await self._connect()
            except (Unauthenticated, Forbidden) as error:
                self._give_up(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt may succeed
                self._why_not = error
            else:
                _log.info("connected to %s again", self.address)
                return

    def _give_up(self, error: PenstockError) -> None:
        """The server refuses this client, and would do so again: all requests fail."""
        _log.error("%s refuses this client: %s", self.address, error)
        self._refused = error
        self.generation += 1  # nothing is held on a connection any more
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.on_reply(None, _again(error, "" if request.sent_s is None else "; it is not known what was done"))
        self._connected.set()
        for resume in list(self.on_connected):
            resume()

    def _sweep(self) -> None:
        """Fail requests that timed out; keep the connection alive, and notice when the server is gone."""
        now_s = self.loop.time()
        for correlation, request in list(self._requests.items()):
            if request.deadline_s <= now_s or (request.sent_s is None and request.asked_s + self.timeout_s <= now_s):
                del self._requests[correlation]
                request.on_reply(None, self._too_late(request, now_s))
        connection = self._connection
        if connection is not None:
            patience_s = max(self.welcome.idle_timeout_s / 3, 3 * _SWEEP_S)
            if now_s - max(connection.sent_s, connection.heard_s) > patience_s:
                self.send(Command.PING, b"\xc0", ignore_reply, timeout_s=patience_s)
            if now_s - connection.heard_s > 3 * patience_s:
                connection.abort(ConnectionLost(f"nothing was heard from {self.address} for {3 * patience_s:.1f} s"))
        self._sweeping = self.loop.call_later(_SWEEP_S, self._sweep)

    def _too_late(self, request: Request, now_s: float) -> PenstockError:
        name = _name(request.command)
        if request.sent_s is None:
            return ConnectionLost(
                f"{self.address} could not be reached in time ({self._why_not or 'no connection'}): {name} was not sent"
            )
        return RequestTimeout(
            f"{self.address} did not answer {name} within {now_s - request.sent_s:.1f} s: "
            "it is not known whether it was done"
        )

    async def close(self) -> None:
        """Close the connection; requests without a reply fail."""
        if self.closed:
            return
        self.closed = True
        self._connected.set()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        for request in list(self._requests.values()):
            request.on_reply(None, BrokerClosed("the client was closed before the reply came"))
        self._requests.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            if self._tls is not None:
                await connection.closed()


def _again(error: PenstockError, more: str = "") -> PenstockError:
    """A copy of an error that several callers get."""
    return type(error)(f"{error}{more}")


def _name(command: int) -> str:
    return Command(command).name


def ignore_reply(reply: bytes | None, error: PenstockError | None) -> None:
    """Ignore the reply."""
