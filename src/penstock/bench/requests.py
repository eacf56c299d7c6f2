"""The bodies of PUBLISH, made once as far as they are always the same."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

_PAYLOADS_MAX = 64
_PAYLOADS_BYTES = 8 << 20
STAMP_BYTES = 8

encode = msgspec.msgpack.Encoder().encode
Parts = tuple[bytes, bytes]


class Requests:
    """Batches of random values, over and over the same few, to one topic after the other.

    Of a body only the sequence number is new: topic and payload are encoded here, once.
    """

    def __init__(self, topics: Sequence[str], batch: int, size: int) -> None:
        self.batch = batch
        self.size = size
        self._heads = [b"\x94" + encode(topic) for topic in topics]  # an array of four
        chance = random.Random(42)
        count = max(1, min(_PAYLOADS_MAX, _PAYLOADS_BYTES // (batch * (size + 5))))
        self._payloads = [encode(payload_of([chance.randbytes(size) for _ in range(batch)])) for _ in range(count)]

    def parts(self, number: int, due_ns: int) -> Parts:
        """Topic and payload of the request with this number."""
        return self._heads[number % len(self._heads)], self._payloads[number % len(self._payloads)]


class StampedRequests(Requests):
    """Batches whose values begin with the time at which they were to be sent."""

    def __init__(self, topic: str, batch: int, size: int) -> None:
        super().__init__([topic], batch, size)
        self._rest = random.Random(42).randbytes(size - STAMP_BYTES)

    def parts(self, number: int, due_ns: int) -> Parts:
        value = due_ns.to_bytes(STAMP_BYTES) + self._rest
        return self._heads[0], encode(payload_of([value] * self.batch))


def payload_of(values: list[bytes]) -> bytes:
    """Values without keys and headers, as they are stored."""
    return encode((None, values, None))


def stamp_of(value: bytes) -> int:
    """When a stamped message was to be sent."""
    return int.from_bytes(value[:STAMP_BYTES])
