"""The raw way to a peer: the generator, with the bytes of its protocol."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Protocol

from benchmarks.load import VALUE_BYTES, values
from benchmarks.peers import generator, steady
from benchmarks.peers.generator import Lane, Receiver
from benchmarks.peers.plans import Consume, Plan, Publish, Steady, Timed
from benchmarks.peers.replies import Replies
from benchmarks.peers.requests import Requests

_PER_S_MAX = 800_000  # prepared for one connection with a window; where it is not reached, the clock ends the row
_PER_S_ALONE = 40_000
_PER_S_OF_MANY = 8000
_FEW = 2000
_FILL_WINDOW = 256


class Wire(Protocol):
    """The bytes of a protocol."""

    def connect(self, queues: Sequence[str]) -> socket.socket:
        """A connection that is ready for requests to these queues, or to consume them."""

    def request(self, connection: socket.socket, queue: str, values: Sequence[bytes], number: int) -> bytes:
        """Publish some values; a connection counts its requests from 1."""

    def requests(
        self, connection: socket.socket, queues: Sequence[str], values: Sequence[bytes], batch: int, count: int
    ) -> Requests:
        """At least so many requests, to one queue after the other."""

    def replies(self, batch: int, queues: int) -> Replies:
        """The replies to them."""

    def receiver(self, connection: socket.socket, queue: str, in_flight: int) -> Receiver:
        """A consumer of the queue that may hold so many messages; it gets all from the first."""


class Raw:
    """Drives any peer whose bytes are known."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def can(self, plan: Plan) -> bool:
        return not (isinstance(plan, Publish) and plan.soon)

    def publish(self, plan: Publish, queues: list[str], seconds: float) -> Timed:
        per_s = _PER_S_OF_MANY if plan.connections > 1 else _PER_S_MAX if plan.window > 1 else _PER_S_ALONE
        count = max(plan.window, round(seconds * per_s / plan.batch))
        with contextlib.ExitStack() as stack:
            lanes = []
            for _ in range(plan.connections):
                connection = stack.enter_context(self._wire.connect(queues))
                requests = self._wire.requests(connection, queues, values_of(plan.size), plan.batch, count)
                lanes.append(Lane(connection, requests, self._wire.replies(plan.batch, len(queues))))
            return generator.publish(lanes, plan, seconds)

    def fill(self, queue: str, batch: int, count: int, seconds: float) -> int:
        """Publish so many messages in batches, or as many as can be in this time; how many that were."""
        plan = Publish(batch=batch, window=max(4, _FILL_WINDOW // batch))
        with self._wire.connect([queue]) as connection:
            requests = self._wire.requests(connection, [queue], values_of(plan.size), plan.batch, count)
            requests.left = count // plan.batch
            return generator.publish(
                [Lane(connection, requests, self._wire.replies(plan.batch, 1))], plan, seconds
            ).messages

    def consume(self, plan: Consume, queue: str, count: int, seconds: float) -> Timed:
        with self._wire.connect([queue]) as connection:
            receiver = self._wire.receiver(connection, queue, (plan.ahead + 2) * plan.batch)
            return generator.consume(connection, receiver, plan, count, seconds)

    def steady(self, plan: Steady, queue: str, seconds: float) -> Timed:
        with self._wire.connect([queue]) as publisher, self._wire.connect([queue]) as consumer:
            receiver = self._wire.receiver(consumer, queue, 100_000)

            def request(value: bytes, number: int) -> bytes:
                return self._wire.request(publisher, queue, [value], number)

            ends = steady.Ends(publisher, request, self._wire.replies(1, 1), consumer, receiver)
            return steady.run(ends, values()[0], plan.per_second, seconds)


def values_of(size: int) -> list[bytes]:
    """Values of a size: those of all benchmarks, or several of them in one."""
    if size == VALUE_BYTES:
        return values()[:_FEW]
    each = size // VALUE_BYTES + 1
    return [b"".join(values()[start : start + each])[:size] for start in range(0, 100 * each, each)]


def batches(found: Sequence[bytes], size: int) -> Iterator[list[bytes]]:
    """The values in batches of one size, each value at least once."""
    for start in range(0, max(len(found), size), size):
        yield [found[number % len(found)] for number in range(start, start + size)]
