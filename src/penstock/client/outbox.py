"""Messages that threads hand over to the event loop: many at a time, with a limit, without a task for each."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections import deque
from functools import partial

from penstock.client.loop import LoopThread
from penstock.client.publisher import Publisher, size_of
from penstock.model.errors import BrokerClosed
from penstock.model.message import Message, MessageId

_UNREPORTED_MAX = 100_000  # messages; then whoever publishes waits
_UNREPORTED_BYTES_MAX = 64 << 20


class Outbox:
    """The way of single messages from any thread to the publisher."""

    def __init__(self, loop: LoopThread, publisher: Publisher) -> None:
        self._loop = loop
        self._publisher = publisher
        self._handed: deque[tuple[str, Message, concurrent.futures.Future[MessageId]]] = deque()
        self._less = threading.Condition(threading.Lock())
        self._unreported = self._unreported_bytes = 0
        self._waiting = 0  # threads
        self._calling = False
        self._closed = False

    def put(self, topic: str, message: Message) -> concurrent.futures.Future[MessageId]:
        """Publish a message; its report."""
        report: concurrent.futures.Future[MessageId] = concurrent.futures.Future()
        size_bytes = size_of(message)
        with self._less:
            while self._is_full() and not self._closed and not self._loop.is_here:
                self._waiting += 1
                try:
                    self._less.wait()
                finally:
                    self._waiting -= 1
            if self._closed:
                raise BrokerClosed("the client is closed")
            calling, self._calling = self._calling, True
            self._handed.append((topic, message, report))
            self._unreported += 1
            self._unreported_bytes += size_bytes
            if not calling:
                self._loop.call(self._take)  # last: it may take the message at once
        report.add_done_callback(partial(self._reported, size_bytes))
        return report

    def _is_full(self) -> bool:
        return self._unreported >= _UNREPORTED_MAX or self._unreported_bytes >= _UNREPORTED_BYTES_MAX

    def _reported(self, size_bytes: int, _: concurrent.futures.Future[MessageId]) -> None:
        with self._less:
            self._unreported -= 1
            self._unreported_bytes -= size_bytes
            if self._waiting:
                self._less.notify()

    def _take(self) -> None:
        with self._less:  # what is handed over from now on calls again
            self._calling = False
            handed = list(self._handed)
            self._handed.clear()
        for topic, message, report in handed:
            self._publisher.add(topic, message, report)

    async def flush(self) -> None:
        """Send what waits; return when everything is answered."""
        self._take()
        await self._publisher.flush()

    def close(self) -> None:
        """Take nothing any more."""
        with self._less:
            self._closed = True
            self._less.notify_all()

    def give_up(self) -> None:
        """The loop has ended: what was not taken is not published."""
        while self._handed:
            _, _, report = self._handed.popleft()
            with contextlib.suppress(concurrent.futures.InvalidStateError):  # nobody waits any more
                report.set_exception(BrokerClosed("the client was closed before it was published"))
