"""The blocks that the broker writes, and what each does to the state when it is committed or refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec

from penstock.broker.memory import DedupeWindow, ProducerHistories
from penstock.broker.topics import BlockRef, Log, Topic
from penstock.delivery.index import Columns
from penstock.journal.files import JournalFile
from penstock.journal.layout import BlockKind
from penstock.model.batch import TAGS, Batch, Origin
from penstock.model.events import Event, encode_events, merge_acks, span_of
from penstock.model.intake import Single, batch_of
from penstock.model.message import IdRun
from penstock.model.names import NORMAL, stored_topic_name
from penstock.model.producers import Names

Content = tuple[int, int, int, int]
"""What the index knows of the content of a block: flags, priority, low, high (see `BlockRef`)."""


class LogBlock:
    """A block that belongs to a log: consecutive offsets with one timestamp."""

    __slots__ = ("base", "content", "count", "flags", "kind", "log", "partition", "timestamp_us", "topic")

    def __init__(self, kind: BlockKind, log: Log, base: int, count: int, timestamp_us: int, flags: int = 0) -> None:
        self.kind: int = kind
        self.log = log
        self.topic = log.topic.id
        self.partition = log.partition
        self.base = base
        self.count = count
        self.timestamp_us = timestamp_us
        self.flags = flags
        self.content: Content = (0, NORMAL, 0, 0)

    def committed(self, file: JournalFile, position: int, length: int, crc: int) -> None:
        self._place(file, position, length, crc)

    def _place(self, file: JournalFile, position: int, length: int, crc: int) -> int | None:
        return self.log.add(
            file,
            BlockRef(self.base, self.count, file.sequence, position, length, crc, self.timestamp_us, *self.content),
        )

    def refused(self) -> None:
        self.log.next_offset = self.base


class BatchBlock(LogBlock):
    """A published batch, or its part for one partition."""

    __slots__ = ("_producers_max", "_run", "batch")

    def __init__(self, log: Log, batch: Batch, timestamp_us: int, producers_max: int) -> None:
        super().__init__(
            BlockKind.MESSAGES, log, log.next_offset, len(batch), timestamp_us, TAGS if batch.tagged else 0
        )
        self.batch = batch
        self.content = (batch.flags, batch.priority, 0, 0)
        self._producers_max = producers_max
        self._run = IdRun(self.partition, self.base, self.count)
        log.next_offset += self.count
        if batch.dedupe_ids is not None:
            remember_ids(log.topic, self._run, timestamp_us, batch)
        if batch.producer is not None:
            histories(log.topic).expect(batch.producer, batch.sequence, self._run)

    def encode(self) -> list[bytes]:
        return self.batch.encode()

    def committed(self, file: JournalFile, position: int, length: int, crc: int) -> None:
        super().committed(file, position, length, crc)
        if self.batch.producer is not None or self.batch.origins is not None:
            remember_producers(self.log.topic, self._run, self.batch, self._producers_max)
        announce(self, self.batch, length)

    def refused(self) -> None:
        super().refused()
        topic = self.log.topic
        if topic.producers is not None and self.batch.producer is not None:
            topic.producers.arrive(self.batch.producer, self.batch.sequence)
        for row, identity in enumerate(self.batch.dedupe_ids or ()):
            if topic.dedupe is not None and identity is not None:
                topic.dedupe.forget(identity, self.base + row)


class SinglesBlock(LogBlock):
    """Messages that were published one by one and are committed together."""

    __slots__ = ("_batch", "_name", "_producers_max", "names", "origins", "singles")

    def __init__(self, log: Log, timestamp_us: int, producers_max: int) -> None:
        super().__init__(BlockKind.MESSAGES, log, log.next_offset, 0, timestamp_us)
        self._producers_max = producers_max
        self.singles: list[Single] = []
        self.origins: list[Origin] | None = None
        self.names: Names = []
        self._name: str | None = None  # of whoever published the last message
        self._batch: Batch | None = None

    def add(self, single: Single, producer: str | None = None, sequence: int = 0, name: str | None = None) -> int:
        """Take a message in, of a publisher with a name, if that is known; its offset."""
        offset = self.base + self.count
        if name != self._name:
            self._note_name(self.count, name)
        self.singles.append(single)
        self.count += 1
        self.log.next_offset = offset + 1
        if single.dedupe_id is not None:
            self.flags = TAGS
            dedupe_window(self.log.topic).remember(single.dedupe_id, self.partition, offset, self.timestamp_us)
        if producer is not None:
            self._expect(producer, sequence, offset, 1)
        return offset

    def add_all(self, singles: list[Single], origins: list[Origin], names: Names) -> int:
        """Take messages in that have nothing but values, with the names from the first one on; its offset."""
        offset = self.base + self.count
        for row, name in names:
            if name != self._name:
                self._note_name(self.count + row, name)
        self.singles += singles
        self.count += len(singles)
        self.log.next_offset = offset + len(singles)
        for row, producer, sequence, count in origins:
            self._expect(producer, sequence, offset + row, count)
        return offset

    def _note_name(self, row: int, name: str | None) -> None:
        self.names.append((row, name))
        self._name = name

    def _expect(self, producer: str, sequence: int, offset: int, count: int) -> None:
        self.flags = TAGS
        row, origins = offset - self.base, self.origins
        if origins is None:
            origins = self.origins = []
        first_row, before, first, known = origins[-1] if origins else (0, None, 0, 0)
        if before == producer and first + known == sequence and first_row + known == row:
            origins[-1] = (first_row, producer, first, known + count)
        else:
            origins.append((row, producer, sequence, count))
        histories(self.log.topic).expect_singles(producer, sequence, self.partition, offset, count)

    def encode(self) -> list[bytes]:
        batch = self._batch = batch_of(self.singles)
        batch.origins, batch.producer_names = self.origins, self.names or None
        self.content = (batch.flags, batch.priority, 0, 0)
        return batch.encode()

    def committed(self, file: JournalFile, position: int, length: int, crc: int) -> None:
        super().committed(file, position, length, crc)
        assert self._batch is not None
        if self.origins is not None:
            run = IdRun(self.partition, self.base, self.count)
            remember_producers(self.log.topic, run, self._batch, self._producers_max)
        announce(self, self._batch, length)
        self.singles, self.names, self.origins, self._batch = [], [], None, None  # they are in the journal now

    def refused(self) -> None:
        super().refused()
        dedupe = self.log.topic.dedupe
        for row, single in enumerate(self.singles):
            if dedupe is not None and single.dedupe_id is not None:
                dedupe.forget(single.dedupe_id, self.base + row)
        for _, producer, sequence, count in self.origins or ():
            histories(self.log.topic).arrive(producer, sequence, count)


class EventsBlock(LogBlock):
    """What happened to messages of a partition; takes more until the group is committed."""

    __slots__ = ("_apply", "_undo", "events")

    def __init__(
        self, log: Log, timestamp_us: int, apply: Callable[[Log, Event], None], undo: Callable[[Log, Event], None]
    ) -> None:
        super().__init__(BlockKind.EVENTS, log, log.next_offset, 0, timestamp_us)
        self.events: list[Event] = []
        self._apply, self._undo = apply, undo

    def add(self, event: Event) -> None:
        """Take an event in; its state changes when it is committed."""
        self.events.append(event)
        self.count += 1
        self.log.next_offset = self.base + self.count

    def encode(self) -> list[bytes]:
        self.content = (0, NORMAL, *span_of(self.events))
        return [encode_events(self.events)]

    def committed(self, file: JournalFile, position: int, length: int, crc: int) -> None:
        super().committed(file, position, length, crc)
        for event in merge_acks(self.events):
            self._apply(self.log, event)
        self.events = []

    def refused(self) -> None:
        super().refused()
        for event in reversed(self.events):
            self._undo(self.log, event)


class CarriedBlock(LogBlock):
    """A committed block written again, as it is, so that the file it was in can go."""

    __slots__ = ("_body", "_from")

    def __init__(self, log: Log, block: BlockRef, body: bytes, flags: int, source: JournalFile) -> None:
        kind = BlockKind.MESSAGES if log.table == "messages" else BlockKind.EVENTS
        super().__init__(kind, log, block.base, block.count, block.timestamp_us, flags)
        self.content = (block.flags, block.priority, block.low, block.high)
        self._body = body
        self._from = source

    def encode(self) -> list[bytes]:
        return [self._body]

    def committed(self, file: JournalFile, position: int, length: int, crc: int) -> None:
        if self._place(file, position, length, crc) is not None:  # else it was settled or deleted meanwhile
            self._from.live_bytes -= length

    def refused(self) -> None:
        """It is still where it was."""


def announce(block: LogBlock, batch: Batch, length: int) -> None:
    """Committed messages can be delivered, if anybody consumes the topic."""
    log, base = block.log, block.base
    index = log.topic.partitions[log.partition].index
    if index is None:
        return
    keys = batch.keys if log.topic.config.order == "key" else None
    index.add(Columns(base, len(batch), batch.priority, batch.priorities, batch.deliver_at, batch.expires_at, keys))
    if log.topic.delivery is not None:
        log.topic.delivery.published(log, base, batch, block.timestamp_us, length)


class TopicRecord(msgspec.Struct, array_like=True):
    """A change of the catalog, as the journal keeps it."""

    name: str
    config: dict[str, object] | None  # None: deleted
    first_offset: int


_encode_record = msgspec.msgpack.Encoder().encode
_decode_topic_record = msgspec.msgpack.Decoder(TopicRecord).decode


def decode_topic_record(topic_id: int, body: bytes) -> TopicRecord:
    """The change of a topic as it was written, under a name that a topic may have."""
    record = _decode_topic_record(body)
    record.name = stored_topic_name(record.name, topic_id)
    return record


class TopicBlock:
    """A topic was created, changed or deleted."""

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


class StagedRecord(msgspec.Struct, array_like=True, frozen=True):
    """How far the newest staged publish of a producer is, as journal and checkpoint keep it."""

    producer: str
    sequence: int
    messages: int
    """How many are published, by this and the steps before."""
    files: tuple[str, ...]
    """The files of its stages, in order; none once they are removed."""
    next_file: int | None = None
    """In which of them the next step begins; None: all is published."""
    position: int = 0
    """Where in that file."""


decode_staged_record = msgspec.msgpack.Decoder(StagedRecord).decode


def keep_staged(records: dict[str, StagedRecord], record: StagedRecord, producers_max: int) -> None:
    """Note how far a producer is, live and in recovery alike; the newest come last."""
    records.pop(record.producer, None)
    records[record.producer] = record
    forget_staged(records, producers_max)


def forget_staged(records: dict[str, StagedRecord], producers_max: int) -> None:
    """Forget all but the newest so many, unless their files are still there: those would be published again."""
    excess = len(records) - producers_max
    if excess > 0:
        for producer in [old.producer for old in itertools.islice(records.values(), excess) if not old.files]:
            del records[producer]


class StagedBlock:
    """Says that what stands before it in its group are staged messages, and which: so they are published once."""

    __slots__ = ("_keep", "_record", "base", "count", "flags", "kind", "partition", "timestamp_us", "topic")

    def __init__(self, record: StagedRecord, now_us: int, keep: Callable[[StagedRecord], None]) -> None:
        self.kind: int = BlockKind.STAGED
        self.flags = self.topic = self.partition = self.base = 0
        self.count = 1
        self.timestamp_us = now_us
        self._record = record
        self._keep = keep

    def encode(self) -> list[bytes]:
        return [_encode_record(self._record)]

    def committed(self, file: JournalFile, position: int, length: int, crc: int) -> None:
        self._keep(self._record)

    def refused(self) -> None:
        """What was known before still holds."""


def dedupe_window(topic: Topic) -> DedupeWindow:
    """The topic's memory of dedupe ids, made when the first one comes."""
    if topic.dedupe is None:
        topic.dedupe = DedupeWindow(topic.config.dedupe_window)
    return topic.dedupe


def histories(topic: Topic) -> ProducerHistories:
    """The topic's memory of producers, made when the first one comes."""
    if topic.producers is None:
        topic.producers = ProducerHistories()
    return topic.producers


def remember_ids(topic: Topic, run: IdRun, timestamp_us: int, batch: Batch) -> None:
    """Note the dedupe ids of a batch: when it is published, and when it is recovered."""
    for row, identity in enumerate(batch.dedupe_ids or ()):
        if identity is not None:
            dedupe_window(topic).remember(identity, run.partition, run.base + row, timestamp_us)


def remember_producers(topic: Topic, run: IdRun, batch: Batch, producers_max: int) -> None:
    """Note the producers of a batch and forget the idlest beyond the cap: when it is committed, and recovered (F1)."""
    if batch.producer is None and batch.origins is None:
        return
    known = histories(topic)
    if batch.producer is not None:
        known.arrive(batch.producer, batch.sequence)
        known.remember(batch.producer, batch.sequence, run)
    if batch.origins is not None:
        for row, producer, sequence, count in batch.origins:
            known.arrive(producer, sequence, count)
            known.remember_singles(producer, sequence, run.partition, run.base + row, count)
    known.keep_to(producers_max)
