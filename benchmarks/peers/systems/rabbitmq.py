"""RabbitMQ: a quorum queue with one member for each queue, and publisher confirms; driven by its client only."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import sleep

from benchmarks.peers.plans import Publish
from benchmarks.peers.processes import free_port, running
from benchmarks.peers.systems.pika_client import Pika, blocking, declare
from benchmarks.peers.systems.system import RAW, Peer, System

_LOOK_S, _SAME = 0.05, 5  # a count that does not change for so many looks is the last
_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The server itself: the command of the same name changes the user first."""


class RabbitPeer(Peer):
    """A RabbitMQ that runs."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self._port = port
        self._pika = Pika(port)
        self.drivers = {RAW: self._pika, "pika": self._pika}
        self.version = "RabbitMQ " + _SERVER.resolve().parts[-3].removeprefix("rabbitmq_server-")

    def make(self, queues: Sequence[str]) -> None:
        with blocking(self._port) as connection:
            for queue in queues:
                declare(connection.channel(), queue)

    def fill(self, queue: str, batch: int, count: int, seconds: float) -> int:
        return self._pika.publish_some(Publish(batch, max(1, 4000 // batch)), queue, count, seconds).messages

    def published(self, queues: Sequence[str]) -> int:
        return sum(map(self.unacked, queues))

    def unacked(self, queue: str) -> int:
        """Acks are not answered, and what a consumer held comes back after it has gone: so wait until that is done."""
        with blocking(self._port) as connection:
            channel, same, count = connection.channel(), 0, -1
            while same < _SAME:
                before, count = count, declare(channel, queue)
                same = same + 1 if count == before else 0
                sleep(_LOOK_S)
        return count


class RabbitMQ(System):
    """Quorum queues sync before they confirm."""

    name, title, group, durable = "rabbitmq", "RabbitMQ, quorum", "rabbitmq", True
    settings = "x-queue-type: quorum (one member), persistent messages, publisher confirms"

    def missing(self) -> str | None:
        return None if _SERVER.exists() and shutil.which("epmd") else "rabbitmq-server is not installed"

    @contextlib.contextmanager
    def start(self, directory: Path) -> Iterator[Peer]:
        port, names = free_port(), free_port()
        plugins = directory / "plugins"
        plugins.write_text("[].\n")
        environment = {
            "HOME": str(directory),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory),
            "RABBITMQ_CONFIG_FILE": str(directory / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} -setcookie bench",
        }
        name_server = ["epmd", "-address", "127.0.0.1", "-port", str(names)]
        with (
            running(name_server, directory, names),  # ours, so that none is left behind
            running([str(_SERVER)], directory, port, environment) as process,
        ):
            yield RabbitPeer(process.pid, port)
