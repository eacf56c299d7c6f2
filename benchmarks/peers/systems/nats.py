"""NATS JetStream: a stream for each queue, or one stream with a subject for each of many; pulled, acked one by one."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.peers import generator
from benchmarks.peers.generator import Delivery
from benchmarks.peers.plans import Refused
from benchmarks.peers.processes import free_port, running
from benchmarks.peers.raw import batches
from benchmarks.peers.replies import Lines, Replies
from benchmarks.peers.requests import Repeated, Requests
from benchmarks.peers.systems.nats_client import NatsPy
from benchmarks.peers.systems.system import GROUP, Peer, RawPeer, System

_WAIT_NS = 5_000_000_000
_AT_ONCE = 1000
_BUILT = 16
_CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"lang":"raw","version":"1","headers":false}\r\nPING\r\n'
_PING = b"PING\r\n"
_DELIVERED = re.compile(rb"MSG \S+ 1 (\S+) (\d+)\r\n")
_ACKED = re.compile(rb"MSG \S+ 2 0\r\n\r\n")


class NatsWire:
    """Lines of text: `PUB` with a subject for the reply, which is a message with a line of JSON."""

    def __init__(self, port: int) -> None:
        self._port = port

    def connect(self, queues: Sequence[str]) -> socket.socket:
        connection = generator.connect(self._port)
        connection.sendall(_CONNECT)
        answer = b""
        while not answer.endswith(b"PONG\r\n"):
            answer += generator.receive(connection)
        connection.sendall(b"SUB %b 1\r\n" % inbox_of(connection))
        return connection

    def request(self, connection: socket.socket, queue: str, values: Sequence[bytes], number: int) -> bytes:
        return b"".join(published(queue.encode(), inbox_of(connection), value) for value in values)

    def requests(
        self, connection: socket.socket, queues: Sequence[str], values: Sequence[bytes], batch: int, count: int
    ) -> Requests:
        if batch > 1:
            found = islice(batches(values, batch), _BUILT)
            return Repeated([self.request(connection, queues[0], values, 0) for values in found])
        times = max(len(values), len(queues))
        pairs = ((queues[number % len(queues)], values[number % len(values)]) for number in range(times))
        return Repeated([self.request(connection, queue, [value], 0) for queue, value in pairs])

    def replies(self, batch: int, queues: int) -> Replies:
        return Lines(2 * batch, refused)

    def receiver(self, connection: socket.socket, queue: str, in_flight: int) -> NatsReceiver:
        self.call(f"CONSUMER.CREATE.{queue}.{GROUP}", consumer_of(queue, in_flight))
        inbox = inbox_of(connection)
        connection.sendall(b"SUB %b.acks 2\r\n" % inbox)
        return NatsReceiver(queue, inbox, inbox + b".acks")

    def call(self, operation: str, arguments: object) -> dict[str, Any]:
        """An operation of JetStream, on a connection of its own."""
        data = json.dumps(arguments).encode()
        with self.connect([]) as connection:
            connection.sendall(published(f"$JS.API.{operation}".encode(), inbox_of(connection), data))
            answer = generator.receive(connection)
            while answer.count(b"\r\n") < 2 or not answer.endswith(b"\r\n"):
                answer += generator.receive(connection)
        found: dict[str, Any] = json.loads(answer.partition(b"\r\n")[2])
        if "error" in found:
            raise Refused(f"{operation}: {found['error']}")
        return found


class NatsReceiver:
    """Pulls from the consumer. Messages come one by one, and each is acked by one, with a reply."""

    def __init__(self, queue: str, inbox: bytes, acks: bytes) -> None:
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{queue}.{GROUP}".encode()
        self._inbox = inbox
        self._acks = acks
        self._rest = self._came = b""
        self._wanted = deque[int]()
        self._found: list[bytes] = []
        self._untaken = 0

    def ask(self, count: int) -> bytes:
        self._wanted.append(count)
        return self._pull(count)

    def ask_for_any(self) -> bytes:
        if self._untaken > _AT_ONCE // 2:
            return b""
        self._untaken += _AT_ONCE
        return self._pull(_AT_ONCE)

    def _pull(self, count: int) -> bytes:
        return published(self._next, self._inbox, b'{"batch":%d,"expires":%d}' % (count, _WAIT_NS))

    def feed(self, data: bytes) -> tuple[list[Delivery], int]:
        data = self._rest + data
        deliveries, acked, start, position = [], 0, 0, 0
        while position < len(data):
            if (delivered := _DELIVERED.match(data, position)) is not None:
                last = delivered.end() + int(delivered[2]) + 2
                if last > len(data):
                    break
                position = last
                self._found.append(delivered[1])
                if self._wanted and len(self._found) == self._wanted[0]:
                    self._wanted.popleft()
                    deliveries.append(self._delivery(data[start:position]))
                    start = position
            elif (found := _ACKED.match(data, position)) is not None:
                acked += 1
                position = found.end()
            elif data.startswith(_PING, position):  # it may stay unanswered for minutes
                position += len(_PING)
            elif data.count(b"\r\n", position) < 2:
                break
            else:
                raise Refused(data[position : position + 500].decode(errors="replace"))
        if self._untaken and self._found:
            self._untaken -= len(self._found)
            deliveries.append(self._delivery(data[start:position]))
            start = position
        self._came += data[start:position]
        self._rest = data[position:]
        return deliveries, acked

    def _delivery(self, data: bytes) -> Delivery:
        acks = b"".join(published(subject, self._acks, b"+ACK") for subject in self._found)
        delivery = Delivery(len(self._found), acks, self._came + data)
        self._found, self._came = [], b""
        return delivery


def inbox_of(connection: socket.socket) -> bytes:
    """The subject on which a connection gets its replies."""
    return b"in.%d" % connection.getsockname()[1]


def published(subject: bytes, reply: bytes, value: bytes) -> bytes:
    """The command that publishes a value, answered on a subject."""
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(value), value)


def refused(lines: bytes) -> bool:
    """Whether there is an error among whole lines."""
    return b'"error"' in lines or b"-ERR" in lines


def consumer_of(queue: str, in_flight: int) -> dict[str, Any]:
    """The consumer of a queue: of the stream, and of the group."""
    config = {
        "durable_name": GROUP,
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "max_ack_pending": max(1000, in_flight),
        "ack_wait": 600_000_000_000,
    }
    return {"stream_name": queue, "config": config}


class NatsPeer(RawPeer):
    """A NATS server that runs."""

    def __init__(self, pid: int, port: int) -> None:
        self._wire = NatsWire(port)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            version = json.loads(connection.recv(65536).partition(b"\r\n")[0].removeprefix(b"INFO "))["version"]
        super().__init__(pid, f"NATS {version}", self._wire, **{"nats-py": NatsPy(port)})

    def make(self, queues: Sequence[str]) -> None:
        config = {"name": queues[0], "subjects": list(queues), "storage": "file", "retention": "limits"}
        self._wire.call(f"STREAM.CREATE.{queues[0]}", config)

    def published(self, queues: Sequence[str]) -> int:
        return int(self._wire.call(f"STREAM.INFO.{queues[0]}", {})["state"]["messages"])

    def unacked(self, queue: str) -> int:
        found = self._wire.call(f"CONSUMER.INFO.{queue}.{GROUP}", {})
        return int(found["num_pending"] + found["num_ack_pending"])


class Nats(System):
    """Synced before a message is acknowledged."""

    name, title, group, durable = "nats", "NATS, sync always", "nats", True
    settings = "jetstream, sync_interval: always"
    sync: str | None = "always"

    def missing(self) -> str | None:
        return None if _server() else "nats-server is not installed"

    @contextlib.contextmanager
    def start(self, directory: Path) -> Iterator[Peer]:
        port = free_port()
        sync = "" if self.sync is None else f"  sync_interval: {self.sync}\n"
        text = f'listen: "127.0.0.1:{port}"\nping_interval: "1h"\njetstream {{\n  store_dir: "{directory}"\n{sync}}}\n'
        config = directory / "nats.conf"
        config.write_text(text)
        with running([_server(), "-c", str(config)], directory, port) as process:
            yield NatsPeer(process.pid, port)


class NatsDefault(Nats):
    """As it is by default: synced every two minutes."""

    name, title, durable, sync = "nats-default", "NATS, default", False, None
    settings = "jetstream (syncs every 2 minutes)"


def _server() -> str:
    """The server of this environment, which is newer, or else the system's."""
    own = Path(sys.executable).parent / "nats-server"
    return str(own) if own.exists() else shutil.which("nats-server") or ""
