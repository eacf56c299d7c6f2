"""Penstock, as it is by default: on disk before it is acknowledged."""

from __future__ import annotations

import contextlib
import socket
import struct
import uuid
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

import penstock
from benchmarks.load import value_at
from benchmarks.peers import generator
from benchmarks.peers.generator import Delivery
from benchmarks.peers.plans import Driver, Refused
from benchmarks.peers.raw import batches
from benchmarks.peers.replies import Frames, Replies, frames_in
from benchmarks.peers.requests import Buffers, Built, Numbered, Requests
from benchmarks.peers.systems.penstock_clients import AsyncioClient, PlainClient
from benchmarks.peers.systems.system import GROUP, Peer, RawPeer, System
from penstock.bench.own import OwnServer
from penstock.client.sync import Client
from penstock.version import __version__

_HELLO, _PUBLISH, _SUBSCRIBE, _RECEIVE, _ACK, _REPLY = 0x01, 0x03, 0x04, 0x06, 0x09, 0x80
_HEADER = struct.Struct(">BBII")
_CORRELATION_AT, _SEQUENCE_BYTES = 2, 4
_WAIT_S = 5.0
_AT_ONCE = 1000
_BUILT = 64
_USED_TOPICS, _USED_TIMES = 3000, 3
USED_ROWS = ("alone", "connections", "window-256", "window-1000", "batches-100", "batches-1000", "values-10k")
"""What is published beside used topics."""

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder().decode


class PenstockWire:
    """Its native frames. What is published is numbered by its producer, as every client does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._producer = _producer()

    def connect(self, queues: Sequence[str]) -> socket.socket:
        connection = generator.connect(self._port)
        ask(connection, _HELLO, {"versions": [1], "client": "benchmarks.peers"})
        return connection

    def request(self, connection: socket.socket, queue: str, values: Sequence[bytes], number: int) -> bytes:
        return b"".join(_parts(queue, _payload(values), self._producer, number))

    def requests(
        self, connection: socket.socket, queues: Sequence[str], values: Sequence[bytes], batch: int, count: int
    ) -> Requests:
        producer = _producer()
        if batch == 1:
            times = max(len(values), len(queues))
            pairs = ((queues[number % len(queues)], values[number % len(values)]) for number in range(times))
            made = [b"".join(_parts(queue, _payload([value]), producer, 0)) for queue, value in pairs]
            return Numbered(made, [_CORRELATION_AT, len(made[0]) - _SEQUENCE_BYTES], count)
        payloads = [_payload(found) for found in islice(batches(values, batch), _BUILT)]

        def build(number: int) -> Buffers:
            queue, payload = queues[number % len(queues)], payloads[number % len(payloads)]
            return _parts(queue, payload, producer, number + 1)

        return Built(build)

    def replies(self, batch: int, queues: int) -> Replies:
        return Frames(_PUBLISH | _REPLY)

    def receiver(self, connection: socket.socket, queue: str, in_flight: int) -> PenstockReceiver:
        options = {"topics": [queue], "group": GROUP, "max_in_flight": max(1000, in_flight)}
        return PenstockReceiver(decode(ask(connection, _SUBSCRIBE, options))["consumer"])


class PenstockReceiver:
    """A consumer that asks for messages."""

    def __init__(self, consumer: int) -> None:
        self._consumer = consumer
        self._correlation = 1
        self._rest = b""
        self._acks: dict[int, int] = {}

    def ask(self, count: int) -> bytes:
        self._correlation += 1
        return frame(_RECEIVE, self._correlation, [self._consumer, count, _WAIT_S])

    def ask_for_any(self) -> bytes:
        return self.ask(_AT_ONCE)

    def feed(self, data: bytes) -> tuple[list[Delivery], int]:
        frames, self._rest = frames_in(self._rest + data)
        deliveries, acked = [], 0
        for command, correlation, body in frames:
            if command == _RECEIVE | _REPLY:
                deliveries.append(self._delivery(body))
            elif command == _ACK | _REPLY:
                acked += self._acks.pop(correlation)
            else:
                raise Refused(f"command {command:#x}: {body[:500]!r}")
        return deliveries, acked

    def _delivery(self, body: bytes) -> Delivery:
        held, count = [], 0
        for rows in decode(body)[0]:
            topic, partition, offsets, lease = rows[0], rows[1], rows[2], rows[9]
            values = len(decode(rows[4])[1])
            runs = [offsets, values] if isinstance(offsets, int) else [n for offset in offsets for n in (offset, 1)]
            held.append([topic, partition, lease, runs])
            count += values
        self._correlation += 1
        self._acks[self._correlation] = count
        return Delivery(count, frame(_ACK, self._correlation, [self._consumer, held]), body)


def frame(command: int, correlation: int, body: object) -> bytes:
    """One frame."""
    data = encode(body)
    return _HEADER.pack(1, command, correlation, len(data)) + data


def ask(connection: socket.socket, command: int, body: object) -> bytes:
    """The body of the reply to a request, with no other under way."""
    connection.sendall(frame(command, 1, body))
    data = b""
    while True:
        frames, data = frames_in(data + generator.receive(connection))
        for answered, _, reply in frames:
            if answered != command | _REPLY:
                raise Refused(f"command {answered:#x}: {reply[:500]!r}")
            return reply


def _parts(queue: str, payload: bytes, producer: bytes, number: int) -> Buffers:
    """A request to publish."""
    head = b"\x94" + encode(queue)  # an array of four
    tail = producer + b"\xce" + number.to_bytes(_SEQUENCE_BYTES)
    return [_HEADER.pack(1, _PUBLISH, number, len(head) + len(payload) + len(tail)) + head, payload, tail]


def _payload(values: Sequence[bytes]) -> bytes:
    return encode(encode((None, values, None)))


def _producer() -> bytes:
    return encode(uuid.uuid4().hex)


class PenstockPeer(RawPeer):
    """A server that runs."""

    def __init__(self, own: OwnServer, client: Client) -> None:
        wire = PenstockWire(int(own.address.rpartition(":")[2]))
        clients: dict[str, Driver] = {"plain": PlainClient(own.address), "asyncio": AsyncioClient(own.address)}
        super().__init__(own.process.pid, f"Penstock {__version__}", wire, **clients)
        self._client = client

    def make(self, queues: Sequence[str]) -> None:
        for queue in queues:
            self._client.create_topic(queue)

    def published(self, queues: Sequence[str]) -> int:
        wanted = set(queues)
        found = [part for topic in self._client.topics() if topic.name in wanted for part in topic.partitions]
        return sum(part.end_offset - part.first_offset for part in found)

    def unacked(self, queue: str) -> int:
        found = self._client.group(queue, GROUP)
        return found.published - found.acked


class Penstock(System):
    """A server with nothing in it."""

    name, title, group, durable = "penstock", "Penstock", "penstock", True
    settings = "as it is; 127.0.0.1, the native port alone"

    def missing(self) -> str | None:
        return None

    @contextlib.contextmanager
    def start(self, directory: Path) -> Iterator[Peer]:
        with OwnServer(directory / "data") as own, penstock.connect(own.address) as client:
            self.fill(client)
            yield PenstockPeer(own, client)

    def fill(self, client: Client) -> None:
        """What it has before it is measured."""


class UsedPenstock(Penstock):
    """A server with many topics that were written to: only what is published beside them is measured."""

    name, title = "penstock-used", "Penstock, 3,000 used topics"
    settings = "as it is, after some messages to each of 3,000 topics"

    def takes(self, row: str) -> bool:
        return row in USED_ROWS

    def fill(self, client: Client) -> None:
        for _ in range(_USED_TIMES):
            for number in range(_USED_TOPICS):
                client.publish_soon(f"used-{number:04}", value_at(number))
        client.flush()
