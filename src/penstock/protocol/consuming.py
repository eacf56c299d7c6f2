"""The bodies of consuming: subscriptions, delivered messages as columns, and settled messages as runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from penstock.model.batch import Batch
from penstock.model.bounds import MANY_NAMES_BYTES_MAX, check_size
from penstock.model.errors import LimitExceeded
from penstock.protocol.decoding import count_leases, decoder, request_decoder
from penstock.protocol.failures import Failure

FINISHED_MAX = 100_000
"""Messages that one request may name."""
_UNCOUNTED_BYTES = 64 << 10


class Subscribe(msgspec.Struct):
    """Join a group."""

    topics: list[str]
    group: str
    mode: str = "shared"
    max_in_flight: int = 1000
    visibility_timeout: float | None = None
    autoack: bool = False
    start: str | int | float = "earliest"
    session_timeout: float = 30.0
    name: str | None = None


class Subscribed(msgspec.Struct):
    """The reply: the number of the consumer on this connection, and its name in traces."""

    consumer: int
    name: str


class Receive(msgspec.Struct, array_like=True, gc=False):
    """Ask for messages, and wait for the first if there is none."""

    consumer: int
    max_messages: int
    wait_s: float = 0.0
    visibility_s: float | None = None


class Push(msgspec.Struct, array_like=True, gc=False):
    """Have messages pushed as they come."""

    consumer: int
    window: int
    """How many may be under way to the client, or wait there; 0: push no more."""


class Rows(msgspec.Struct, array_like=True, gc=False):
    """Messages of one partition as columns; a value that is the same for all is sent once."""

    topic: str
    partition: int
    offsets: int | list[int]
    """The first of consecutive offsets, or all offsets."""
    timestamps_us: int | list[int]
    payload: bytes
    """msgpack of [keys or nil, values, headers or nil]."""
    priority: int | bytes
    deliver_at_us: list[int] | None = None
    """0 where there is none."""
    expires_at_us: list[int] | None = None
    dedupe_ids: list[str | None] | None = None
    lease: int = 0
    visibility_s: float = 0.0
    """How long the lease lasts from the start."""
    again: dict[int, tuple[int, int]] = {}
    """Deliveries (including this one) and failures, by offset, of messages that were delivered before."""


class Delivery(msgspec.Struct, array_like=True, gc=False):
    """Messages for a consumer, in the order in which they are to be handled."""

    rows: list[Rows]
    ahead: int = 0
    """How many messages the server pushes before some are taken: few if there are lanes."""
    error: Failure | None = None
    """Why no more messages are pushed, if so."""


class Held(msgspec.Struct, array_like=True, gc=False):
    """Leased messages of one partition, by the lease that holds them."""

    topic: str
    partition: int
    lease: int
    runs: list[int]
    """First offset and count of each run: [45, 3, 60, 1] is 45, 46, 47 and 60."""


class Finish(msgspec.Struct, array_like=True, gc=False):
    """ACK, RELEASE or TAKEN of leased messages. FAIL and KILL have a reason, EXTEND a time."""

    consumer: int
    held: list[Held]
    reason: str = ""
    seconds: float | None = None
    """EXTEND: lease them for this long from now. FAIL: retry after this (nil: the topic's backoff)."""


class ConsumerRequest(msgspec.Struct, array_like=True, gc=False):
    """HEARTBEAT and UNSUBSCRIBE."""

    consumer: int


class Cancel(msgspec.Struct, array_like=True, gc=False):
    """Cancel a RECEIVE; it is answered with the messages that it has, usually none."""

    consumer: int
    correlation: int


encode = msgspec.msgpack.Encoder().encode
decode_subscribe = request_decoder(Subscribe)
decode_subscribed = decoder(Subscribed)
decode_receive = request_decoder(Receive)
decode_push = request_decoder(Push)
decode_delivery = decoder(Delivery)
_decode_finish = decoder(Finish)
decode_cancel = request_decoder(Cancel)
decode_consumer = request_decoder(ConsumerRequest)


def decode_finish(body: bytes | memoryview) -> Finish:
    """Decode a request to settle; the leases of a large one are counted before they are decoded."""
    if len(body) > _UNCOUNTED_BYTES:
        check_size("the request", len(body), MANY_NAMES_BYTES_MAX)
        if count_leases(body) > FINISHED_MAX:
            raise LimitExceeded(f"one request finishes at most {FINISHED_MAX:,} messages")
    return _decode_finish(body)


def rows_of(topic: str, partition: int, offsets: Sequence[int], timestamps_us: Sequence[int], batch: Batch) -> Rows:
    """Columns as they are sent."""
    consecutive = offsets[-1] - offsets[0] + 1 == len(offsets)
    first_us = timestamps_us[0]
    return Rows(
        topic,
        partition,
        offsets[0] if consecutive else list(offsets),
        first_us if timestamps_us.count(first_us) == len(timestamps_us) else list(timestamps_us),
        batch.encode_payload(),
        batch.priority if batch.priorities is None else batch.priorities,
        None if batch.deliver_at is None else batch.deliver_at.tolist(),
        None if batch.expires_at is None else batch.expires_at.tolist(),
        batch.dedupe_ids,
    )


def runs_of(offsets: Sequence[int]) -> list[int]:
    """Ascending offsets as runs."""
    if not offsets:
        return []
    first, count = offsets[0], len(offsets)
    if offsets[-1] - first + 1 == count:
        return [first, count]
    runs: list[int] = []
    last = first - 1
    for offset in offsets:
        if offset != last + 1:
            runs += [first, last - first + 1]
            first = offset
        last = offset
    return [*runs, first, last - first + 1]


def is_run(first: int, count: int) -> bool:
    """Whether these can be offsets of a log."""
    return 0 <= first < 2**62 and 0 < count <= 10_000_000


def ranges_of(runs: Sequence[int]) -> Iterable[range]:
    """The offsets of runs, run by run; raises ValueError if they are not valid."""
    if len(runs) % 2:
        raise ValueError("runs are pairs of a first offset and a count")
    for first, count in zip(runs[::2], runs[1::2], strict=True):
        if not is_run(first, count):
            raise ValueError(f"({first}, {count}) is not a run of offsets")
        yield range(first, first + count)
