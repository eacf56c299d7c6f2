"""Messages that threads hand over to the event loop: many at a time, with a limit, without a task for each."""

from __future__ import annotations

import concurrent.futures
import threading
from collections import deque

from penstock.client.loop import LoopThread
from penstock.client.publisher import Publisher
from penstock.model.message import Message, MessageId

_UNREPORTED_MAX = 100_000  # messages; then whoever publishes waits


class Outbox:
    """The way of single messages from any thread to the publisher."""

    def __init__(self, loop: LoopThread, publisher: Publisher) -> None:
        self._loop = loop
        self._publisher = publisher
        self._handed: deque[tuple[str, Message, concurrent.futures.Future[MessageId]]] = deque()
        self._room = threading.Semaphore(_UNREPORTED_MAX)
        self._calling = False

    def put(self, topic: str, message: Message) -> concurrent.futures.Future[MessageId]:
        """Publish a message; its report."""
        report: concurrent.futures.Future[MessageId] = concurrent.futures.Future()
        self._room.acquire()
        report.add_done_callback(self._reported)
        self._handed.append((topic, message, report))
        if not self._calling:
            self._calling = True
            self._loop.call(self._take)
        return report

    def _reported(self, _: concurrent.futures.Future[MessageId]) -> None:
        self._room.release()

    def _take(self) -> None:
        self._calling = False  # before looking: what is handed over from now on calls again
        while self._handed:
            self._publisher.add(*self._handed.popleft())

    async def flush(self) -> None:
        """Send what waits; return when everything is answered."""
        self._take()
        await self._publisher.flush()
