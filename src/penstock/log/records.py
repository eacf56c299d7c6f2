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

import msgspec

from penstock.journal.layout import LOST, BlockEntry, BlockKind
from penstock.log.partition_log import BlockRef, Content, Log
from penstock.model.batch import TAGS, Batch, Origin, decode_tags, head_of
from penstock.model.events import Event, decode_events, encode_events, span_of
from penstock.model.intake import Single, batch_of
from penstock.model.names import NORMAL, stored_topic_name
from penstock.model.producers import Names

_NO_CONTENT: Content = (0, NORMAL, 0, 0)
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


class Messages(Record):
    """Messages of a partition, at consecutive offsets."""

    __slots__ = ("batch",)

    def __init__(
        self, topic: int, partition: int, base: int, count: int, timestamp_us: int, flags: int, batch: Batch | None
    ) -> None:
        super().__init__(BlockKind.MESSAGES, topic, partition, base, count, timestamp_us, flags)
        self.batch = batch  # of single messages: once it is encoded

    def tags(self) -> Batch:
        """The batch, with its producers and dedupe ids at least."""
        assert self.batch is not None
        return self.batch


class BatchOfMessages(Messages):
    """A published batch, or its part for one partition."""

    __slots__ = ()

    def __init__(self, log: Log, batch: Batch, timestamp_us: int) -> None:
        flags = TAGS if batch.tagged else 0
        super().__init__(log.topic.id, log.partition, log.next_offset, len(batch), timestamp_us, flags, batch)
        self.content = (batch.flags, batch.priority, 0, 0)

    def encode(self) -> list[bytes]:
        return self.tags().encode()


class SingleMessages(Messages):
    """Messages that are published one by one and committed together."""

    __slots__ = ("_name", "names", "origins", "singles")

    def __init__(self, log: Log, timestamp_us: int) -> None:
        super().__init__(log.topic.id, log.partition, log.next_offset, 0, timestamp_us, 0, None)
        self.singles: list[Single] = []
        self.origins: list[Origin] | None = None
        self.names: Names = []
        self._name: str | None = None  # of whoever published the last message

    def add(self, single: Single, name: str | None) -> None:
        """Take a message in, of a publisher with a name, if that is known."""
        if name != self._name:
            self._note_name(self.count, name)
        self.singles.append(single)
        self.count += 1

    def add_all(self, singles: list[Single], names: Names) -> None:
        """Take messages in, with the names of their publishers from the first one on."""
        for row, name in names:
            if name != self._name:
                self._note_name(self.count + row, name)
        self.singles += singles
        self.count += len(singles)

    def add_origin(self, row: int, producer: str, sequence: int, count: int) -> None:
        """Say which producer published the messages from a row on, under which sequences."""
        self.flags = TAGS
        origins = self.origins
        if origins is None:
            origins = self.origins = []
        first_row, before, first, known = origins[-1] if origins else (0, None, 0, 0)
        if before == producer and first + known == sequence and first_row + known == row:
            origins[-1] = (first_row, producer, first, known + count)
        else:
            origins.append((row, producer, sequence, count))

    def _note_name(self, row: int, name: str | None) -> None:
        self.names.append((row, name))
        self._name = name

    def encode(self) -> list[bytes]:
        batch = self.batch = batch_of(self.singles)
        batch.origins, batch.producer_names = self.origins, self.names or None
        self.content = (batch.flags, batch.priority, 0, 0)
        return batch.encode()


class Events(Record):
    """What happened to messages of a partition; takes more until the group is written."""

    __slots__ = ("events",)

    def __init__(self, topic: int, partition: int, base: int, timestamp_us: int) -> None:
        super().__init__(BlockKind.EVENTS, topic, partition, base, 0, timestamp_us)
        self.events: list[Event] = []

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
        super().__init__(entry.topic, entry.partition, entry.base, entry.count, entry.timestamp_us, entry.flags, None)
        self.content = (*head_of(body), 0, 0)
        self._body = body

    def tags(self) -> Batch:
        """Producers and dedupe ids of the batch."""
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
