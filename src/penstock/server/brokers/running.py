"""A server that is one of several on a bucket, from its start to the end."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Self

from penstock.cluster.bucket_place import BucketPlace, open_place
from penstock.cluster.members import Members
from penstock.model.cluster_map import ClusterMap, ShardPlace
from penstock.model.errors import DirectoryLocked
from penstock.server.access.starting import StartRefused, check_exposure
from penstock.server.access.tls import server_context
from penstock.server.brokers.member import BrokerMember
from penstock.server.brokers.wishes import Wishes
from penstock.server.membership import Membership
from penstock.server.peer_places import ManyMachines
from penstock.server.server import Server, keep_responsive, reload_server, stop_on_signals
from penstock.server.settings.options import ServerConfig

_log = logging.getLogger("penstock.server")
_ANY = ("0.0.0.0", "::")


class Broker:
    """A server on a bucket; `async with Broker(config) as broker` runs one in a program."""

    def __init__(self, config: ServerConfig) -> None:
        check_exposure(config)
        _check(config)
        self.config = config
        self.server: Server
        self.member: BrokerMember
        self._place: BucketPlace

    @property
    def shards(self) -> int:
        """How many the bucket has."""
        return self._place.shards

    async def start(self) -> None:
        """Join the others, and listen; shards come as soon as nobody else has them."""
        server_context(self.config)  # what is wrong with its files is told before anything is done
        self._place = place = await asyncio.to_thread(open_place, self.config.data_dir, self.config.shards)
        registry = place.registry
        members = await asyncio.to_thread(registry.join, place.root.incarnation.hex(), place.patience)
        _check_shared(members, self.config.data_dir)
        machines = ManyMachines(members.number, place.secret)
        membership = Membership(members.number, machines, ClusterMap([ShardPlace()] * place.shards, {}))
        membership.broker_id = place.broker_id
        await asyncio.to_thread(place.root.keep_near, self.config.broker)
        self.server = server = Server(self.config, membership, place.root)
        await server.open()
        server.broker.shards.tenure = registry.tenure.holds
        await server.listen()
        server.services.metrics.bucket = place.meter
        self.member = BrokerMember(server, place, members, machines)
        assert server.services.peers is not None
        membership.ask = Wishes(self.member, server.services.peers).ask
        await self.member.start(_address(self.config, server.address))
        _log.info("this is broker %d of the bucket", members.number)

    async def stop(self) -> None:
        """Hand the shards over, answer what is under way, and leave."""
        await self.member.leave(self.config.shutdown_grace)
        await self.server.stop()
        await self.member.end()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


async def serve_bucket(
    config: ServerConfig, on_ready: Callable[[Broker], None], reload: Callable[[], ServerConfig]
) -> None:
    """Run a broker of a bucket until SIGINT or SIGTERM; SIGHUP has it read again what it may."""
    loop, stopping = asyncio.get_running_loop(), stop_on_signals()
    async with Broker(config) as broker:
        loop.add_signal_handler(signal.SIGHUP, reload_server, broker.server, reload)
        waits = [loop.create_task(event.wait()) for event in (broker.member.complete, stopping)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.is_set():
            on_ready(broker)
            keep_responsive(loop)
        await stopping.wait()
        for wait in waits:
            wait.cancel()
        _log.info("stopping")
    _log.info("stopped")


def _check(config: ServerConfig) -> None:
    """Raise StartRefused for what does not go together with a bucket."""
    if config.processes > 1:
        raise StartRefused("several processes share a directory, and brokers a bucket", "start one broker, and others")
    if config.host in _ANY and config.advertise is None:
        raise StartRefused(
            f"host is {config.host}: clients and other brokers cannot be told where this one is",
            "say it with --advertise HOST:PORT",
        )
    if config.auth == "tokens" and config.tokens_dir is None:
        raise StartRefused("tokens do not lie in a bucket", "say with --tokens-dir where they are on this machine")


def _check_shared(members: Members, address: str) -> None:
    """Raise DirectoryLocked if a program has the bucket to itself; one that was killed is silent soon."""
    for number, each in members.living.items():
        if each.embedded and number != members.number:
            told = f"{address} is in use: a program (process {each.pid}) has it to itself, or ended a moment ago"
            raise DirectoryLocked(told)


def _address(config: ServerConfig, listening: tuple[str, int]) -> str:
    host, port = listening
    return config.advertise or (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
