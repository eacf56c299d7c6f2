"""Reading one log from segments and journal as if they were one.

Each step takes the state lock to look up where the next offset lies, and reads it with the lock released. A
journal file is pinned meanwhile; a segment that retention moved away is simply looked up again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from penstock.delivery.offsets import Offsets
from penstock.journal.files import JournalFile, JournalFiles
from penstock.log.partition_log import BlockRef, Log
from penstock.log.topics import Catalog
from penstock.model.batch import DELIVER_AT, batch_to_send, decode_batch, decode_tags
from penstock.model.errors import CorruptData
from penstock.model.events import Event, decode_events
from penstock.model.message import StoredMessage
from penstock.model.producers import name_at
from penstock.model.stored import SegmentInfo, place_of_segment
from penstock.segments.window import OFFSET_MAX, Rows, Window
from penstock.shard.state_lock import StateLock
from penstock.storage import Storage
from penstock.storage.refusals import told_as_overload, told_as_refusals

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCKS_AT_ONCE = 1000
_NUMBERS_BYTES = 64  # what an offset and a timestamp take as Python objects
SENT_ROW_BYTES = 32
"""What a message that is sent takes beside its content."""
Span = tuple[int, int]


class _InSegment(NamedTuple):
    segment: SegmentInfo


class _InJournal(NamedTuple):
    block: BlockRef
    file: JournalFile


class Piece(NamedTuple):
    """A part of a log that was read."""

    rows: Rows
    end: int
    """The offset after the last one that was read."""
    seen: int
    """How many messages were read."""


class LogSource(Protocol):
    """Something that has logs: the shard of a broker, or a snapshot of a directory."""

    @property
    def lock(self) -> StateLock: ...

    @property
    def storage(self) -> Storage: ...

    @property
    def journal(self) -> JournalFiles: ...

    @property
    def catalog(self) -> Catalog: ...


class LogReader:
    """Reads one log, wherever its parts are."""

    def __init__(self, source: LogSource, log: Log, include_deleted: bool = False) -> None:
        self._source = source
        self._log = log
        self._include_deleted = include_deleted
        self.row_groups_read = 0

    def messages(self, window: Window) -> Iterator[StoredMessage]:
        """The messages inside the window, in the order of their offsets."""
        topic, partition = self._log.topic.name, self._log.partition
        for rows in self.rows(window):
            yield from to_messages(topic, partition, as_rescheduled(self._log, rows))

    def rows(self, window: Window) -> Iterator[Rows]:
        """The same, as columns of Python values; due times are as they were published."""
        for place, inside in self._places(window):
            if isinstance(place, _InSegment):
                from penstock.segments.schema import messages_from_arrow

                yield from map(messages_from_arrow, self.tables(place.segment, inside))
            else:
                yield self._block_rows(place, inside)

    def pieces(self, window: Window, key: bytes | None = None, rows_max: int = OFFSET_MAX) -> Iterator[Piece]:
        """The same in pieces: only messages with the key, if one is given, and at most `rows_max` of each piece.

        Empty pieces are yielded too: they tell a caller that stops how far the log was read.
        """
        for place, inside in self._places(window):
            if isinstance(place, _InSegment):
                from penstock.segments.schema import messages_from_arrow, with_key

                for table in self.tables(place.segment, inside):
                    end = int(table.column("offset")[-1].as_py()) + 1
                    chosen = table if key is None else with_key(table, key)
                    rows = messages_from_arrow(chosen.slice(0, rows_max))
                    yield Piece(rows, end if len(chosen) <= rows_max else rows.offsets[-1] + 1, len(table))
            else:
                yield self._block_piece(place, inside, key, rows_max)

    def times(self, window: Window) -> Iterator[tuple[Sequence[int], Sequence[int], Sequence[int] | None]]:
        """The offsets, timestamps and due times (0: none) of messages; contents are read only if necessary."""
        for place, inside in self._places(window):
            if isinstance(place, _InSegment):
                from penstock.segments.schema import times_from_arrow

                for table in self.tables(place.segment, inside, columns=["offset", "timestamp", "deliver_at"]):
                    yield times_from_arrow(table)
                continue
            block = place.block
            if block.flags & DELIVER_AT:
                rows = self._block_rows(place, inside)
                yield rows.offsets, rows.timestamps_us, rows.batch.deliver_at
            else:
                self._unpin(place)
                offsets = range(max(block.base, inside.start), min(block.end, inside.end))
                yield offsets, [block.timestamp_us] * len(offsets), None

    def held(self, window: Window) -> Offsets:
        """The offsets of the messages inside a window of offsets, as far as known without reading them."""
        found = Offsets()
        for place, inside in self._places(window):
            if isinstance(place, _InJournal):
                self._unpin(place)
                first, end = place.block.base, place.block.end
            else:
                first, end = place.segment.base, place.segment.end
            found.add_range(max(first, inside.start), min(end, inside.end))
        return found

    def producer_at(self, offset: int) -> str | None:
        """The name of the producer of the message at this offset, if it is known."""
        for place, inside in self._places(Window(offset, offset + 1)):
            if isinstance(place, _InJournal):
                block = place.block
                return name_at(decode_tags(self._body(place), block.count).producer_names, offset - block.base)
            for table in self.tables(place.segment, inside, columns=["producer"]):
                name: str | None = table.column(0)[0].as_py()
                return name
        return None

    def chunk(self, window: Window) -> tuple[Rows, int] | None:
        """The whole block, or the rest of the row group, in which the window begins, and its size in bytes."""
        place = self._next_place(window)
        if isinstance(place, _InJournal):
            return self._block_rows(place, Window()), place.block.length
        if place is not None:
            from penstock.segments.schema import messages_from_arrow

            for table in self.tables(place.segment, Window(window.start)):
                return messages_from_arrow(table), table.nbytes + _NUMBERS_BYTES * len(table)
        return None

    def block_to_send(self, wanted: Offsets, bytes_max: int) -> Rows | None:
        """The block of the journal that begins these offsets, not decoded; None unless it fits and all is wanted."""
        first = wanted.min()
        place = self._next_place(Window(first))
        if not isinstance(place, _InJournal):
            return None
        block = place.block
        is_wanted = block.base == first and wanted.range_cardinality(first, block.end) == block.count
        if not is_wanted or block.length + SENT_ROW_BYTES * block.count > bytes_max:
            self._unpin(place)
            return None
        batch = batch_to_send(self._body(place), block.count)
        return Rows(range(first, block.end), [block.timestamp_us] * block.count, batch)

    def events_about(self, offset: int) -> Iterator[Event]:
        """The events about the message at this offset, in order; parts that cannot hold one are not read."""
        found = self.events_between(offset, offset)
        return (event for event in found if event.speaks_of(offset) or event.tells_of_copy(offset))

    def events_between(self, low: int, high: int) -> Iterator[Event]:
        """The events that may be about messages from `low` to `high`, in order."""
        return self.events(Window(), (low, high))

    def events(self, window: Window, about: Span | None = None) -> Iterator[Event]:
        """The events inside the window, in order; with `about`, those that may be about messages from low to high."""
        for place, inside in self._places(window, about):
            if isinstance(place, _InSegment):
                from penstock.segments.schema import events_from_arrow

                for table in self.tables(place.segment, inside, about):
                    yield from events_from_arrow(table)
            else:
                first = max(0, inside.start - place.block.base)
                yield from decode_events(self._body(place))[first : inside.end - place.block.base]

    def arrow(self, window: Window) -> Iterator[pa.RecordBatch]:
        """The messages inside the window as Arrow batches with the columns of a segment."""
        from penstock.segments.schema import messages_to_arrow

        for place, inside in self._places(window):
            if isinstance(place, _InSegment):
                for table in self.tables(place.segment, inside):
                    yield from table.to_batches()
            else:
                yield messages_to_arrow(self._block_rows(place, inside), self._log.partition)

    def first_at(self, time_us: int) -> int:
        """The offset of the first message with a timestamp at or after this time; the end if there is none."""
        window = Window(from_us=time_us)
        for place, inside in self._places(window):
            if isinstance(place, _InJournal):
                self._unpin(place)
                return place.block.base
            for table in self.tables(place.segment, inside):
                return int(table.column(0)[0].as_py())
        with self._source.lock:
            return self._log.committed_end

    def _places(self, window: Window, about: Span | None = None) -> Iterator[tuple[_InSegment | _InJournal, Window]]:
        """Where to read, in order, up to the committed end of now; each with the window to read."""
        with self._source.lock:
            end = min(window.end, self._log.committed_end)
        inside = Window(window.start, end, window.from_us, window.to_us)
        while inside.start < end:
            place = self._next_place(inside, about)
            if place is None:
                return
            yield place, inside
            start = place.segment.end if isinstance(place, _InSegment) else place.block.end
            inside = Window(start, end, window.from_us, window.to_us)

    def _next_place(self, window: Window, about: Span | None = None) -> _InSegment | _InJournal | None:
        """The first place inside the window; while blocks outside it are skipped, the lock is released now and then."""
        log, start = self._log, window.start
        while True:
            with self._source.lock:
                for segment in log.segments[bisect_right(log.segments, start, key=_end) :]:
                    if (
                        (self._include_deleted or not segment.archived)
                        and window.meets(segment.base, segment.end - 1, segment.first_us, segment.last_us)
                        and (about is None or (segment.low <= about[1] and about[0] <= segment.high))
                    ):
                        return _InSegment(segment)
                first = log.find(start)
                end = len(log) if about is not None else min(len(log), first + _BLOCKS_AT_ONCE)
                for index in range(first, end) if about is None else log.places_about(*about, first):
                    block = log.block(index)
                    if window.meets(block.base, block.end - 1, block.timestamp_us, block.timestamp_us):
                        file = self._source.journal.files[block.sequence]
                        file.pin()
                        return _InJournal(block, file)
                if end >= len(log):
                    return None
                start = log.block(end).base

    def _block_rows(self, place: _InJournal, window: Window) -> Rows:
        block = place.block
        batch = decode_batch(self._body(place), block.count)
        offsets = range(max(block.base, window.start), min(block.end, window.end))
        if len(offsets) < block.count:
            batch = batch.select([offset - block.base for offset in offsets])
        return Rows(offsets, [block.timestamp_us] * len(offsets), batch)

    def _block_piece(self, place: _InJournal, window: Window, key: bytes | None, rows_max: int) -> Piece:
        end = min(place.block.end, window.end)
        if key is None:
            end = min(end, max(place.block.base, window.start) + rows_max)
            rows = self._block_rows(place, Window(window.start, end))
            return Piece(rows, end, len(rows.offsets))
        rows = self._block_rows(place, window)
        keys = rows.batch.keys or ()
        chosen = [row for row, own in enumerate(keys) if own == key]
        if len(chosen) > rows_max:
            chosen = chosen[:rows_max]
            end = rows.offsets[chosen[-1]] + 1
        offsets, times = rows.offsets, rows.timestamps_us
        picked = Rows([offsets[row] for row in chosen], [times[row] for row in chosen], rows.batch.select(chosen))
        return Piece(picked, end, len(offsets))

    def _body(self, place: _InJournal) -> bytes:
        block = place.block
        try:
            return self._source.journal.read_body(place.file, block.position, block.length, block.crc)
        finally:
            self._unpin(place)

    def _unpin(self, place: _InJournal) -> None:
        with self._source.lock:
            place.file.unpin()

    def tables(
        self, segment: SegmentInfo, window: Window, about: Span | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.Table]:
        """The tables of a segment; if it is archived before it is opened, they are read from the archive."""
        from penstock.segments.reader import SegmentReader

        log, topic = self._log, self._log.topic
        archive, name = place_of_segment(segment, topic.name, log.table, log.partition, topic.config.archive)
        storage = self._source.storage if archive is None else self._source.storage.elsewhere(archive)
        try:
            with told_as_refusals(f"{name} was not read; try again later"), told_as_overload():
                reader = SegmentReader(storage, name, log.table, segment)
        except FileNotFoundError:
            with self._source.lock:
                now = next((s for s in log.segments if s.base == segment.base), None)
            if now == segment:
                raise CorruptData(name, 0, "the segment is missing") from None
            if now is not None and self._include_deleted:
                yield from self.tables(now, window, about, columns)
            return
        with reader, told_as_overload():
            yield from reader.tables(window, about, columns)
        self.row_groups_read += reader.row_groups_read


def as_rescheduled(log: Log, rows: Rows) -> Rows:
    """The messages with the due times that they were last rescheduled to."""
    state = log.topic.partitions[log.partition].state
    if state is None or not state.moved:
        return rows
    moved = [(place, state.moved.get(offset)) for place, offset in enumerate(rows.offsets)]
    if all(due_us is None for _, due_us in moved):
        return rows
    dues = array("q", rows.batch.deliver_at or [0] * len(moved))
    for place, due_us in moved:
        if due_us is not None:
            dues[place] = due_us
    return rows._replace(batch=replace(rows.batch, deliver_at=dues))


def to_messages(topic: str, partition: int, rows: Rows) -> Iterator[StoredMessage]:
    """Columns as messages."""
    batch, count = rows.batch, len(rows.offsets)
    nothing = [None] * count
    due = nothing if batch.deliver_at is None else [time_us or None for time_us in batch.deliver_at]
    expiry = nothing if batch.expires_at is None else [time_us or None for time_us in batch.expires_at]
    return map(
        StoredMessage,
        [topic] * count,
        [partition] * count,
        rows.offsets,
        rows.timestamps_us,
        batch.values,
        batch.keys if batch.keys is not None else nothing,
        batch.headers if batch.headers is not None else nothing,
        batch.priorities if batch.priorities is not None else [batch.priority] * count,
        due,
        batch.dedupe_ids if batch.dedupe_ids is not None else nothing,
        expiry,
    )


_end = attrgetter("end")
