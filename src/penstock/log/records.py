"""The kinds of record in the journal: how each is written, and how it is read again.

A record that is made now and one that is read from disk say the same to the fold. Those that are made now take more
until their group is written: single messages of many publishers become one batch, events of many consumers one list.

| kind | body | says |
| --- | --- | --- |
| MESSAGES | a batch (`model.batch`) | these offsets of a partition are published |
| EVENTS | columns of events (`model.events`) | this happened to messages of a partition |
| TOPIC | `TopicRecord` | a topic was created, changed or deleted |
| STAGED | `StagedRecord` | how far a staged publish is: what stands before it in its group belongs to it |

A block whose offsets are known already was carried on by settling: only its place is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import msgspec

from penstock.journal.layout import LOST, BlockEntry, BlockKind
from penstock.log.partition_log import BlockRef, Content, Log
from penstock.model.batch import TAGS, Batch, Origin, decode_tags, encode_plain, head_of
from penstock.model.events import Event, decode_events, encode_events, span_of
from penstock.model.names import NORMAL, stored_topic_name
from penstock.model.producers import Names
from penstock.model.singles import Single, SingleRun, batch_of

_NO_CONTENT: Content = (0, NORMAL, 0, 0)
_MESSAGES = int(BlockKind.MESSAGES)
_encode = msgspec.msgpack.Encoder().encode


class Record:
    """One record, to be written or as it was read: what its entry in the group says."""

    __slots__ = ("base", "content", "count", "flags", "kind", "partition", "timestamp_us", "topic")

    def __init__(
        self, kind: int, topic: int, partition: int, base: int, count: int, timestamp_us: int, flags: int = 0
    ) -> None:
        self.kind = kind
        self.topic = topic
        self.partition = partition
        self.base = base
        self.count = count
        self.timestamp_us = timestamp_us
        self.flags = flags
        self.content = _NO_CONTENT


class Tags(Protocol):
    """What is remembered of messages, so that publishing them again changes nothing."""

    @property
    def dedupe_ids(self) -> Sequence[str | None] | None:
        """Of each message, if one has any."""

    @property
    def producer(self) -> str | None:
        """Who published all of them at once, as the sequence `sequence`."""

    @property
    def sequence(self) -> int: ...

    @property
    def origins(self) -> Sequence[Origin] | None:
        """Who published them one by one."""


class Messages(Record):
    """Messages of a partition, at consecutive offsets."""

    __slots__ = ()

    def tags(self) -> Tags:
        """Their producers and dedupe ids."""
        return self.columns()

    def columns(self) -> Batch:
        """The batch; of one that was read, without its payload."""
        raise NotImplementedError


class BatchOfMessages(Messages):
    """A published batch, or its part for one partition."""

    __slots__ = ("_batch",)

    def __init__(self, log: Log, batch: Batch, timestamp_us: int) -> None:
        topic, flags = log.topic.id, TAGS if batch.tagged else 0
        super().__init__(_MESSAGES, topic, log.partition, log.next_offset, len(batch), timestamp_us, flags)
        self.content = (batch.flags, batch.priority, 0, 0)
        self._batch = batch

    def columns(self) -> Batch:
        return self._batch

    def encode(self) -> list[bytes]:
        return self._batch.encode()


class SingleMessages(Messages):
    """Messages that are published one by one and committed together: it takes more until it is written."""

    __slots__ = ("_batch", "_name", "names", "origins", "others", "values")

    dedupe_ids: ClassVar[None] = None  # as long as no message has more than a value
    producer: ClassVar[None] = None
    sequence: ClassVar[int] = 0

    def __init__(self, log: Log, timestamp_us: int) -> None:
        self.kind, self.flags, self.topic, self.partition = _MESSAGES, 0, log.topic.id, log.partition
        self.base, self.count, self.timestamp_us = log.next_offset, 0, timestamp_us  # counted when it is written
        self.content = _NO_CONTENT
        self.values: list[bytes] = []
        self.others: dict[int, Single] | None = None  # the messages that have more than a value, by row
        self.origins: list[Origin] = []
        self.names: Names = []
        self._name: str | None = None  # of whoever published the last message
        self._batch: Batch | None = None

    def add(self, single: Single, name: str | None) -> None:
        """Take a message in, of a publisher with a name, if that is known."""
        if not single.is_plain:
            self.others = self.others or {}
            self.others[len(self.values)] = single
        if name != self._name:
            self._note_name(name)
        self.values.append(single.value)

    def add_run(self, run: SingleRun) -> None:
        """Take in messages that have nothing but values."""
        values = self.values
        if run.name != self._name:
            self._note_name(run.name)
        if self.origins:
            self.add_origin(len(values), run.producer, run.sequence, len(run.values))
        else:
            self.origins.append((len(values), run.producer, run.sequence, len(run.values)))
        values += run.values

    def add_origin(self, row: int, producer: str, sequence: int, count: int) -> None:
        """Say which producer published the messages from a row on, under which sequences."""
        origins = self.origins
        if origins:
            first_row, before, first, known = origins[-1]
            if before == producer and first + known == sequence and first_row + known == row:
                origins[-1] = (first_row, producer, first, known + count)
                return
        origins.append((row, producer, sequence, count))

    def _note_name(self, name: str | None) -> None:
        self.names.append((len(self.values), name))
        self._name = name

    def tags(self) -> Tags:
        return self if self.others is None else self.columns()

    def columns(self) -> Batch:
        if self._batch is None:
            values, others = self.values, self.others
            if others is None:
                self._batch = Batch(values)
            else:
                self._batch = batch_of([others.get(row) or Single(value) for row, value in enumerate(values)])
            self._batch.origins, self._batch.producer_names = self.origins or None, self.names or None
        return self._batch

    def encode(self) -> list[bytes]:
        self.count = len(self.values)
        if self.origins:
            self.flags = TAGS
        if self.others is None:
            body = encode_plain(self.values, self.origins, self.names)
            self.content = (body[0][0], NORMAL, 0, 0)
            return body
        batch = self.columns()
        self.content = (batch.flags, batch.priority, 0, 0)
        return batch.encode()


class Events(Record):
    """What happened to messages of a partition; takes more until the group is written, or it is large."""

    __slots__ = ("events", "size_bytes")

    def __init__(self, topic: int, partition: int, base: int, timestamp_us: int) -> None:
        super().__init__(BlockKind.EVENTS, topic, partition, base, 0, timestamp_us)
        self.events: list[Event] = []
        self.size_bytes = 0  # about

    def add(self, event: Event) -> None:
        """Take an event in."""
        self.events.append(event)
        self.count += 1

    def encode(self) -> list[bytes]:
        self.content = (0, NORMAL, *span_of(self.events))
        return [encode_events(self.events)]


class Carried(Record):
    """A committed block written again, as it is, so that the file it was in can go."""

    __slots__ = ("_body",)

    def __init__(self, log: Log, block: BlockRef, body: bytes) -> None:
        kind = BlockKind.MESSAGES if log.table == "messages" else BlockKind.EVENTS
        flags = body[0] & TAGS if kind == BlockKind.MESSAGES else 0
        super().__init__(kind, log.topic.id, log.partition, block.base, block.count, block.timestamp_us, flags)
        self.content = (block.flags, block.priority, block.low, block.high)
        self._body = body

    def encode(self) -> list[bytes]:
        return [self._body]


class TopicRecord(msgspec.Struct, array_like=True):
    """A change of the catalog, as the journal keeps it."""

    name: str
    config: dict[str, object] | None  # None: deleted
    first_offset: int


class TopicChange(Record):
    """A topic was created, changed or deleted."""

    __slots__ = ("change",)

    def __init__(self, topic_id: int, change: TopicRecord, timestamp_us: int) -> None:
        super().__init__(BlockKind.TOPIC, topic_id, 0, 0, 1, timestamp_us)
        self.change = change

    def encode(self) -> list[bytes]:
        return [_encode(self.change)]


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


class StagedStep(Record):
    """Says that what stands before it in its group are staged messages, and which: so they are published once."""

    __slots__ = ("step",)

    def __init__(self, step: StagedRecord, timestamp_us: int) -> None:
        super().__init__(BlockKind.STAGED, 0, 0, 0, 1, timestamp_us)
        self.step = step

    def encode(self) -> list[bytes]:
        return [_encode(self.step)]


NewRecord = BatchOfMessages | SingleMessages | Events | Carried | TopicChange | StagedStep
"""A record to be written."""


# Reading.


class StoredMessages(Messages):
    """Messages as they are on disk; only what the fold needs of them is decoded."""

    __slots__ = ("_body",)

    def __init__(self, entry: BlockEntry, body: bytes | memoryview) -> None:
        super().__init__(
            entry.kind, entry.topic, entry.partition, entry.base, entry.count, entry.timestamp_us, entry.flags
        )
        self.content = (*head_of(body), 0, 0)
        self._body = body

    def columns(self) -> Batch:
        return decode_tags(bytes(self._body), self.count)


class LostRecord(Record):
    """What a repair left of a record that was damaged: its offsets are never given again."""

    __slots__ = ()


_decode_topic = msgspec.msgpack.Decoder(TopicRecord).decode
_decode_staged = msgspec.msgpack.Decoder(StagedRecord).decode


def read_record(entry: BlockEntry, body: bytes | memoryview) -> Record:
    """The record of an entry and its body, which matches its checksum."""
    if entry.flags & LOST:
        return LostRecord(
            entry.kind, entry.topic, entry.partition, entry.base, entry.count, entry.timestamp_us, entry.flags
        )
    if entry.kind == BlockKind.MESSAGES:
        return StoredMessages(entry, body)
    if entry.kind == BlockKind.EVENTS:
        events = Events(entry.topic, entry.partition, entry.base, entry.timestamp_us)
        events.events, events.count = decode_events(body), entry.count
        events.content = (0, NORMAL, *span_of(events.events))
        return events
    if entry.kind == BlockKind.STAGED:
        return StagedStep(_decode_staged(body), entry.timestamp_us)
    change = _decode_topic(body)
    change.name = stored_topic_name(change.name, entry.topic)  # one that a topic may have (H4)
    return TopicChange(entry.topic, change, entry.timestamp_us)
