"""Publishing through a link: messages that come one by one go out together, and nothing is published twice."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import InvalidStateError
from functools import partial
from typing import Protocol

from penstock.client.link import Link
from penstock.model.errors import InvalidArgument, PenstockError, TopicNotFound
from penstock.model.message import Message, MessageId, MessageIds
from penstock.protocol.frames import Command
from penstock.protocol.publishing import decode_published, encode_publish

_UNDER_WAY_MAX = 512  # requests; a server remembers twice as many of a producer
_WAITING_MAX = 100_000  # messages that wait to be sent
_LARGE_BYTES = 1 << 20

Outcome = Callable[[MessageIds | None, PenstockError | None], None]


class Report(Protocol):
    """Where the outcome of one message is told: a future, of asyncio or of threads."""

    def done(self) -> bool:
        """Whether nobody waits any more."""

    def set_result(self, result: MessageId, /) -> None:
        """It is durable: here."""

    def set_exception(self, exception: BaseException, /) -> None:
        """It was not published, or that is not known."""


class _Gathering:
    """Messages of one topic that go out with the next request."""

    __slots__ = ("messages", "reports", "size_bytes", "timer")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reports: list[Report] = []
        self.size_bytes = 0
        self.timer: asyncio.Handle | None = None


class Publisher:
    """Numbers every request of one producer, so that a repeated one is recognised by the server."""

    def __init__(self, link: Link, linger_s: float, batch_size: int) -> None:
        self._link = link
        self._linger_s = linger_s
        self._batch_size = batch_size
        self._producer = uuid.uuid4().hex
        self._sequence = 0
        self._gathering: dict[tuple[str, bool], _Gathering] = {}
        self._full: list[tuple[str, _Gathering]] = []  # wait for earlier requests to be answered
        self._waiting = 0  # messages that were not sent yet
        self._under_way = 0
        self._less = asyncio.Event()  # set whenever a request was answered

    async def publish_soon(self, topic: str, message: Message) -> asyncio.Future[MessageId]:
        """Take a message to be published; what is returned tells where it went, once it is durable."""
        while self._waiting >= _WAITING_MAX:
            self._less.clear()
            await self._less.wait()
        report: asyncio.Future[MessageId] = self._link.loop.create_future()
        self.add(topic, message, report)
        return report

    def add(self, topic: str, message: Message, report: Report) -> None:
        """Publish a message together with the others of this moment."""
        kind = (topic, message.dedupe_id is not None)
        gathering = self._gathering.get(kind)
        if gathering is None:
            gathering = self._gathering[kind] = _Gathering()
            send = partial(self._send_gathered, kind)
            loop = self._link.loop
            gathering.timer = loop.call_later(self._linger_s, send) if self._linger_s else loop.call_soon(send)
        gathering.messages.append(message)
        gathering.reports.append(report)
        gathering.size_bytes += len(message.value) if isinstance(message.value, bytes | str) else 0
        self._waiting += 1
        if len(gathering.messages) >= self._batch_size or gathering.size_bytes >= _LARGE_BYTES:
            self._send_gathered(kind)

    async def publish_many(
        self, topic: str, messages: Iterable[Message | bytes | str], producer: str | None, sequence: int | None
    ) -> MessageIds:
        """Publish a batch as one request."""
        while self._under_way >= _UNDER_WAY_MAX or self._full:
            self._less.clear()
            await self._less.wait()
        await self._link.ready()
        future: asyncio.Future[MessageIds] = self._link.loop.create_future()

        def on_outcome(ids: MessageIds | None, error: PenstockError | None) -> None:
            if not future.done():
                if error is not None or ids is None:
                    future.set_exception(error or PenstockError("no reply"))
                else:
                    future.set_result(ids)

        if (producer is None) != (sequence is None):
            raise InvalidArgument("give producer and sequence together")
        self._request(topic, messages, on_outcome, producer, sequence)
        return await future

    async def flush(self) -> None:
        """Send what waits, and return when everything that was published is answered."""
        for kind in list(self._gathering):
            self._send_gathered(kind)
        while self._under_way or self._full:
            self._less.clear()
            await self._less.wait()

    def _request(
        self,
        topic: str,
        messages: Iterable[Message | bytes | str],
        on_outcome: Outcome,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> None:
        if producer is None or sequence is None:
            self._sequence += 1
            producer, sequence = self._producer, self._sequence
        body, count = encode_publish(topic, messages, self._link.limits, producer, sequence)

        def on_reply(reply: bytes | None, error: PenstockError | None) -> None:
            self._under_way -= 1
            self._less.set()
            on_outcome(None if reply is None else decode_published(reply).ids(topic), error)
            self._send_full()

        if not count:
            on_outcome(MessageIds(topic, []), None)
            return
        self._link.send(Command.PUBLISH, body, on_reply, repeatable=True)
        self._under_way += 1

    # Single messages.

    def _send_gathered(self, kind: tuple[str, bool]) -> None:
        gathering = self._gathering.pop(kind, None)
        if gathering is None:
            return
        if gathering.timer is not None:
            gathering.timer.cancel()
        if self._under_way >= _UNDER_WAY_MAX or self._full:
            self._full.append((kind[0], gathering))
        else:
            self._send(kind[0], gathering.messages, gathering.reports)

    def _send_full(self) -> None:
        while self._full and self._under_way < _UNDER_WAY_MAX:
            topic, gathering = self._full.pop(0)
            self._send(topic, gathering.messages, gathering.reports)

    def _send(self, topic: str, messages: list[Message], reports: list[Report]) -> None:
        self._waiting -= len(messages)
        on_outcome = partial(self._published, topic, messages, reports)
        try:
            self._request(topic, messages, on_outcome)
        except PenstockError as error:
            on_outcome(None, error)

    def _published(
        self,
        topic: str,
        messages: list[Message],
        reports: list[Report],
        ids: MessageIds | None,
        error: PenstockError | None,
    ) -> None:
        if ids is not None:
            for report, identity in zip(reports, ids, strict=True):
                with contextlib.suppress(InvalidStateError):  # nobody waits any more
                    if not report.done():
                        report.set_result(identity)
        elif isinstance(error, InvalidArgument | TopicNotFound) and len(messages) > 1:
            self._waiting += len(messages)
            for message, report in zip(messages, reports, strict=True):  # nothing was published: find out whose fault
                self._send(topic, [message], [report])
        else:
            for report in reports:
                with contextlib.suppress(InvalidStateError):
                    if not report.done():
                        report.set_exception(error or PenstockError("no reply"))
