"""A stage as far as a client has filled it, and the requests that fill it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Generic, TypeVar

from penstock.client.gathered import size_of
from penstock.client.link import Link
from penstock.model.errors import (
    DiskFull,
    Forbidden,
    InvalidArgument,
    LimitExceeded,
    Overloaded,
    StageNotFound,
    TopicNotFound,
)
from penstock.model.intake import check_messages
from penstock.model.message import Message
from penstock.protocol.publishing import encode_publish

Lock = TypeVar("Lock")
Rows = list[Message | bytes | str]
_REQUEST_BYTES = 4 << 20
_REQUEST_MESSAGES = 100_000
_MESSAGE_BYTES = 64
REFUSED = (InvalidArgument, TopicNotFound, Overloaded, DiskFull, Forbidden)
"""After these it is known that nothing was staged."""


class Filling(Generic[Lock]):
    """A stage as far as this client has filled it; the lock is held while filling it."""

    __slots__ = ("given_up", "lock", "messages", "requests", "writer")

    def __init__(self, lock: Lock) -> None:
        self.writer = uuid.uuid4().hex
        self.requests = 0
        self.messages = 0
        self.given_up = False
        self.lock = lock

    def check_kept(self, stage: str) -> None:
        """Raise StageNotFound if it is not known what it holds."""
        if self.given_up:
            raise StageNotFound(
                f"the stage {stage!r} is lost: it is not known what became of a part of it; drop it, and stage under "
                "another name"
            )


def batches_of(link: Link, topic: str, rows: Rows) -> list[bytes]:
    """The bodies of as few requests as possible; a batch that fits into one is encoded once."""
    limits = link.limits
    if len(rows) < 2:
        check_messages(rows, limits, 0)  # what is wrong with it is told as of a batch
    frame_bytes = link.welcome.limits.get("max_frame_bytes", _REQUEST_BYTES)
    room_bytes = min(_REQUEST_BYTES, limits.max_batch_bytes, frame_bytes // 2)
    if len(rows) <= _REQUEST_MESSAGES:
        try:
            body, count = encode_publish(topic, rows, limits)
        except LimitExceeded:
            if len(rows) < 2:
                raise
        else:
            if len(body) <= room_bytes or count < 2:
                return [body] if count else []
    return [encode_publish(topic, part, limits)[0] for part in _parts(rows, room_bytes)]


def _parts(rows: Rows, room_bytes: int) -> Iterator[Rows]:
    """The messages in parts that fit into a request each; one that does not is a part of its own."""
    start = size_bytes = 0
    for place, row in enumerate(rows):
        size = size_of(row) if isinstance(row, Message) else len(row) + _MESSAGE_BYTES
        if place > start and (size_bytes + size > room_bytes or place - start >= _REQUEST_MESSAGES):
            yield rows[start:place]
            start, size_bytes = place, 0
        size_bytes += size
    yield rows[start:]
