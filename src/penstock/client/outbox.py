"""Messages from threads to the event loop: many at a time, with a limit, without a task for each."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections import deque
from collections.abc import Iterable

from penstock.client.direct import Direct, Directs
from penstock.client.gathered import size_of
from penstock.client.loop import WAITS_HERE, LoopThread
from penstock.client.publisher import Publisher
from penstock.client.reports import Answer, Report
from penstock.model.errors import BrokerClosed, NotOwner, Overloaded, TopicSpread
from penstock.model.message import Message, MessageId, MessageIds
from penstock.model.placement import whole_name
from penstock.protocol.frames import Command
from penstock.protocol.publishing import decode_published

_UNREPORTED_MAX = 100_000  # messages; then whoever publishes waits
_UNREPORTED_BYTES_MAX = 64 << 20


class Outbox:
    """Hands single messages from any thread to the publisher.

    It uses bare locks only: an exception from a signal handler leaves none of them locked.
    """

    def __init__(self, loop: LoopThread, publisher: Publisher, directs: Directs) -> None:
        self._loop = loop
        self._publisher = publisher
        self._directs = directs
        publisher.on_told = self._reported
        self._handed: deque[tuple[str, Message, Report | Answer]] = deque()
        self._lock = threading.Lock()
        self._unreported = self._unreported_bytes = 0
        self._waiting: list[threading.Lock] = []  # threads, until there is room
        self._calling = False
        self._closed = False

    def publish(self, topic: str, message: Message) -> MessageId:
        """Publish a message, and wait until it is durable."""
        if self._loop.is_here:
            raise RuntimeError(WAITS_HERE)
        name = self._publisher.name_of(topic, message)
        direct = self._directs.of(name)
        if direct.generation and not self._unreported and not self._closed and not self._publisher.lingers:
            identity = self._publish_here(direct, name, message)
            if identity is not None:
                return identity
        answer = Answer()
        self._hand_over(topic, message, answer)
        return answer.wait()

    def _publish_here(self, direct: Direct, name: str, message: Message) -> MessageId | None:
        """Publish a message from this thread; None if that was not possible, and it was not published."""
        replies: list[bytes] = []
        body, _ = self._publisher.encode(name, [message])
        try:
            if not direct.ask(Command.PUBLISH, body, replies, repeatable=True, shard=self._directs.shard_of(name)):
                return None
        except (Overloaded, NotOwner, TopicSpread):
            return None  # there, it waits for room, or finds the owner
        return decode_published(replies[0]).ids(whole_name(name))[0]

    def publish_soon(self, topic: str, message: Message) -> Report:
        """Publish a message in the background; its report. Blocks only while too many are unreported."""
        report = Report()
        self._hand_over(topic, message, report)
        return report

    def publish_many(
        self, topic: str, messages: Iterable[Message | bytes | str], producer: str | None, sequence: int | None
    ) -> MessageIds:
        """Publish a batch as one request; its messages are made in this thread."""
        rows = messages if isinstance(messages, list | bytes | str) else list(messages)
        return self._loop.wait(self._publisher.publish_many(topic, rows, producer, sequence))

    def _hand_over(self, topic: str, message: Message, report: Report | Answer) -> None:
        """Hand a message over as soon as there is room."""
        size_bytes = size_of(message)
        while True:
            with self._lock:
                if self._closed:
                    raise BrokerClosed("the client is closed")
                if not self._is_full() or self._loop.is_here:
                    if not self._calling:
                        self._loop.call(self._take)  # which waits for this lock
                        self._calling = True
                    self._handed.append((topic, message, report))
                    self._unreported += 1
                    self._unreported_bytes += size_bytes
                    return
                room = threading.Lock()
                room.acquire()
                self._waiting.append(room)
            room.acquire()

    def _is_full(self) -> bool:
        return self._unreported >= _UNREPORTED_MAX or self._unreported_bytes >= _UNREPORTED_BYTES_MAX

    def _reported(self, count: int, size_bytes: int) -> None:
        with self._lock:
            self._unreported -= count
            self._unreported_bytes -= size_bytes
            if self._waiting and not self._is_full():
                self._wake_all()

    def _wake_all(self) -> None:
        while self._waiting:
            self._waiting.pop().release()

    def _take(self) -> None:
        with self._lock:  # what is handed over from now on calls again
            self._calling = False
            handed = list(self._handed)
            self._handed.clear()
        for topic, message, report in handed:
            self._publisher.add(topic, message, report)

    def flush(self) -> None:
        """Send waiting messages; return when everything is answered."""
        self._loop.wait(self._flush())

    async def _flush(self) -> None:
        self._take()
        await self._publisher.flush()

    def close(self) -> None:
        """Accept no more messages."""
        with self._lock:
            self._closed = True
            self._wake_all()

    def give_up(self) -> None:
        """The loop has ended: fail the messages that it did not take."""
        while self._handed:
            _, _, report = self._handed.popleft()
            with contextlib.suppress(concurrent.futures.InvalidStateError):  # it was cancelled
                report.set_exception(BrokerClosed("the client was closed before it was published"))
