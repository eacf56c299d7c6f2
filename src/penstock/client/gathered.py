"""Single messages that are sent together, and who hears what became of each."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Protocol

from penstock.client.regrouping import Entry
from penstock.model.errors import PenstockError
from penstock.model.message import Message, MessageId, MessageIds

PAUSE_S = 0.02
"""The first wait for room."""
_MESSAGE_BYTES = 64
_DATA = (bytes, str, bytearray, memoryview)


class Told(Protocol):
    """Where the outcome of one message is told, to a task or to a thread."""

    def done(self) -> bool: ...

    def set_result(self, identity: MessageId, /) -> object: ...

    def set_exception(self, error: PenstockError, /) -> object: ...


class Gathering:
    """Messages of one topic that go out with the next request."""

    __slots__ = ("messages", "reports", "size_bytes", "timer")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reports: list[Told] = []
        self.size_bytes = 0
        self.timer: asyncio.Handle | None = None

    def halves(self) -> list[Gathering]:
        """Two of half the size, in order."""
        middle = len(self.messages) // 2
        found = []
        for part in (slice(middle), slice(middle, None)):
            half = Gathering()
            half.messages, half.reports = self.messages[part], self.reports[part]
            half.size_bytes = sum(map(size_of, half.messages))
            found.append(half)
        return found

    def entries(self) -> list[Entry]:
        """Each message, and who hears of it."""
        return list(zip(self.messages, self.reports, strict=True))

    def tell(self, ids: MessageIds | None, error: PenstockError | None) -> None:
        """Report their ids, or why they were not published."""
        outcomes: Iterable[MessageId | None] = itertools.repeat(None) if ids is None else ids
        for report, identity in zip(self.reports, outcomes, strict=False):
            if report.done():
                continue
            try:
                if identity is None:
                    report.set_exception(error or PenstockError("no reply"))
                else:
                    report.set_result(identity)
            except concurrent.futures.InvalidStateError:
                pass  # it was cancelled just now


class Divided:
    """Messages of one topic that are sent in parts, one request after the other."""

    __slots__ = ("parts", "pause_s", "until_s")

    def __init__(self, until_s: float) -> None:
        self.parts: deque[Gathering] = deque()
        self.pause_s = PAUSE_S
        self.until_s = until_s  # how long they wait for room


def size_of(message: Message) -> int:
    """How many bytes a message counts in buffers, even if it is not valid."""
    if type(message.value) is bytes and message.key is None and message.headers is None:
        return len(message.value) + _MESSAGE_BYTES
    size_bytes = _MESSAGE_BYTES
    for data in (message.value, message.key):
        if isinstance(data, _DATA):
            size_bytes += len(data)
    if isinstance(message.headers, Mapping):
        size_bytes += sum(len(str(name)) + len(str(text)) for name, text in message.headers.items())
    return size_bytes
