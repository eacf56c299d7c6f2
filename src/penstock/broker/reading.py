"""Reading: one log over segments and journal, with no seam between the two.

Each step looks up, under the state lock, where the next offset lies, and reads it with the lock released. A
journal file is pinned meanwhile; a segment that retention moved away is simply looked up again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.topics import BlockRef, Log
from penstock.delivery.offsets import Offsets
from penstock.journal.files import JournalFile
from penstock.model.batch import decode_batch
from penstock.model.errors import CorruptData
from penstock.model.events import Event, decode_events
from penstock.model.message import StoredMessage
from penstock.segments.info import SegmentInfo, archived_name, segment_name
from penstock.segments.window import Rows, Window

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.broker.engine import Engine


Span = tuple[int, int]


class _InSegment(NamedTuple):
    segment: SegmentInfo


class _InJournal(NamedTuple):
    block: BlockRef
    file: JournalFile


class LogReader:
    """Reads one log, from wherever it lies."""

    def __init__(self, engine: Engine, log: Log, include_deleted: bool = False) -> None:
        self._engine = engine
        self._log = log
        self._include_deleted = include_deleted
        self.row_groups_read = 0

    def messages(self, window: Window) -> Iterator[StoredMessage]:
        """The messages inside the window, in the order of their offsets."""
        topic, partition = self._log.topic.name, self._log.partition
        for rows in self.rows(window):
            yield from to_messages(topic, partition, rows)

    def rows(self, window: Window) -> Iterator[Rows]:
        """The same, as columns of Python values."""
        for place, inside in self._places(window):
            if isinstance(place, _InSegment):
                from penstock.segments.schema import messages_from_arrow

                yield from map(messages_from_arrow, self._tables(place.segment, inside))
            else:
                yield self._block_rows(place, inside)

    def held(self, window: Window) -> Offsets:
        """The offsets of the messages inside a window of offsets, as far as can be known without reading them."""
        found = Offsets()
        for place, inside in self._places(window):
            if isinstance(place, _InJournal):
                self._unpin(place)
                first, end = place.block.base, place.block.end
            else:
                first, end = place.segment.base, place.segment.end
            found.add_range(max(first, inside.start), min(end, inside.end))
        return found

    def chunk(self, window: Window) -> tuple[Rows | pa.Table, int] | None:
        """The whole block, or what is left of the row group, in which the window begins, and its size in bytes."""
        place = self._next_place(window)
        if isinstance(place, _InJournal):
            return self._block_rows(place, Window()), place.block.length
        if place is not None:
            for table in self._tables(place.segment, Window(window.start)):
                return table, table.nbytes
        return None

    def segment_tables(self, segment: SegmentInfo, columns: list[str]) -> Iterator[pa.Table]:
        """Some columns of a segment."""
        return self._tables(segment, Window(), columns=columns)

    def events(self, window: Window) -> Iterator[Event]:
        """The events inside the window, in order."""
        return self._events(window)

    def events_about(self, offset: int) -> Iterator[Event]:
        """The events that speak of the message at this offset, in order; what cannot hold one is not read."""
        return (event for event in self.events_between(offset, offset) if event.speaks_of(offset))

    def events_between(self, low: int, high: int) -> Iterator[Event]:
        """The events that may speak of messages from `low` to `high`, in order."""
        return self._events(Window(), (low, high))

    def _events(self, window: Window, about: Span | None = None) -> Iterator[Event]:
        for place, inside in self._places(window, about):
            if isinstance(place, _InSegment):
                from penstock.segments.schema import events_from_arrow

                for table in self._tables(place.segment, inside, about):
                    yield from events_from_arrow(table)
            else:
                first = max(0, inside.start - place.block.base)
                yield from decode_events(self._body(place))[first : inside.end - place.block.base]

    def arrow(self, window: Window) -> Iterator[pa.RecordBatch]:
        """The messages inside the window as Arrow batches with the columns of a segment."""
        from penstock.segments.schema import messages_to_arrow

        for place, inside in self._places(window):
            if isinstance(place, _InSegment):
                for table in self._tables(place.segment, inside):
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
            for table in self._tables(place.segment, inside):
                return int(table.column(0)[0].as_py())
        with self._engine.lock:
            return self._log.committed_end

    def _places(self, window: Window, about: Span | None = None) -> Iterator[tuple[_InSegment | _InJournal, Window]]:
        """Where to read, one after the other, up to what is committed now; each with what to read of it."""
        with self._engine.lock:
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
        log = self._log
        with self._engine.lock:
            for segment in log.segments[bisect_right(log.segments, window.start, key=_end) :]:
                if (
                    (self._include_deleted or not segment.archived)
                    and window.meets(segment.base, segment.end - 1, segment.first_us, segment.last_us)
                    and (about is None or (segment.low <= about[1] and about[0] <= segment.high))
                ):
                    return _InSegment(segment)
            first = log.find(window.start)
            for index in range(first, len(log)) if about is None else log.places_about(*about, first):
                block = log.block(index)
                if window.meets(block.base, block.end - 1, block.timestamp_us, block.timestamp_us):
                    file = self._engine.journal.files[block.sequence]
                    file.pin()
                    return _InJournal(block, file)
        return None

    def _block_rows(self, place: _InJournal, window: Window) -> Rows:
        block = place.block
        batch = decode_batch(self._body(place), block.count)
        offsets = range(max(block.base, window.start), min(block.end, window.end))
        if len(offsets) < block.count:
            batch = batch.select([offset - block.base for offset in offsets])
        return Rows(offsets, [block.timestamp_us] * len(offsets), batch)

    def _body(self, place: _InJournal) -> bytes:
        block = place.block
        try:
            return self._engine.journal.read_body(place.file, block.position, block.length, block.crc)
        finally:
            self._unpin(place)

    def _unpin(self, place: _InJournal) -> None:
        with self._engine.lock:
            place.file.unpin()

    def _tables(
        self, segment: SegmentInfo, window: Window, about: Span | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.Table]:
        """The tables of a segment; if it moves to the archive before it is opened, they are read there."""
        from penstock.segments.reader import SegmentReader

        log, topic = self._log, self._log.topic
        place = (topic.name, log.table, log.partition, segment.base)
        storage, name = self._engine.storage, segment_name(*place)
        archive = segment.archive or topic.config.archive
        if segment.archived and archive is not None:
            storage, name = storage.elsewhere(archive), archived_name(*place)
        try:
            reader = SegmentReader(storage, name, log.table, segment)
        except FileNotFoundError:
            with self._engine.lock:
                now = next((s for s in log.segments if s.base == segment.base), None)
            if now == segment:
                raise CorruptData(name, 0, "the segment is missing") from None
            if now is not None and self._include_deleted:
                yield from self._tables(now, window, about, columns)
            return
        with reader:
            yield from reader.tables(window, about, columns)
        self.row_groups_read += reader.row_groups_read


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
