"""Several servers of one directory on one event loop, as processes are: quick to start, and moved by hand.

Each has its own shards, ports and sockets, and knows of the others what processes know of one another.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.cluster.assigning import assign
from penstock.cluster.directory import divide
from penstock.model.cluster_map import ClusterMap, ShardPlace
from penstock.model.placement import shard_of
from penstock.server.config import ServerConfig
from penstock.server.membership import Membership
from penstock.server.peer_places import ManyMachines, Neighbours, OneMachine
from penstock.server.server import Server
from penstock.storage import FileStorage

SECRET = b"the secret of a cluster"


class Several:
    """The servers, and the map that all of them have."""

    def __init__(self, servers: list[Server], shards: int, addresses: dict[int, str]) -> None:
        self.servers = servers
        self.map = ClusterMap([ShardPlace()] * shards, addresses)

    @property
    def address(self) -> str:
        """The native port that all of them listen on."""
        host, port = self.servers[0].addresses["native"]
        return f"{host}:{port}"

    def own_address(self, number: int) -> str:
        """The native port of one of them."""
        address = self.map.addresses[number]
        return f"127.0.0.1{address}" if address.startswith(":") else address

    def owner_of(self, topic: str) -> int:
        """The number of the server that has a topic."""
        return self.map.shards[self.map.shard_of(topic)].process

    def topic_of(self, number: int, name: str = "topic") -> str:
        """A topic that lives at a server."""
        return next(f"{name}-{n}" for n in range(10_000) if self.owner_of(f"{name}-{n}") == number)

    def topic_in(self, shard: int, name: str = "topic") -> str:
        """A topic that lives in a shard."""
        count = len(self.map.shards)
        return next(f"{name}-{n}" for n in range(10_000) if shard_of(f"{name}-{n}", count) == shard)

    async def take(self, shard: int, number: int) -> None:
        """Have a server open a shard, and tell nobody."""
        opened = await self.servers[number].take_shard(shard)
        places = list(self.map.shards)
        places[shard] = ShardPlace(opened.epoch, number)
        self.map = ClusterMap(places, self.map.addresses)

    async def move(self, shard: int, number: int, drain_s: float = 0.0) -> None:
        """Move a shard to another server, and tell all."""
        await self.servers[self.map.shards[shard].process].release_shard(shard, drain_s)
        await self.take(shard, number)
        self.tell()

    async def give_all(self, origin: int, target: int) -> None:
        """Have a server open all shards of one that has ended, and tell all."""
        for shard, place in enumerate(self.map.shards):
            if place.process == origin:
                await self.take(shard, target)
        self.tell()

    def tell(self) -> None:
        """Let all servers have the newest map."""
        for server in self.servers:
            assert server.membership is not None
            server.membership.update(self.map)


@asynccontextmanager
async def several(
    directory: Path,
    shards: int = 4,
    processes: int = 2,
    *,
    ports: tuple[str, ...] = ("native",),
    network: bool = False,
    **options: Any,
) -> AsyncIterator[Several]:
    """Servers with the shards of a directory dealt to them; `ports` are those that they have, on free numbers.

    They reach one another by sockets, or as on a `network`: each then has ports of its own, and no other.
    """
    async with AsyncExitStack() as stack:
        root = FileStorage(directory)
        divide(root, shards)
        stack.callback(root.close)
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-")))
        own_ports = [stack.enter_context(_reserved()).getsockname()[1] for _ in range(processes)]
        common = {f"{name}_port": 0 if network else stack.enter_context(_reserved()).getsockname()[1] for name in ports}
        config = ServerConfig.parse(
            {"data_dir": str(directory), "http_port": None, "line_port": None, **common, **options}
        )
        addresses = {number: f":{port}" for number, port in enumerate(own_ports)}
        empty = ClusterMap([ShardPlace()] * shards, addresses)
        neighbours: list[Neighbours] = [
            ManyMachines(number, SECRET) if network else OneMachine(number, port, sockets)
            for number, port in enumerate(own_ports)
        ]
        memberships = [Membership(number, others, empty) for number, others in enumerate(neighbours)]
        found = Several([Server(config, membership) for membership in memberships], shards, addresses)
        for server in found.servers:
            await server.open()
        for shard, owner in assign(shards, map(str, range(processes)), {}).items():
            await found.take(shard, int(owner))
        identity = next(shard for server in found.servers for shard in server.broker.shards).broker_id.hex()
        for server in found.servers:
            assert server.membership is not None
            server.membership.broker_id = identity
        found.tell()
        for number, server in enumerate(found.servers):
            await server.listen()
            stack.push_async_callback(server.stop)
            if network:
                addresses[number] = f"127.0.0.1:{server.address[1]}"
        for each in neighbours:
            if isinstance(each, ManyMachines):
                each.addresses = addresses
        found.tell()
        yield found


def _reserved() -> socket.socket:
    """A port that several may listen on, kept for them."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    kept.bind(("127.0.0.1", 0))
    return kept
