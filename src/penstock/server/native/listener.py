"""The native port: accepts connections, keeps them within limits, and lets them go in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import penstock
from penstock.broker.embedded import Broker
from penstock.model.errors import BrokerClosed, Overloaded
from penstock.server.commits import Commits
from penstock.server.native.connection import Connection
from penstock.server.native.session import Session
from penstock.server.native.singles import Singles
from penstock.server.settings.options import ServerConfig
from penstock.server.threads import RequestThreads

_log = logging.getLogger("penstock.server")
_THREADS = 16
_WAITING_MAX = 1000
_SLOW_MAX = 64  # what may take hours does not keep the others waiting
_BACKLOG = 1024

Result = TypeVar("Result")


class NativeListener:
    """Everything that the connections of one port share."""

    def __init__(self, broker: Broker, config: ServerConfig) -> None:
        self.broker = broker
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.commits = Commits(self.loop, broker.engine, self._flush)
        self.singles = Singles(self)
        self.server_name = f"penstock {penstock.__version__}"
        self.connections: set[Connection] = set()
        self.buffered_bytes = 0
        self._unflushed: list[Connection] = []
        self._threads = RequestThreads(_THREADS)
        self._slow_threads = RequestThreads(_SLOW_MAX)
        self._in_threads = self._slow = 0
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._stopping = False
        self._all_gone = asyncio.Event()

    async def start(self) -> tuple[str, int]:
        """Listen; where."""
        self._server = await self.loop.create_server(
            lambda: Connection(self), self.config.host, self.config.native_port, backlog=_BACKLOG
        )
        self._sweep()
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    def opened(self, connection: Connection) -> None:
        """A client came."""
        self.connections.add(connection)
        Session(self, connection)
        if self._stopping:
            connection.close(BrokerClosed("the server is stopping"))
        elif len(self.connections) > self.config.max_connections:
            connection.close(
                Overloaded(f"there are {self.config.max_connections} connections already (max_connections): try later")
            )

    def gone(self, connection: Connection) -> None:
        """A client went."""
        self.connections.discard(connection)
        if self._stopping and not self.connections:
            self._all_gone.set()

    def flush_soon(self, connection: Connection) -> None:
        """Have a connection write what it was given in this turn of the loop, after all others were given theirs."""
        if not self._unflushed:
            self.loop.call_soon(self._flush)
        self._unflushed.append(connection)

    def _flush(self) -> bool:
        """Write what connections were given; whether there was anything."""
        unflushed, self._unflushed = self._unflushed, []
        for connection in unflushed:
            connection.flush()
        return bool(unflushed)

    def in_thread(
        self, work: Callable[[], Result], then: Callable[[Result], None], failed: Callable[[BaseException], None]
    ) -> None:
        """Do what may block in a thread, and go on with its result here."""
        if self._in_threads >= _WAITING_MAX:
            raise Overloaded(f"{_WAITING_MAX} requests of this kind are under way already: try later")
        self._in_threads += 1
        self._threads.submit(partial(self._run, work, then, failed, self._ended))

    def in_slow_thread(
        self, work: Callable[[], Result], then: Callable[[Result], None], failed: Callable[[BaseException], None]
    ) -> None:
        """As `in_thread`, for what may take hours, such as a redrive at a limited rate."""
        if self._slow >= _SLOW_MAX:
            raise Overloaded(f"{_SLOW_MAX} requests that take long are under way already: try later")
        self._slow += 1
        self._slow_threads.submit(partial(self._run, work, then, failed, self._slow_ended))

    def _run(
        self,
        work: Callable[[], Result],
        then: Callable[[Result], None],
        failed: Callable[[BaseException], None],
        ended: Callable[[], None],
    ) -> None:
        go_on: Callable[[], None]
        try:
            go_on = partial(then, work())
        except BaseException as error:  # noqa: BLE001 - whoever asked hears of it
            if not isinstance(error, penstock.PenstockError):
                _log.exception("a request failed")
            go_on = partial(failed, error)

        def back() -> None:
            ended()
            go_on()

        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self.loop.call_soon_threadsafe(back)

    def _ended(self) -> None:
        self._in_threads -= 1

    def _slow_ended(self) -> None:
        self._slow -= 1

    def _sweep(self) -> None:
        """Close connections that were not heard of for too long."""
        now_s, limit_s = self.loop.time(), self.config.idle_timeout
        for connection in list(self.connections):
            if now_s - connection.heard_s > limit_s:
                connection.say_goodbye(f"nothing was heard for {limit_s:g} s (idle_timeout)")
                connection.close()
        self._sweeping = self.loop.call_later(max(limit_s / 4, 0.01), self._sweep)

    async def stop(self, grace_s: float) -> None:
        """Take nothing new, answer what is under way, and let everybody go."""
        self._stopping = True
        if not self.connections:
            self._all_gone.set()
        if self._server is not None:
            self._server.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self.connections):
            connection.say_goodbye("the server is stopping")
            connection.take_no_more()
        deadline_s = self.loop.time() + grace_s
        while self.loop.time() < deadline_s:
            if not self.commits and not self._in_threads and not self._slow and all(map(_is_idle, self.connections)):
                break
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_gone.wait(), max(0.1, deadline_s - self.loop.time()))
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)
        self._threads.stop()
        self._slow_threads.stop()


def _is_idle(connection: Connection) -> bool:
    return connection.idle
