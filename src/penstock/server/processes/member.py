"""One process of a server: takes and releases shards as it is told, serves those that it has, says that it is well."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from penstock.model.cluster_map import ClusterMap, ShardPlace
from penstock.model.errors import InvalidArgument, PenstockError
from penstock.model.processes import ClusterInfo
from penstock.server.access.starting import StartRefused
from penstock.server.descriptors import raise_limit
from penstock.server.membership import Membership
from penstock.server.metrics.process import cpu_seconds, resident_bytes
from penstock.server.peer_places import OneMachine
from penstock.server.processes import orders
from penstock.server.server import Server, keep_responsive, reload_server
from penstock.server.settings.options import ServerConfig
from penstock.shard.shard import Shard

_log = logging.getLogger("penstock.server")
BEAT_S = 0.5


class Member:
    """The loop of one process, from its first order to its end."""

    def __init__(self, config: ServerConfig, membership: Membership, end: socket.socket) -> None:
        self._config, self._end = config, end
        self._server = Server(config, membership)
        self._membership = membership
        self._loop = asyncio.get_running_loop()
        self._first_map = asyncio.Event()
        self._stopping = asyncio.Event()
        self._working: set[asyncio.Task[None]] = set()
        self._asked: dict[int, asyncio.Future[ClusterInfo]] = {}
        self._reload: Callable[[], ServerConfig] = lambda: config
        self._reload_wanted = False

    async def run(self, reload: Callable[[], ServerConfig]) -> None:
        """Serve until it is told to stop, or the supervisor has gone."""
        self._reload = reload
        self._membership.ask = self._ask
        await self._server.open()
        self._loop.add_reader(self._end, self._listen)
        beating = self._loop.create_task(self._beat())
        self._send(orders.Started())
        try:
            await self._wait(self._first_map)
            if not self._stopping.is_set():
                await self._server.listen()
                self._reload_if_wanted()
                self._send(orders.Ready(self._server.addresses))
                keep_responsive(self._loop)
                await self._stopping.wait()
        finally:  # it goes on saying that it is well: what is under way may take longer than one may be silent
            if self._working:
                await asyncio.wait(self._working)
            if self._server.addresses:
                await self._server.stop()  # which may wait for what the supervisor answers
            else:
                await asyncio.to_thread(self._server.broker.close)
            beating.cancel()
            self._loop.remove_reader(self._end)

    async def _wait(self, event: asyncio.Event) -> None:
        waiting = [self._loop.create_task(one.wait()) for one in (event, self._stopping)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()

    def stop(self) -> None:
        """Answer what is under way, and end."""
        self._stopping.set()

    # What it is told.

    def _listen(self) -> None:
        try:
            packet = orders.receive(self._end)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:  # the supervisor has gone: nobody looks after this process any more
            _log.error("the supervisor has gone: stopping")
            self._loop.remove_reader(self._end)
            self.stop()
            return
        match orders.decode_order(packet):
            case orders.Take(shard):
                if not self._stopping.is_set():
                    self._begin(self._take(shard))
            case orders.Release(shard, drain_s):
                if not self._stopping.is_set():
                    self._begin(self._release(shard, drain_s))
            case orders.NewMap(cluster_map, broker_id):
                self._membership.broker_id = broker_id
                self._membership.update(cluster_map)
                if cluster_map.is_complete:
                    self._first_map.set()
            case orders.Reload():
                self._reload_wanted = True
                self._reload_if_wanted()
            case orders.Stop():
                self.stop()
            case orders.Answer(number, info, problem):
                self._answered(number, info, problem)

    def _reload_if_wanted(self) -> None:
        """Take what is configured anew; a wish that comes before it listens is kept until then."""
        if self._reload_wanted and self._server.addresses:
            self._reload_wanted = False
            reload_server(self._server, self._reload)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _take(self, shard: int) -> None:
        try:
            opened = await self._server.take_shard(shard)
        except (PenstockError, OSError) as error:
            _log.error("shard %d cannot be opened: %s", shard, error)
            self._send(orders.NotOpened(shard, str(error)))
            return
        self._send(orders.Opened(shard, opened.epoch, opened.broker_id.hex()))

    async def _release(self, shard: int, drain_s: float) -> None:
        try:
            await self._server.release_shard(shard, drain_s)
        except Exception:  # noqa: BLE001 - it may be half open: only a new process is sure
            _log.exception("shard %d cannot be released: this process ends", shard)
            os._exit(1)
        self._send(orders.Released(shard))

    # What it says.

    def _send(self, report: orders.Report) -> None:
        with contextlib.suppress(OSError):  # then the supervisor has gone, which is noticed elsewhere
            orders.send(self._end, report)

    async def _beat(self) -> None:
        """Say that it is well, as long as every shard can be worked with."""
        while True:
            await asyncio.to_thread(_lock_each, list(self._server.broker.shards))
            connections = self._server.services.metrics.connections if self._server.addresses else 0
            self._send(orders.Beat(resident_bytes(), cpu_seconds(), connections))
            await asyncio.sleep(BEAT_S)

    async def _ask(self, question: str, shard: int = -1, process: int = -1) -> ClusterInfo:
        number = next(n for n in range(len(self._asked) + 1) if n not in self._asked)
        asked: asyncio.Future[ClusterInfo] = self._loop.create_future()
        self._asked[number] = asked
        self._send(orders.Asked(number, question, shard, process))
        return await asked

    def _answered(self, number: int, info: ClusterInfo | None, problem: str | None) -> None:
        asked = self._asked.pop(number, None)
        if asked is None or asked.done():
            return
        if info is not None:
            asked.set_result(info)
        else:
            asked.set_exception(InvalidArgument(problem or "the supervisor does not say why not"))


def _lock_each(shards: list[Shard]) -> None:
    for shard in shards:
        shard.lock_once()


async def run_member(
    config: ServerConfig,
    number: int,
    own_port: int,
    sockets: Path,
    shards: int,
    end: socket.socket,
    reload: Callable[[], ServerConfig],
) -> None:
    """Be a process of a server; `end` leads to the supervisor."""
    end.settimeout(0)
    raise_limit()
    membership = Membership(number, OneMachine(number, own_port, sockets), ClusterMap([ShardPlace()] * shards, {}))
    member = Member(config, membership, end)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, member.stop)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # the supervisor passes it on
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which sends it to all: the supervisor sees to it
    try:
        await member.run(reload)
    except StartRefused as error:
        orders.send(end, orders.Refused(str(error), error.hint))
        sys.exit(2)
