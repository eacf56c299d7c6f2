"""Publishing through a link: single messages are sent together, and nothing is published twice.

What was gathered here is one request only because that is faster: where the server refuses it as a whole, its messages
are sent again in halves, one request of the topic at a time, so that each is taken or refused for itself and they keep
their order. Where not even one more has room (`Overloaded`), they wait for it, as long as the client's timeout.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from penstock.client.cluster import Cluster
from penstock.client.gathered import PAUSE_S, Divided, Gathering, Told, size_of
from penstock.client.regrouping import Entry, Regrouping
from penstock.model.batch import Batch
from penstock.model.errors import BrokerClosed, InvalidArgument, Overloaded, PenstockError, TopicNotFound, TopicSpread
from penstock.model.intake import check_messages, check_producer
from penstock.model.message import Message, MessageId, MessageIds
from penstock.model.placement import whole_name
from penstock.protocol.frames import Command
from penstock.protocol.publishing import decode_published, encode_publish

_UNDER_WAY_MAX = 512  # requests; a server remembers twice as many of a producer
_UNDER_WAY_BYTES_MAX = 64 << 20
_WAITING_MAX = 100_000  # messages that wait to be sent
_WAITING_BYTES_MAX = 64 << 20
_LARGE_BYTES = 1 << 20
_PAUSE_S_MAX = 0.5


class Awaited(Protocol):
    """What knows whether somebody still waits for an outcome."""

    def done(self) -> bool: ...


Outcome = Callable[[MessageIds | None, PenstockError | None], None]


class Publisher:
    """Numbers every request of one producer, so that the server recognises a repeated one."""

    def __init__(self, cluster: Cluster, linger_s: float, batch_size: int) -> None:
        self._cluster = cluster
        self._link = cluster.first
        self._linger_s = linger_s
        self._batch_size = batch_size
        self._producer = uuid.uuid4().hex
        self._sequences = itertools.count(1)  # threads take from it too
        self._gathering: dict[tuple[str, bool], Gathering] = {}
        self._full: deque[tuple[str, Gathering]] = deque()  # wait for earlier requests to be answered
        self._divided: dict[str, Divided] = {}  # topics that refused a whole request
        self._waiting = self._waiting_bytes = 0  # messages that were not sent yet
        self._regrouping = Regrouping(self.add)
        self._under_way: dict[int, tuple[Sequence[Awaited], int]] = {}  # requests: who waits, and their size
        self._under_way_bytes = 0
        self._requests = 0
        self._less = asyncio.Event()  # set whenever a request was answered
        self.on_told: Callable[[int, int], None] = lambda _messages, _size_bytes: None

    def publish(self, topic: str, message: Message) -> Awaitable[MessageId]:
        """Publish a message; the result is done when it is durable, and is rarely a coroutine."""
        return self._publish_later(topic, message) if self._is_crowded() else self._report_of(topic, message)

    async def publish_soon(self, topic: str, message: Message) -> asyncio.Future[MessageId]:
        """Accept a message for publishing; the future has its id once it is durable."""
        while self._is_crowded():
            self._less.clear()
            await self._less.wait()
        return self._report_of(topic, message)

    async def _publish_later(self, topic: str, message: Message) -> MessageId:
        return await (await self.publish_soon(topic, message))

    def _is_crowded(self) -> bool:
        return self._waiting >= _WAITING_MAX or self._waiting_bytes >= _WAITING_BYTES_MAX

    def _report_of(self, topic: str, message: Message) -> asyncio.Future[MessageId]:
        report: asyncio.Future[MessageId] = self._link.loop.create_future()
        self.add(topic, message, report)
        return report

    def add(self, topic: str, message: Message, report: Told) -> None:
        """Publish a message together with others that come at the same time."""
        if self._cluster.is_mapped:
            if self._regrouping.takes(topic, message, report):
                return
            topic = self.name_of(topic, message)
        kind = (topic, message.dedupe_id is not None)
        gathering = self._gathering.get(kind)
        if gathering is None:
            gathering = self._gathering[kind] = Gathering()
            send = partial(self._send_gathered, kind)
            loop = self._link.loop
            gathering.timer = loop.call_later(self._linger_s, send) if self._linger_s else loop.call_soon(send)
        gathering.messages.append(message)
        gathering.reports.append(report)
        size_bytes = size_of(message)
        gathering.size_bytes += size_bytes
        self._waiting += 1
        self._waiting_bytes += size_bytes
        if len(gathering.messages) >= self._batch_size or gathering.size_bytes >= _LARGE_BYTES:
            self._send_gathered(kind)

    def name_of(self, topic: str, message: Message) -> str:
        """The slice that a message goes to, where its topic is known to be spread; else that."""
        slices = self._cluster.slices
        return slices.name_of(topic, message, self._requests) if slices else topic

    async def publish_many(
        self, topic: str, messages: Iterable[Message | bytes | str], producer: str | None, sequence: int | None
    ) -> MessageIds:
        """Publish a batch as one request."""
        rows = messages if isinstance(messages, list | bytes | str) else list(messages)
        plain = Message not in set(map(type, rows))
        deduped = 0 if plain else sum(isinstance(row, Message) and row.dedupe_id is not None for row in rows)
        check_producer(Batch([], dedupe_ids=[] if deduped else None), producer, sequence)
        while self._is_busy() or self._full:
            self._less.clear()
            await self._less.wait()
        await self._cluster.ready(topic, self._link.timeout_s)
        if len(rows) == 1:
            check_messages(rows, self._link.limits, 0)  # what is wrong with it is told as of a batch
        future: asyncio.Future[MessageIds] = self._link.loop.create_future()

        def on_outcome(ids: MessageIds | None, error: PenstockError | None) -> None:
            if not future.done():
                if error is not None or ids is None:
                    future.set_exception(error or PenstockError("no reply"))
                else:
                    future.set_result(ids)

        is_known_again = deduped in (0, len(rows))  # else some have a dedupe id, and some nothing to be known by
        self._request(topic, rows, [future], on_outcome, producer, sequence, repeatable=is_known_again, single=False)
        return await future

    def encode(
        self,
        topic: str,
        messages: Iterable[Message | bytes | str],
        producer: str | None = None,
        sequence: int | None = None,
    ) -> tuple[bytes, int]:
        """A request that the server knows again, and how many messages it has; made in any thread."""
        own = producer is None or sequence is None
        if producer is None or sequence is None:
            producer, sequence = self._producer, next(self._sequences)
        return encode_publish(topic, messages, self._link.limits, producer, sequence, own)

    @property
    def lingers(self) -> bool:
        """Whether messages wait for others."""
        return self._linger_s > 0

    async def flush(self) -> None:
        """Send waiting messages, and return when everything published before is answered."""
        for kind in list(self._gathering):
            self._send_gathered(kind)
        waiting = [report for reports, _ in self._under_way.values() for report in reports]
        waiting += [report for _, gathering in self._full for report in gathering.reports]
        parts = [part for divided in self._divided.values() for part in divided.parts]
        waiting += [report for part in parts for report in part.reports]
        waiting += self._regrouping.reports()
        while waiting:
            if waiting[-1].done():
                waiting.pop()
                continue
            self._less.clear()
            await self._less.wait()

    def _is_busy(self) -> bool:
        return len(self._under_way) >= _UNDER_WAY_MAX or self._under_way_bytes >= _UNDER_WAY_BYTES_MAX

    def _request(
        self,
        topic: str,
        messages: Iterable[Message | bytes | str],
        reports: Sequence[Awaited],
        on_outcome: Outcome,
        producer: str | None = None,
        sequence: int | None = None,
        repeatable: bool = True,
        single: bool = True,
    ) -> None:
        """Send a request; `single` messages can be sent again one by one, wherever they belong."""
        body, count = self.encode(topic, messages, producer, sequence)
        number = self._requests = self._requests + 1

        def on_reply(reply: bytes | None, error: PenstockError | None) -> None:
            del self._under_way[number]
            self._under_way_bytes -= len(body)
            on_outcome(None if reply is None else decode_published(reply).ids(whole_name(topic)), error)
            if single:
                self._regrouping.answered(topic, is_done=error is None)
            self._less.set()
            self._send_full()

        if not count:
            on_outcome(MessageIds(topic, []), None)
            return
        if single:
            self._regrouping.sent(topic)
        self._cluster.send(topic, Command.PUBLISH, body, on_reply, repeatable=repeatable, whole=single)
        self._under_way[number] = (reports, len(body))
        self._under_way_bytes += len(body)

    # Single messages.

    def _send_gathered(self, kind: tuple[str, bool]) -> None:
        gathering = self._gathering.pop(kind, None)
        if gathering is None:
            return
        if gathering.timer is not None:
            gathering.timer.cancel()
        if self._is_busy() or self._full:
            self._full.append((kind[0], gathering))
        else:
            self._send_all(kind[0], gathering)

    def _send_full(self) -> None:
        while self._full and not self._is_busy():
            self._send_all(*self._full.popleft())

    def _send_all(self, topic: str, gathering: Gathering) -> None:
        divided = self._divided.get(topic)
        if divided is not None:
            divided.parts.append(gathering)  # behind what is sent in parts
            return
        self._sent(gathering)
        on_outcome = partial(self._published, topic, gathering)
        try:
            self._request(topic, gathering.messages, gathering.reports, on_outcome)
        except PenstockError as error:
            on_outcome(None, error)

    def _sent(self, gathering: Gathering) -> None:
        self._waiting -= len(gathering.messages)
        self._waiting_bytes -= gathering.size_bytes

    def _published(self, topic: str, gathering: Gathering, ids: MessageIds | None, error: PenstockError | None) -> None:
        if isinstance(error, TopicSpread) and self._regroup(topic, gathering, error):
            return
        if not _is_divisible(gathering, error):
            self._tell(gathering, ids, error)
            return
        divided = self._divided.get(topic)
        if divided is not None:
            self._divide(gathering, divided.parts.append)
            return
        divided = self._divided[topic] = Divided(self._link.loop.time() + self._link.timeout_s)
        self._divide(gathering, divided.parts.append)
        self._send_parts(topic)

    def _regroup(self, topic: str, gathering: Gathering, error: TopicSpread) -> bool:
        """Gather messages once more, for their topic is spread otherwise than was known; whether they are."""
        self._cluster.slices.note(error)
        return self._regrouping.refused(topic, gathering.entries(), self._take_waiting)

    def _take_waiting(self, topic: str) -> list[Entry]:
        """The messages of a topic that wait to be sent, which are none then."""
        some = [(kind, self._gathering.pop(kind)) for kind in list(self._gathering) if whole_name(kind[0]) == topic]
        full = [(name, gathering) for name, gathering in self._full if whole_name(name) == topic]
        self._full = deque(each for each in self._full if whole_name(each[0]) != topic)
        found: list[Entry] = []
        for gathering in [*(each for _, each in full), *(each for _, each in some)]:
            if gathering.timer is not None:
                gathering.timer.cancel()
            self._sent(gathering)
            found += gathering.entries()
        return found

    # What is sent in parts.

    def _divide(self, gathering: Gathering, add: Callable[[Gathering], None], *, backwards: bool = False) -> None:
        halves = gathering.halves()
        for half in reversed(halves) if backwards else halves:
            self._waiting += len(half.messages)
            self._waiting_bytes += half.size_bytes
            add(half)

    def _send_parts(self, topic: str) -> None:
        """Send the next part, if there is one."""
        divided = self._divided[topic]
        while divided.parts:
            part = divided.parts.popleft()
            self._sent(part)
            try:
                self._request(topic, part.messages, part.reports, partial(self._part_published, topic, part))
            except PenstockError as error:
                self._note_part(topic, divided, part, None, error)
            else:
                return
        del self._divided[topic]

    def _part_published(self, topic: str, part: Gathering, ids: MessageIds | None, error: PenstockError | None) -> None:
        divided = self._divided[topic]
        if self._note_part(topic, divided, part, ids, error):
            self._send_parts(topic)
        else:
            self._link.loop.call_later(divided.pause_s, self._send_parts, topic)
            divided.pause_s = min(_PAUSE_S_MAX, divided.pause_s * 2)

    def _note_part(
        self, topic: str, divided: Divided, part: Gathering, ids: MessageIds | None, error: PenstockError | None
    ) -> bool:
        """Note the outcome of a part; whether the next one can be sent at once."""
        now_s = self._link.loop.time()
        if ids is not None:
            divided.until_s, divided.pause_s = now_s + self._link.timeout_s, PAUSE_S
        if _is_divisible(part, error):
            self._divide(part, divided.parts.appendleft, backwards=True)
        elif isinstance(error, TopicSpread) and self._regroup(topic, part, error):
            pass
        elif isinstance(error, Overloaded) and now_s < divided.until_s:
            self._waiting += 1
            self._waiting_bytes += part.size_bytes
            divided.parts.appendleft(part)
            return False
        else:
            self._tell(part, ids, error)
            if isinstance(error, Overloaded):  # then the others have no room either
                self._give_up(divided, error)
        return True

    def _give_up(self, divided: Divided, error: PenstockError) -> None:
        while divided.parts:
            part = divided.parts.popleft()
            self._sent(part)
            self._tell(part, None, error)

    def _tell(self, gathering: Gathering, ids: MessageIds | None, error: PenstockError | None) -> None:
        gathering.tell(ids, error)
        self.on_told(len(gathering.messages), gathering.size_bytes)

    def close(self) -> None:
        """Send no more; waiting messages fail."""
        for divided in self._divided.values():
            self._give_up(divided, BrokerClosed("the client was closed before it was published"))


def _is_divisible(gathering: Gathering, error: PenstockError | None) -> bool:
    """Whether nothing was published, but a part of it can be."""
    return isinstance(error, InvalidArgument | TopicNotFound | Overloaded) and len(gathering.messages) > 1
