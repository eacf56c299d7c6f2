"""The blocks that the broker writes, and what each does to the state when it is committed or refused."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock.broker.memory import DedupeWindow, ProducerHistories
from penstock.broker.topics import BlockRef, Log, Topic
from penstock.journal.files import JournalFile
from penstock.journal.layout import BlockKind
from penstock.model.batch import TAGS, Batch
from penstock.model.events import Event, encode_events
from penstock.model.intake import Single, batch_of
from penstock.model.message import IdRun


class LogBlock:
    """A block that belongs to a log: consecutive offsets with one timestamp."""

    __slots__ = ("base", "count", "flags", "kind", "log", "partition", "timestamp_us", "topic")

    def __init__(self, kind: BlockKind, log: Log, base: int, count: int, timestamp_us: int, flags: int = 0) -> None:
        self.kind: int = kind
        self.log = log
        self.topic = log.topic.id
        self.partition = log.partition
        self.base = base
        self.count = count
        self.timestamp_us = timestamp_us
        self.flags = flags

    def committed(self, file: JournalFile, position: int, length: int, crc: int) -> None:
        self._place(file, position, length, crc)

    def _place(self, file: JournalFile, position: int, length: int, crc: int) -> int | None:
        return self.log.add(
            file, BlockRef(self.base, self.count, file.sequence, position, length, crc, self.timestamp_us)
        )

    def refused(self) -> None:
        self.log.next_offset = self.base


class BatchBlock(LogBlock):
    """A published batch, or its part for one partition."""

    __slots__ = ("batch",)

    def __init__(self, log: Log, batch: Batch, timestamp_us: int) -> None:
        super().__init__(
            BlockKind.MESSAGES, log, log.next_offset, len(batch), timestamp_us, TAGS if batch.tagged else 0
        )
        self.batch = batch
        log.next_offset += self.count
        if batch.tagged:
            remember_tags(log.topic, IdRun(self.partition, self.base, self.count), timestamp_us, batch)

    def encode(self) -> list[bytes]:
        return self.batch.encode()

    def refused(self) -> None:
        super().refused()
        topic = self.log.topic
        if topic.producers is not None and self.batch.producer is not None:
            topic.producers.forget(self.batch.producer, self.batch.sequence)
        for row, identity in enumerate(self.batch.dedupe_ids or ()):
            if topic.dedupe is not None and identity is not None:
                topic.dedupe.forget(identity, self.base + row)


class SinglesBlock(LogBlock):
    """Messages that were published one by one and are committed together."""

    __slots__ = ("singles",)

    def __init__(self, log: Log, timestamp_us: int) -> None:
        super().__init__(BlockKind.MESSAGES, log, log.next_offset, 0, timestamp_us)
        self.singles: list[Single] = []

    def add(self, single: Single) -> int:
        """Take a message in; its offset."""
        offset = self.base + self.count
        self.singles.append(single)
        self.count += 1
        self.log.next_offset = offset + 1
        if single.dedupe_id is not None:
            self.flags = TAGS
            dedupe_window(self.log.topic).remember(single.dedupe_id, self.partition, offset, self.timestamp_us)
        return offset

    def encode(self) -> list[bytes]:
        return batch_of(self.singles).encode()

    def committed(self, file: JournalFile, position: int, length: int, crc: int) -> None:
        super().committed(file, position, length, crc)
        self.singles = []  # they can be read from the journal now

    def refused(self) -> None:
        super().refused()
        dedupe = self.log.topic.dedupe
        for row, single in enumerate(self.singles):
            if dedupe is not None and single.dedupe_id is not None:
                dedupe.forget(single.dedupe_id, self.base + row)


class EventsBlock(LogBlock):
    """What happened to messages of a partition."""

    __slots__ = ("_apply", "_events")

    def __init__(self, log: Log, events: list[Event], timestamp_us: int, apply: Callable[[], None]) -> None:
        super().__init__(BlockKind.EVENTS, log, log.next_offset, len(events), timestamp_us)
        self._events = events
        self._apply = apply
        log.next_offset += self.count

    def committed(self, file: JournalFile, position: int, length: int, crc: int) -> None:
        super().committed(file, position, length, crc)
        self._apply()

    def encode(self) -> list[bytes]:
        return [encode_events(self._events)]


class CarriedBlock(LogBlock):
    """A committed block written again, as it is, so that the file it was in can go."""

    __slots__ = ("_body", "_from")

    def __init__(self, log: Log, block: BlockRef, body: bytes, flags: int, source: JournalFile) -> None:
        kind = BlockKind.MESSAGES if log.table == "messages" else BlockKind.EVENTS
        super().__init__(kind, log, block.base, block.count, block.timestamp_us, flags)
        self._body = body
        self._from = source

    def encode(self) -> list[bytes]:
        return [self._body]

    def committed(self, file: JournalFile, position: int, length: int, crc: int) -> None:
        if self._place(file, position, length, crc) is not None:  # else it was settled or deleted meanwhile
            self._from.live_bytes -= length

    def refused(self) -> None:
        """It is still where it was."""


class TopicRecord(msgspec.Struct, array_like=True):
    """A change of the catalog, as the journal keeps it."""

    name: str
    config: dict[str, object] | None  # None: deleted
    first_offset: int


_encode_record = msgspec.msgpack.Encoder().encode
decode_topic_record = msgspec.msgpack.Decoder(TopicRecord).decode


class TopicBlock:
    """A topic was created or deleted."""

    __slots__ = ("_do", "_record", "_undo", "base", "count", "flags", "kind", "partition", "timestamp_us", "topic")

    def __init__(
        self, topic_id: int, record: TopicRecord, now_us: int, do: Callable[[], None], undo: Callable[[], None]
    ) -> None:
        self.kind: int = BlockKind.TOPIC
        self.flags = self.partition = self.base = 0
        self.count = 1
        self.topic = topic_id
        self.timestamp_us = now_us
        self._record = record
        self._do = do
        self._undo = undo

    def encode(self) -> list[bytes]:
        return [_encode_record(self._record)]

    def committed(self, file: JournalFile, position: int, length: int, crc: int) -> None:
        self._do()

    def refused(self) -> None:
        self._undo()


def dedupe_window(topic: Topic) -> DedupeWindow:
    """The topic's memory of dedupe ids, made when the first one comes."""
    if topic.dedupe is None:
        topic.dedupe = DedupeWindow(topic.config.dedupe_window)
    return topic.dedupe


def remember_tags(topic: Topic, run: IdRun, timestamp_us: int, batch: Batch) -> None:
    """Note the dedupe ids and the producer of a batch: when it is published, and when it is recovered."""
    for row, identity in enumerate(batch.dedupe_ids or ()):
        if identity is not None:
            dedupe_window(topic).remember(identity, run.partition, run.base + row, timestamp_us)
    if batch.producer is not None:
        if topic.producers is None:
            topic.producers = ProducerHistories()
        topic.producers.remember(batch.producer, batch.sequence, run)
