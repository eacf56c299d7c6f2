"""beanstalkd: a tube for each queue; its binlog synced at every write, or at most every 50 ms."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.load import value_at
from benchmarks.peers import generator
from benchmarks.peers.calls import call_for, take_for
from benchmarks.peers.generator import Delivery
from benchmarks.peers.plans import Consume, Plan, Publish, Refused, Timed
from benchmarks.peers.processes import free_port, running
from benchmarks.peers.raw import batches
from benchmarks.peers.replies import Lines, Replies
from benchmarks.peers.requests import Repeated, Requests
from benchmarks.peers.systems.system import Peer, RawPeer, System

_WAIT_S = 5
_BUILT = 16
_RESERVED = re.compile(rb"RESERVED (\d+) (\d+)\r\n")


class BeanstalkdWire:
    """Lines of text: `put`, `reserve`, `delete`. It has no batches: so many commands in one write are one here."""

    def __init__(self, port: int) -> None:
        self._port = port

    def connect(self, queues: Sequence[str]) -> socket.socket:
        connection = generator.connect(self._port)
        ask(connection, use(queues[0]))
        return connection

    def request(self, connection: socket.socket, queue: str, values: Sequence[bytes], number: int) -> bytes:
        return b"".join(map(put, values))

    def requests(
        self, connection: socket.socket, queues: Sequence[str], values: Sequence[bytes], batch: int, count: int
    ) -> Requests:
        if batch > 1:
            found = islice(batches(values, batch), _BUILT)
            return Repeated([self.request(connection, queues[0], values, 0) for values in found])
        if len(queues) == 1:
            return Repeated([put(value) for value in values])
        times = max(len(values), len(queues))
        pairs = ((queues[number % len(queues)], values[number % len(values)]) for number in range(times))
        return Repeated([use(queue) + put(value) for queue, value in pairs])

    def replies(self, batch: int, queues: int) -> Replies:
        return Lines(batch if queues == 1 else 2, refused)

    def receiver(self, connection: socket.socket, queue: str, in_flight: int) -> BeanstalkdReceiver:
        ask(connection, b"watch %b\r\n" % queue.encode())
        ask(connection, b"ignore default\r\n")
        return BeanstalkdReceiver()


class BeanstalkdReceiver:
    """Reserves one message a command, and deletes it by one: a batch is so many of each."""

    def __init__(self) -> None:
        self._rest = b""
        self._wanted = deque[int]()
        self._came = b""
        self._ids: list[bytes] = []

    def ask(self, count: int) -> bytes:
        self._wanted.append(count)
        return b"reserve-with-timeout %d\r\n" % _WAIT_S * count

    def ask_for_any(self) -> bytes:
        return self.ask(1)

    def feed(self, data: bytes) -> tuple[list[Delivery], int]:
        data = self._rest + data
        deliveries, acked, start, position = [], 0, 0, 0
        while (end := data.find(b"\r\n", position)) >= 0:
            found = _RESERVED.match(data, position)
            if found is not None:
                last = found.end() + int(found[2]) + 2
                if last > len(data):
                    break
                position = last
                self._ids.append(found[1])
                if len(self._ids) == self._wanted[0]:
                    deliveries.append(self._delivery(data[start:position]))
                    start = position
            elif data.startswith(b"DELETED", position):
                acked += 1
                position = end + 2
            else:
                raise Refused(data[position:end].decode(errors="replace"))
        self._came += data[start:position]
        self._rest = data[position:]
        return deliveries, acked

    def _delivery(self, data: bytes) -> Delivery:
        acks = b"".join(b"delete %b\r\n" % found for found in self._ids)
        delivery = Delivery(self._wanted.popleft(), acks, self._came + data)
        self._ids, self._came = [], b""
        return delivery


def ask(connection: socket.socket, line: bytes) -> None:
    """Send a command about tubes, and wait for its reply."""
    connection.sendall(line)
    answer = generator.receive(connection)
    if not answer.startswith((b"USING", b"WATCHING")):
        raise Refused(answer.decode(errors="replace"))


def use(queue: str) -> bytes:
    """The command that chooses the tube of what is put."""
    return b"use %b\r\n" % queue.encode()


def put(value: bytes) -> bytes:
    """The command that publishes a value."""
    return b"put 1024 0 600 %d\r\n%b\r\n" % (len(value), value)


def refused(lines: bytes) -> bool:
    """Whether some of the lines are neither `INSERTED` nor `USING`."""
    return lines.count(b"INSERTED ") + lines.count(b"USING ") != lines.count(b"\n")


class Greenstalk:
    """greenstalk: one command at a time."""

    def __init__(self, port: int) -> None:
        self._port = port

    def can(self, plan: Plan) -> bool:
        if isinstance(plan, Publish):
            return (plan.batch, plan.window, plan.soon) == (1, 1, False)
        return isinstance(plan, Consume) and plan.batch == 1

    def publish(self, plan: Publish, queues: list[str], seconds: float) -> Timed:
        with _client(self._port, use=queues[0]) as client:
            return call_for(seconds, 1, lambda number: client.put(value_at(number), ttr=600))

    def consume(self, plan: Consume, queue: str, count: int, seconds: float) -> Timed:
        with _client(self._port, watch=queue) as client:

            def take(wanted: int) -> int:
                client.delete(client.reserve(_WAIT_S))
                return 1

            return take_for(seconds, 1, count, take)


def _client(port: int, **tubes: str) -> Any:
    import greenstalk

    return greenstalk.Client(("127.0.0.1", port), encoding=None, **tubes)


class BeanstalkdPeer(RawPeer):
    """A beanstalkd that runs."""

    def __init__(self, pid: int, port: int) -> None:
        version = subprocess.run(["beanstalkd", "-v"], check=True, capture_output=True, text=True).stdout.strip()
        super().__init__(pid, version, BeanstalkdWire(port), greenstalk=Greenstalk(port))
        self._port = port

    def published(self, queues: Sequence[str]) -> int:
        import greenstalk

        total = 0
        with _client(self._port) as client:
            for queue in queues:
                with contextlib.suppress(greenstalk.NotFoundError):  # nothing was put there
                    total += client.stats_tube(queue)["total-jobs"]
        return total

    def unacked(self, queue: str) -> int:
        import greenstalk

        with _client(self._port) as client:
            try:
                found = client.stats_tube(queue)
            except greenstalk.NotFoundError:  # nothing is there any more
                return 0
        return int(found["current-jobs-ready"] + found["current-jobs-reserved"])


class Beanstalkd(System):
    """A binlog that is synced at every write."""

    name, title, group, durable = "beanstalkd", "beanstalkd, -f 0", "beanstalkd", True
    settings = "-b DIR -f 0"
    options: tuple[str, ...] = ("-f", "0")

    def missing(self) -> str | None:
        return None if shutil.which("beanstalkd") else "beanstalkd is not installed"

    @contextlib.contextmanager
    def start(self, directory: Path) -> Iterator[Peer]:
        port = free_port()
        command = ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", str(directory), *self.options]
        with running(command, directory, port) as process:
            yield BeanstalkdPeer(process.pid, port)


class BeanstalkdDefault(Beanstalkd):
    """A binlog as it is synced by default: at most every 50 ms."""

    name, title, durable, options = "beanstalkd-default", "beanstalkd, default", False, ()
    settings = "-b DIR (syncs at most every 50 ms)"
