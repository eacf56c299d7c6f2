"""What is done in a row of the table, and what is measured of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from benchmarks.load import VALUE_BYTES
from penstock.bench.histogram import Histogram


class Refused(Exception):
    """A peer answered with an error, or not at all."""


class TooSlow(Exception):
    """A peer cannot keep up with a steady rate."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish for some seconds; every request is answered when it is as durable as the peer makes it."""

    batch: int = 1
    """Messages a request."""
    window: int = 1
    """Requests under way on a connection."""
    connections: int = 1
    queues: int = 1
    """They get a request each, in turn."""
    size: int = VALUE_BYTES
    soon: bool = False
    """With a call that does not wait for the reply; a report tells of it later."""


@dataclass(frozen=True, slots=True)
class Consume:
    """Receive messages that are there, and ack them."""

    batch: int = 1
    ahead: int = 0
    """Receives that are under way all the time; with 0, the next one is sent when the ack is answered."""
    count: int = 10_000
    """How many messages there are, if the peer can be filled with them in a few seconds."""


@dataclass(frozen=True, slots=True)
class Steady:
    """Single messages, each sent when it is due, received and acked; the latency is from when it was due."""

    per_second: int = 5000


Plan = Publish | Consume | Steady


@dataclass(slots=True)
class Timed:
    """What came of a plan: acknowledged messages, the time of all, the latency of each request or message."""

    messages: int
    seconds: float
    latency: Histogram | None = None


class Driver(Protocol):
    """One way to talk to a running peer: plain sockets, or a client library."""

    def can(self, plan: Plan) -> bool:
        """Whether this way can do it."""

    def publish(self, plan: Publish, queues: list[str], seconds: float) -> Timed:
        """Publish for so long."""

    def consume(self, plan: Consume, queue: str, count: int, seconds: float) -> Timed:
        """Receive and ack at most this many messages, for so long."""
