"""The link to a server: it outlives connections. Requests are answered once, or fail with what is known of them.

A request that can be repeated without harm (publishing with a sequence, questions) is sent again on the next
connection, in the order of the first time; any other that was under way when the connection broke fails.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import random
import ssl
from collections.abc import Callable, Iterator
from typing import Any

from penstock.client.connection import Connection
from penstock.client.pending import DIRECT, OnReply, Request, awaited, ignore_reply
from penstock.client.route import Dial, Route
from penstock.model.cluster_map import ClusterMap
from penstock.model.config import BrokerConfig
from penstock.model.errors import (
    BrokerClosed,
    ConnectionLost,
    Forbidden,
    LimitExceeded,
    NotOwner,
    PenstockError,
    ShardLost,
    Unauthenticated,
)
from penstock.model.units import format_size
from penstock.protocol.failures import decode_failure
from penstock.protocol.frames import ERROR, VERSION, Command, frame
from penstock.protocol.session import Hello, Welcome, decode_goodbye, decode_moved
from penstock.version import __version__

_log = logging.getLogger("penstock.client")
_BACKOFF_FIRST_S, _BACKOFF_MAX_S = 0.05, 2.0
_SWEEP_S, _FRAME_BYTES_MAX = 0.25, 1 << 31
_SILENT_S, _SMALL_BYTES = 1.5, 256 << 10  # how long one of several servers may keep a request of this size waiting
_jitter = random.Random()  # its own: the program may have seeded the global one

OnPush = Callable[[memoryview | bytes], None]


class Link:
    """Keeps a connection to one server."""

    def __init__(
        self,
        address: str,
        token: str | None,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        name: str | None = None,
        generations: Iterator[int] | None = None,
        dial: Dial | None = None,
    ) -> None:
        """`generations` are numbers that no other link of the client gives; with `dial`, the address is only a name."""
        hello = Hello([VERSION], f"penstock-python {__version__}", token, name, follows=True)
        self.route = Route(address, hello, tls, dial)
        self.timeout_s = timeout_s
        self.loop = asyncio.get_running_loop()
        self.generation = 0  # of the connection; 0: there was none yet
        self._generations = itertools.count(1) if generations is None else generations
        self.limits = BrokerConfig()
        self.welcome: Welcome
        self.on_push: dict[int, OnPush] = {}  # by the number of the consumer
        self.on_connected: list[Callable[[], None]] = []
        self.backoff_max_s = _BACKOFF_MAX_S
        self.on_quiet: Callable[[Connection], None] | None = None  # called when the last reply has come
        self.on_map: Callable[[ClusterMap | None], None] | None = (
            None  # called with what the server knows of its shards
        )
        self.on_misplaced: Callable[[Request, NotOwner], None] | None = None  # called when nothing was done
        self.on_adopted: Callable[[Request], bool] = lambda _: False  # whether a request is for another link by now
        self.is_one_of_several = False  # whether others go on with what this server does, should it be silent
        self.alone = 0  # how many of the last requests were sent when all before them were answered
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

    @property
    def address(self) -> str:
        """Of the server, or that of them which was tried last."""
        return self.route.name

    async def open(self) -> None:
        """Connect for the first time; raises if that fails."""
        await self._connect()
        self._sweep()

    # Requests.

    def open_soon(self) -> None:
        """Connect in the background; what is sent meanwhile waits for it."""
        self._reconnecting = self.loop.create_task(self._reconnect(0.0))
        self._sweep()

    def send(
        self,
        command: int,
        body: bytes,
        on_reply: OnReply,
        *,
        repeatable: bool = False,
        timeout_s: float | None = None,
        shard: int | None = None,
    ) -> int:
        """Send a request whose reply goes to `on_reply`; the correlation."""
        if self.closed:
            raise BrokerClosed("the client is closed")
        if self._refused is not None:
            self.loop.call_soon(on_reply, None, _again(self._refused))
            return 0
        limit = self.frame_bytes_max
        if len(body) > limit:  # the server would end the connection, and so everything else that is under way
            raise LimitExceeded(
                f"the request has {format_size(len(body))}; the limit is {format_size(limit)} (max_frame_bytes)"
            )
        correlation = self._next_correlation()
        patience_s = self.timeout_s if timeout_s is None else timeout_s
        data = frame(command, correlation, body)
        request = Request(command, data, on_reply, repeatable, self.loop.time(), patience_s, shard)
        self.alone = 0 if self._requests else self.alone + 1
        self._begin(correlation, request)
        return correlation

    def _begin(self, correlation: int, request: Request) -> None:
        self._requests[correlation] = request
        if self._connection is not None:
            request.sent_s = self.loop.time()
            self._connection.send(request.frame)

    def put(self, request: Request) -> None:
        """Go on with a request that another link had, and did nothing of."""
        if self.closed:
            request.on_reply(None, BrokerClosed("the client was closed before the reply came"))
        elif self._refused is not None:
            request.on_reply(None, _again(self._refused))
        else:
            correlation = self._next_correlation()
            request.number(correlation)
            self._begin(correlation, request)

    def take_away(self, shard: int) -> list[Request]:
        """The requests for a shard that can be asked elsewhere: those that were not sent, or can be repeated."""
        taken = {
            correlation: request
            for correlation, request in self._requests.items()
            if request.shard == shard and (request.repeatable or request.sent_s is None)
        }
        for correlation in taken:
            del self._requests[correlation]
        return list(taken.values())

    def adopt(self, request: Request, connection: Connection) -> None:
        """Go on with a request that others had for a connection, whether it was sent or not."""
        if self.closed:
            request.on_reply(None, BrokerClosed("the client was closed before the reply came"))
        elif self._refused is not None:
            request.on_reply(None, _again(self._refused, "; it is not known what was done"))
        elif (request.repeatable or request.sent_s is None) and self.on_adopted(request):
            return
        elif connection is not self._connection and request.sent_s is not None and not request.repeatable:
            request.on_reply(None, request.cut_off(self.address))
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
        future, on_reply = awaited(self.loop)
        self.send(command, body, on_reply, repeatable=repeatable, timeout_s=timeout_s)
        return await future

    @property
    def frame_bytes_max(self) -> int:
        """The largest request that the server takes; until it is known, that is left to the server."""
        return self.welcome.limits.get("max_frame_bytes", _FRAME_BYTES_MAX) if self.generation else _FRAME_BYTES_MAX

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
            reason = self._why_not or "no connection"
            told = f"{self.route.names} could not be reached in time ({reason}): nothing was sent"
            raise ConnectionLost(told) from None

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
        if command == Command.MOVED:
            if self.on_map is not None:
                self.on_map(decode_moved(body).map)
            return
        request = self._requests.pop(correlation, None)
        if request is None:
            if command == ERROR and not correlation:
                _log.warning("%s: %s", self.address, decode_failure(body))
            return
        if command == ERROR:
            error = decode_failure(body)
            elsewhere = _elsewhere(request, error)
            if elsewhere is not None and self.on_misplaced is not None:
                self.on_misplaced(request, elsewhere)
            else:
                request.on_reply(None, error)
        else:
            request.on_reply(bytes(body), None)
        if self.on_quiet is not None and not self._requests and self._connection is not None:
            self.on_quiet(self._connection)

    # Connections.

    async def _connect(self) -> None:
        """Open a connection, wait until the server accepts it, and send the requests that are to be repeated."""
        connection, self.welcome = await self.route.connect(self.timeout_s, self._received, self._lost)
        if self.closed:
            connection.abort()
            return
        self.generation = next(self._generations)
        known = {field.name for field in dataclasses.fields(BrokerConfig)}
        limits: dict[str, Any] = {name: size for name, size in self.welcome.limits.items() if name in known}
        self.limits = dataclasses.replace(BrokerConfig(), **limits)
        if self.on_map is not None:
            self.on_map(self.welcome.map)  # what is elsewhere now is not sent here
        self._go_on(connection)

    def _go_on(self, connection: Connection) -> None:
        """Use a connection, unless the map that came by it says that the server is no member any more."""
        if self.closed:
            connection.abort()
            return
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
                request.on_reply(None, request.cut_off(self.address))
        self._reconnecting = self.loop.create_task(self._reconnect())

    async def _reconnect(self, backoff_s: float = _BACKOFF_FIRST_S) -> None:
        while not self.closed:
            await asyncio.sleep(backoff_s * _jitter.uniform(0.5, 1.0))
            backoff_s = max(_BACKOFF_FIRST_S, min(2 * backoff_s, self.backoff_max_s))
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
        self.generation = next(self._generations)  # nothing is held on a connection any more
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
                request.on_reply(None, request.too_late(self.route.names, now_s, self._why_not))
        if self._connection is not None:
            self._check_silence(self._connection, now_s)
        self._sweeping = self.loop.call_later(_SWEEP_S, self._sweep)

    def _check_silence(self, connection: Connection, now_s: float) -> None:
        """Ask whether the server is there if nothing is heard of it, and leave one that does not say so."""
        patience_s, since_s = max(self.welcome.idle_timeout_s / 3, 3 * _SWEEP_S), connection.heard_s
        if self.is_one_of_several and self._requests and now_s - since_s > _SILENT_S:
            requests = self._requests.values()
            if all(len(request.frame) <= _SMALL_BYTES for request in requests):  # others may take long to be sent
                patience_s = min(patience_s, _SILENT_S)
                since_s = max(since_s, next(iter(requests)).sent_s or now_s)
        if now_s - max(connection.sent_s, since_s) > patience_s:
            self.send(Command.PING, b"\xc0", ignore_reply, timeout_s=patience_s)
        if now_s - since_s > 3 * patience_s:
            connection.abort(ConnectionLost(f"nothing was heard from {self.address} for {3 * patience_s:.1f} s"))

    async def close(self) -> None:
        """Close the connection; requests without a reply fail."""
        connection = self.drop()
        if connection is not None and self._tls is not None:
            await connection.closed()

    def drop(self, error: PenstockError | None = None) -> Connection | None:
        """As `close`, without waiting for the last word of TLS; the connection that there was.

        Requests without a reply fail with the error, which says by default that the client was closed.
        """
        if self.closed:
            return None
        self.closed = True
        self.generation = 0  # what was leased on its connections is lost
        self._connected.set()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        error = error or BrokerClosed("the client was closed before the reply came")
        for request in list(self._requests.values()):
            request.on_reply(None, _again(error))
        self._requests.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        return connection


def _elsewhere(request: Request, error: PenstockError) -> NotOwner | None:
    """Why a request is to be asked at the owner of its shard, if that is so: there, what was done is known again."""
    if request.shard is None:
        return None
    if isinstance(error, ShardLost) and request.repeatable:
        return NotOwner(str(error), -1)
    return error if isinstance(error, NotOwner) else None


def _again(error: PenstockError, more: str = "") -> PenstockError:
    """A copy of an error that several callers get."""
    return type(error)(f"{error}{more}")
