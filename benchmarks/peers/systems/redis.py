"""Redis: a stream for each queue, read by a consumer group; the append-only file synced always, or every second."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.load import batch, value_at
from benchmarks.peers import generator
from benchmarks.peers.calls import call_for, take_for
from benchmarks.peers.generator import Delivery
from benchmarks.peers.plans import Consume, Plan, Publish, Refused, Timed
from benchmarks.peers.processes import free_port, running
from benchmarks.peers.raw import batches
from benchmarks.peers.replies import Lines, Replies
from benchmarks.peers.requests import Repeated, Requests
from benchmarks.peers.systems.system import GROUP, Peer, RawPeer, System

_FIELD = b"v"
_WAIT_MS = 5000
_AT_ONCE = 1000
_BUILT = 16
_ENTRY = re.compile(rb"\*2\r\n\$\d+\r\n(\d+-\d+)\r\n\*2\r\n\$1\r\nv\r\n\$(\d+)\r\n")


class RedisWire:
    """RESP: `XADD`, `XREADGROUP`, `XACK`. A batch is so many commands in one write, answered one by one."""

    def __init__(self, port: int) -> None:
        self._port = port

    def connect(self, queues: Sequence[str]) -> socket.socket:
        return generator.connect(self._port)

    def request(self, connection: socket.socket, queue: str, values: Sequence[bytes], number: int) -> bytes:
        return b"".join(command(b"XADD", queue.encode(), b"*", _FIELD, value) for value in values)

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

    def receiver(self, connection: socket.socket, queue: str, in_flight: int) -> RedisReceiver:
        connection.sendall(command(b"XGROUP", b"CREATE", queue.encode(), GROUP.encode(), b"0", b"MKSTREAM"))
        answer = generator.receive(connection)
        if not answer.startswith((b"+OK", b"-BUSYGROUP")):
            raise Refused(answer.decode())
        return RedisReceiver(queue.encode())


class RedisReceiver:
    """A consumer of the group. Its replies come in the order of its requests."""

    def __init__(self, queue: bytes) -> None:
        self._queue = queue
        self._rest = b""

    def ask(self, count: int) -> bytes:
        what = (b"GROUP", GROUP.encode(), b"one", b"COUNT", b"%d" % count, b"BLOCK", b"%d" % _WAIT_MS)
        return command(b"XREADGROUP", *what, b"STREAMS", self._queue, b">")

    def ask_for_any(self) -> bytes:
        return self.ask(_AT_ONCE)

    def feed(self, data: bytes) -> tuple[list[Delivery], int]:
        data = self._rest + data
        deliveries, acked = [], 0
        while data:
            kind, end = data[:1], data.find(b"\r\n")
            if end < 0:
                break
            if kind == b":":
                acked += int(data[1:end])
                data = data[end + 2 :]
            elif data.startswith(b"*-1\r\n"):
                raise Refused("nothing to receive")
            elif kind == b"*":
                found = self._delivery(data)
                if found is None:
                    break
                deliveries.append(found)
                data = data[len(found.data) :]
            else:
                raise Refused(data[:500].decode(errors="replace"))
        self._rest = data
        return deliveries, acked

    def _delivery(self, data: bytes) -> Delivery | None:
        """The entries of this stream, if all of them have come."""
        head = re.match(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]*\r\n\*(\d+)\r\n", data)
        if head is None:
            return None
        count, position, ids = int(head[1]), head.end(), []
        for _ in range(count):
            entry = _ENTRY.match(data, position)
            if entry is None:
                return None
            ids.append(entry[1])
            position = entry.end() + int(entry[2]) + 2
        if position > len(data):
            return None
        return Delivery(count, command(b"XACK", self._queue, GROUP.encode(), *ids), data[:position])


def command(*words: bytes) -> bytes:
    r"""A command as an array of strings.

    >>> command(b"PING")
    b'*1\r\n$4\r\nPING\r\n'
    """
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def refused(lines: bytes) -> bool:
    """Whether there is an error among whole lines."""
    return lines.startswith(b"-") or b"\n-" in lines


class RedisPy:
    """redis-py with hiredis. Its way to have many commands under way is a pipeline, sent and answered as a whole."""

    def __init__(self, port: int) -> None:
        self._port = port

    def can(self, plan: Plan) -> bool:
        return isinstance(plan, Consume) or (isinstance(plan, Publish) and not plan.soon)

    def publish(self, plan: Publish, queues: list[str], seconds: float) -> Timed:
        queue, size = queues[0], max(plan.batch, plan.window)
        with client_of(self._port) as client:
            if size == 1:
                return call_for(seconds, 1, lambda number: client.xadd(queue, {_FIELD: value_at(number)}))

            def publish(number: int) -> None:
                pipeline = client.pipeline(transaction=False)
                for value in batch(number, size):
                    pipeline.xadd(queue, {_FIELD: value})
                pipeline.execute()

            return call_for(seconds, size, publish)

    def consume(self, plan: Consume, queue: str, count: int, seconds: float) -> Timed:
        with client_of(self._port) as client:
            if not client.xinfo_groups(queue):
                client.xgroup_create(queue, GROUP, "0")

            def take(wanted: int) -> int:
                found = client.xreadgroup(GROUP, "one", {queue: ">"}, count=wanted, block=_WAIT_MS)
                ids = [entry for _, entries in found for entry, _ in entries]
                return int(client.xack(queue, GROUP, *ids)) if ids else 0

            return take_for(seconds, plan.batch, count, take)


def client_of(port: int) -> Any:
    """A client of redis-py."""
    import redis

    return redis.Redis("127.0.0.1", port)


class RedisPeer(RawPeer):
    """A Redis that runs."""

    def __init__(self, pid: int, port: int) -> None:
        self._client = client_of(port)
        version = f"Redis {self._client.info('server')['redis_version']}"
        super().__init__(pid, version, RedisWire(port), **{"redis-py": RedisPy(port)})

    def published(self, queues: Sequence[str]) -> int:
        pipeline = self._client.pipeline(transaction=False)
        for queue in queues:
            pipeline.xlen(queue)
        return sum(pipeline.execute())

    def unacked(self, queue: str) -> int:
        (group,) = self._client.xinfo_groups(queue)
        return int(self._client.xlen(queue) - group["entries-read"] + group["pending"])


class Redis(System):
    """An append-only file that is synced always."""

    name, title, group, durable = "redis", "Redis, AOF always", "redis", True
    settings = "appendonly yes, appendfsync always, save ''"
    sync = "always"

    def missing(self) -> str | None:
        return None if shutil.which("redis-server") else "redis-server is not installed"

    @contextlib.contextmanager
    def start(self, directory: Path) -> Iterator[Peer]:
        port = free_port()
        options = {
            "bind": "127.0.0.1",
            "port": str(port),
            "dir": str(directory),
            "save": "",
            "appendonly": "yes",
            "appendfsync": self.sync,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        with running(["redis-server", *words], directory, port) as process:
            yield self.peer(process.pid, port)

    def peer(self, pid: int, port: int) -> Peer:
        """Redis while it runs, as it is driven."""
        return RedisPeer(pid, port)


class RedisEverySecond(Redis):
    """The default of the append-only file."""

    name, title, durable, sync = "redis-everysec", "Redis, AOF everysec", False, "everysec"
    settings = "appendonly yes, appendfsync everysec, save ''"
