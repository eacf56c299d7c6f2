"""Kafka's bytes, as little of them as publishing and consuming take: the oldest versions that a broker of today has.

A request is a length, a header (which operation, which version of it, a number, the client's name) and a body; a reply
is a length, the number, and a body. Messages travel and are stored as record batches of version 2.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from time import time_ns

from google_crc32c import value as crc32c

from benchmarks.peers import generator
from benchmarks.peers.generator import Delivery
from benchmarks.peers.plans import Refused
from benchmarks.peers.raw import batches
from benchmarks.peers.replies import Replies
from benchmarks.peers.requests import Repeated, Requests
from benchmarks.peers.systems.system import GROUP

_PRODUCE, _FETCH, _COMMIT = (0, 3), (1, 4), (8, 2)
_ALL_IN_SYNC, _TIMEOUT_MS, _WAIT_MS = -1, 30_000, 5000
_FETCH_BYTES = 8 << 20
_BUILT = 64
_HEAD = struct.Struct(">ihhi")  # length, operation, version, number; the client's name follows
_REPLY = struct.Struct(">ii")  # length, number
_BATCH = struct.Struct(">qiibI")  # first offset, length of the rest, leader epoch, version, checksum of what follows
_BATCH_REST = struct.Struct(">hiqqqhii")  # attributes, last delta, two times, producer, its epoch, sequence, count
_COUNT_AT = _BATCH.size + _BATCH_REST.size - 4


class KafkaWire:
    """Produce, Fetch, OffsetCommit."""

    def __init__(self, port: int) -> None:
        self._port = port

    def connect(self, queues: Sequence[str]) -> socket.socket:
        return generator.connect(self._port)

    def request(self, connection: socket.socket, queue: str, values: Sequence[bytes], number: int) -> bytes:
        topics = _array(_text(queue) + _array(struct.pack(">i", 0) + _sized(record_batch(values))))
        body = _text(None) + struct.pack(">hi", _ALL_IN_SYNC, _TIMEOUT_MS) + topics
        return _request(_PRODUCE, number, body)

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
        return Sized(_check_produced)

    def receiver(self, connection: socket.socket, queue: str, in_flight: int) -> KafkaReceiver:
        return KafkaReceiver(queue, _position(connection, queue))


class Sized:
    """Replies with a length before each; `check` raises Refused at an error."""

    def __init__(self, check: Callable[[bytes], None]) -> None:
        self._check = check
        self._rest = b""

    def feed(self, data: bytes) -> int:
        replies, self._rest = replies_in(self._rest + data)
        for _, body in replies:
            self._check(body)
        return len(replies)


class KafkaReceiver:
    """A reader that keeps its position. It is sent whole batches: those of the size that it asks for, one a request."""

    def __init__(self, queue: str, position: int) -> None:
        self._queue = queue
        self._position = self._asked = position
        self._number = 0
        self._rest = b""
        self._acks: dict[int, int] = {}

    def ask(self, count: int) -> bytes:
        self._asked = max(self._asked, self._position)
        request = self._fetch(self._asked, 1)  # a batch is sent whole, however few bytes are asked for
        self._asked += count
        return request

    def ask_for_any(self) -> bytes:
        return self._fetch(self._position, _FETCH_BYTES)

    def _fetch(self, position: int, most_bytes: int) -> bytes:
        self._number += 1
        partition = struct.pack(">iqi", 0, position, most_bytes)
        body = struct.pack(">iiiib", -1, _WAIT_MS, 1, most_bytes, 0) + _array(_text(self._queue) + _array(partition))
        return _request(_FETCH, self._number, body)

    def feed(self, data: bytes) -> tuple[list[Delivery], int]:
        replies, self._rest = replies_in(self._rest + data)
        deliveries, acked = [], 0
        for number, body in replies:
            if number in self._acks:
                _check_committed(body)
                acked += self._acks.pop(number)
            else:
                deliveries.append(self._delivery(body))
        return deliveries, acked

    def _delivery(self, body: bytes) -> Delivery:
        records = _fetched(body, self._queue)
        count = 0
        for first, found in batches_in(records):
            self._position = first + found
            count += found
        self._number += 1
        self._acks[self._number] = count
        partition = struct.pack(">iq", 0, self._position) + _text("")
        body = _text(GROUP) + struct.pack(">i", -1) + _text("") + struct.pack(">q", -1)
        ack = _request(_COMMIT, self._number, body + _array(_text(self._queue) + _array(partition)))
        return Delivery(count, ack, records)


def record_batch(values: Sequence[bytes]) -> bytes:
    """Values without keys as a batch; the broker sets the offsets."""
    records = []
    for number, value in enumerate(values):
        record = b"\0\0" + varint(number) + varint(-1) + varint(len(value)) + value + b"\0"
        records.append(varint(len(record)) + record)
    now_ms = time_ns() // 1_000_000  # a broker deletes what seems to be too old
    head = _BATCH_REST.pack(0, len(values) - 1, now_ms, now_ms, -1, -1, -1, len(values))
    checked = head + b"".join(records)
    return _BATCH.pack(0, _BATCH.size - 12 + len(checked), -1, 2, crc32c(checked)) + checked


def batches_in(records: bytes) -> Iterator[tuple[int, int]]:
    """The first offset and the count of each whole batch."""
    start = 0
    while len(records) - start >= _COUNT_AT + 4:
        first, length = struct.unpack_from(">qi", records, start)
        if start + 12 + length > len(records):
            return
        (count,) = struct.unpack_from(">i", records, start + _COUNT_AT)
        yield first, count
        start += 12 + length


def varint(number: int) -> bytes:
    r"""A number in as few bytes as it takes, with the sign in the lowest bit.

    >>> varint(0), varint(-1), varint(64)
    (b'\x00', b'\x01', b'\x80\x01')
    """
    left, made = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def replies_in(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """The whole replies (number and body) at the start of some bytes, and what is left."""
    replies, start = [], 0
    while len(data) - start >= _REPLY.size:
        length, number = _REPLY.unpack_from(data, start)
        end = start + 4 + length
        if end > len(data):
            break
        replies.append((number, data[start + _REPLY.size : end]))
        start = end
    return replies, data[start:]


def _request(operation: tuple[int, int], number: int, body: bytes) -> bytes:
    rest = _text("benchmarks") + body
    return _HEAD.pack(_HEAD.size - 4 + len(rest), *operation, number) + rest


def _text(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(text)) + text.encode()


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _array(element: bytes) -> bytes:
    """An array of one."""
    return struct.pack(">i", 1) + element


def _check(error: int) -> None:
    if error:
        raise Refused(f"error {error}")


def _check_produced(body: bytes) -> None:
    """An array of one topic, of which an array of one partition: its number, an error, and more."""
    (name,) = struct.unpack_from(">h", body, 4)
    _check(struct.unpack_from(">h", body, 4 + 2 + name + 4 + 4)[0])


def _check_committed(body: bytes) -> None:
    _check_produced(body)


def _fetched(body: bytes, queue: str) -> bytes:
    """The records of the one partition of the one topic of a reply to Fetch."""
    at = 4 + 4 + 2 + len(queue) + 4 + 4  # delay, count and name of topics, count and number of partitions
    _check(struct.unpack_from(">h", body, at)[0])
    (aborted,) = struct.unpack_from(">i", body, at + 2 + 16)
    at += 2 + 16 + 4 + 16 * max(0, aborted)
    (size,) = struct.unpack_from(">i", body, at)
    return body[at + 4 : at + 4 + max(0, size)]


def _position(connection: socket.socket, queue: str) -> int:
    """Where the group is: what it has committed, or the beginning."""
    operation = (9, 2)  # OffsetFetch
    body = _text(GROUP) + _array(_text(queue) + _array(struct.pack(">i", 0)))
    connection.sendall(_request(operation, 0, body))
    data = b""
    while not (found := replies_in(data))[0]:
        data += generator.receive(connection)
    (offset,) = struct.unpack_from(">q", found[0][0][1], 4 + 2 + len(queue) + 4 + 4)
    return max(0, int(offset))
