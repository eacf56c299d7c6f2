"""The server: a broker and its listeners on one event loop, from start to the last reply."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from penstock.embedded.broker import Broker, lose_shard, release_shard, take_shard
from penstock.model.errors import NotOwner, PenstockError
from penstock.server.access.starting import StartRefused, check_exposure, is_loopback
from penstock.server.access.tls import read_certificates_again, server_context
from penstock.server.descriptors import raise_limit
from penstock.server.membership import Membership
from penstock.server.native.listener import NativeListener
from penstock.server.services import Services
from penstock.server.settings.options import ServerConfig
from penstock.shard.shard import Shard
from penstock.shard.upkeep.segment_process import SegmentProcess
from penstock.storage import FileStorage, Storage

if TYPE_CHECKING:
    from penstock.server.otlp.exporter import TraceExporter

_log = logging.getLogger("penstock.server")
_COLLECT_S = 600.0
_DRAIN_LOOK_S = 0.01  # how often it is looked whether messages of a shard that is to move are leased
_IMPATIENT_S = 0.5  # a second signal later than this after the first one is meant as such


class Listener(Protocol):
    """A port of the server."""

    async def start(self) -> tuple[str, int]:
        """Listen; returns the address."""

    async def stop(self, grace_s: float) -> None:
        """Accept nothing new, answer the requests under way, and close all connections."""


class PortTaken(StartRefused):
    """Somebody else listens there."""


class Server:
    """A broker that others use through a port; `async with Server(config) as server` runs one in a program.

    The broker is opened and closed with it. As one of several processes (`membership`), it has the shards that it is
    told to take, of a directory that is kept for all of them.
    """

    def __init__(
        self, config: ServerConfig, membership: Membership | None = None, storage: Storage | None = None
    ) -> None:
        """`storage`: what it serves, where that is not the directory of its configuration."""
        self.config = config
        self.membership = membership
        self._storage = storage
        self.broker: Broker
        self.services: Services
        self.addresses: dict[str, tuple[str, int]] = {}
        """Where it listens, by port: `native`, `http`, `line`."""
        self._listeners: dict[str, Listener] = {}
        self._exporters: dict[Shard, TraceExporter] = {}

    @property
    def address(self) -> tuple[str, int]:
        """Where the native port is."""
        return self.addresses["native"]

    async def start(self) -> None:
        """Open the directory and listen."""
        await self.open()
        await self.listen()

    async def open(self) -> None:
        """Open the directory."""
        check_exposure(self.config)
        server_context(self.config)  # what is wrong with its files is told before anything is done
        storage = self._storage or FileStorage(self.config.data_dir, self.config.broker.readable_by)
        process = SegmentProcess(self.config.broker.readable_by)
        held = None if self.membership is None else ()
        self.broker = await asyncio.to_thread(
            Broker, storage, self.config.broker, None, process, self.config.shards, held
        )

    async def listen(self) -> None:
        """Take requests; if that cannot be, the directory is closed again."""
        try:
            self.services = Services(self.broker, self.config, self.membership)
            for shard in self.broker.shards:
                self._export(shard)
            self._listeners = await asyncio.to_thread(_listeners, self.services)
            for name, listener in self._listeners.items():
                self.addresses[name] = await self._listen(name, listener)
            self.services.metrics.start()
            self.services.live.start()
            self.services.spare_descriptor.start()
        except BaseException:
            await self._stop_listening(0)
            self.broker.close()
            raise
        if self.services.tls is None and not is_loopback(self.config.host):
            _log.warning("what goes over the network is not encrypted, tokens included: give tls_cert and tls_key")
        self._preloading = asyncio.get_running_loop().run_in_executor(None, _preload)

    async def stop(self) -> None:
        """Answer what is under way, give leases back, close the directory."""
        await self._stop_listening(self.config.shutdown_grace)
        await asyncio.gather(*(exporter.stop() for exporter in self._exporters.values()))
        if self.services.peers is not None:
            self.services.peers.close()
        self.services.spare_descriptor.stop()
        self.services.live.stop()
        self.services.metrics.stop()
        self.services.workers.stop()
        await self._preloading
        await asyncio.to_thread(self.broker.close)

    # Shards that come and go.

    async def take_shard(self, number: int) -> Shard:
        """Open a shard here."""
        shard = await asyncio.to_thread(take_shard, self.broker, number)
        if self.addresses:
            self.services.metrics.name_topics(shard)
            self._export(shard)
        return shard

    async def release_shard(self, number: int, drain_s: float) -> None:
        """Close a shard that goes to another process, when nothing is leased or at the end of the drain."""
        shard = self.broker.shards[number]
        await self.drain_shard(number, drain_s)
        if exporter := self._exporters.pop(shard, None):
            await exporter.stop()
        await asyncio.to_thread(release_shard, self.broker, number)

    async def drain_shard(self, number: int, drain_s: float) -> None:
        """Lease no more messages of a shard, and wait until none is leased, or for so long."""
        loop, shard = asyncio.get_running_loop(), self.broker.shards[number]
        until_s = loop.time() + drain_s
        while await asyncio.to_thread(shard.drain) and loop.time() < until_s:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_LOOK_S)

    async def lose_shard(self, number: int, error: NotOwner) -> None:
        """Let a shard go at once that another process has taken."""
        if exporter := self._exporters.pop(self.broker.shards[number], None):
            await exporter.stop()
        await asyncio.to_thread(lose_shard, self.broker, number, error)

    def _export(self, shard: Shard) -> None:
        """Send traces of a shard, if that is wanted."""
        if self.config.otlp_endpoint is None:
            return
        from penstock.server.otlp.exporter import TraceExporter

        exporter = self._exporters[shard] = TraceExporter(shard, self.config)
        exporter.start()

    async def _listen(self, name: str, listener: Listener) -> tuple[str, int]:
        try:
            return await listener.start()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            port = getattr(self.config, f"{name}_port")
            raise PortTaken(
                f"port {port} of {self.config.host} is taken", f"give another with --{name}-port"
            ) from error

    async def _stop_listening(self, grace_s: float) -> None:
        started = [listener for name, listener in self._listeners.items() if name in self.addresses]
        await asyncio.gather(*(listener.stop(grace_s) for listener in started))

    def set_topic_defaults(self, config: ServerConfig) -> list[str]:
        """Take new defaults for topics that are made from now on; what changed."""
        shards = self.broker.shards
        old, new = asdict(shards.config.topic_defaults), asdict(config.broker.topic_defaults)
        shards.set_topic_defaults(config.broker.topic_defaults)
        return [f"{name}: {old[name]} -> {new[name]}" for name in new if new[name] != old[name]]

    def read_secrets_again(self, config: ServerConfig) -> None:
        """Take tokens and certificates as they are in their files now."""
        if self.services.access.required:
            self.services.access.read_again()
        if self.services.tls is not None:
            read_certificates_again(self.services.tls, config)
            self.services.encrypt_to_peers(config)
            _log.info("the certificates were read again")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.stop()


async def serve(config: ServerConfig, on_ready: Callable[[Server], None], reload: Callable[[], ServerConfig]) -> None:
    """Run a server until SIGINT or SIGTERM; SIGHUP has it read topic defaults, tokens and certificates anew."""
    loop, stopping = asyncio.get_running_loop(), stop_on_signals()
    async with Server(config) as server:
        loop.add_signal_handler(signal.SIGHUP, reload_server, server, reload)
        on_ready(server)
        keep_responsive(loop)
        await stopping.wait()
        _log.info("stopping")
    _log.info("stopped")


def stop_on_signals() -> asyncio.Event:
    """Set by SIGINT or SIGTERM; another one after a while ends the process. SIGHUP does nothing yet."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    first_s: list[float] = []

    def stop(number: int) -> None:
        if first_s and loop.time() - first_s[0] > _IMPATIENT_S:
            os._exit(128 + number)  # somebody does not want to wait; what was acknowledged is on disk
        first_s.append(loop.time())
        stopping.set()

    raise_limit()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # nothing is old yet
    return stopping


def keep_responsive(loop: asyncio.AbstractEventLoop) -> None:
    """Let nothing keep the loop of this process waiting for long: neither threads nor the garbage collector."""
    sys.setswitchinterval(0.001)
    _collect_now_and_then(loop)


def _collect_now_and_then(loop: asyncio.AbstractEventLoop) -> None:
    """Look for garbage among what is new, often and briefly; among the rest rarely, for that stops everything."""
    gc.set_threshold(1000, 5, 1_000_000)
    gc.collect()
    gc.freeze()  # what is here now stays: the collector need not look at it again
    loop.call_later(_COLLECT_S, _collect_now_and_then, loop)


def reload_server(server: Server, reload: Callable[[], ServerConfig]) -> None:
    """Take topic defaults, tokens and certificates as they are configured now."""
    try:
        config = reload()
        changed = server.set_topic_defaults(config)
        _log.info("topic defaults were read again: %s", "; ".join(changed) or "nothing changed")
        server.read_secrets_again(config)
    except (PenstockError, OSError) as error:
        _log.error("the configuration was not taken: %s", error)


def renewed(config: ServerConfig, newer: ServerConfig) -> ServerConfig:
    """The configuration of a server with what it takes of a newer one while it runs."""
    both = {name: (getattr(config, name), getattr(newer, name)) for name in ("tls_cert", "tls_key", "tls_client_ca")}
    files = {name: new for name, (old, new) in both.items() if None not in (old, new)}  # TLS is not begun or ended
    return replace(config, broker=replace(config.broker, topic_defaults=newer.broker.topic_defaults), **files)


def _listeners(services: Services) -> dict[str, Listener]:
    """The ports that are wanted; what they need is loaded only then."""
    config = services.config
    found: dict[str, Listener] = {"native": NativeListener(services)}
    if config.http_port is not None:
        from penstock.server.http.listener import HttpListener

        found["http"] = HttpListener(services)
    if config.line_port is not None:
        from penstock.server.line.listener import LineListener

        found["line"] = LineListener(services)
    return found


def _preload() -> None:
    """Load what settling and reading segments will need, before somebody waits for it."""
    import pyarrow.parquet  # noqa: F401
