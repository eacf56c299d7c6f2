"""A part of a log, as a task reads it: from segment files that it can see, from the journal, or through the server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.journal.bucket_reading import JournalObject, PlannedJournal
from penstock.log.partition_log import BlockRef
from penstock.model.errors import CorruptData
from penstock.model.layout import SegmentPlace, ThinnedSegment
from penstock.protocol.session import Read
from penstock.segments.reader import SegmentReader
from penstock.segments.schema import events_to_arrow
from penstock.segments.window import Window
from penstock.spark.buckets import objects_at
from penstock.spark.connecting import connected
from penstock.spark.errors import DataLoss
from penstock.spark.filters import Wanted
from penstock.spark.options import ReadOptions
from penstock.spark.origins import open_segment
from penstock.storage.buckets import is_bucket
from penstock.storage.read_only import ReadableStorage, ReadOnlyStorage
from penstock.views.snapshot import read_blocks


@dataclass(frozen=True)
class Span:
    """Consecutive places of one log, and where they lie."""

    topic: str
    partition: int
    start: int
    end: int
    segments: tuple[SegmentPlace, ...] = ()
    blocks: tuple[BlockRef, ...] | None = None
    """Blocks of the journal; None where they are read through the server."""
    journal_in: str | None = None
    """The directory of the journal that has them."""
    objects: tuple[JournalObject, ...] | None = None
    """On a bucket: what the files of the journal are made of."""

    @property
    def count(self) -> int:
        """How many messages or events it should have."""
        return self.end - self.start

    def has_whole(self, segment: SegmentPlace) -> bool:
        """Whether all places of a segment are among its own."""
        return self.start <= segment.base and segment.end <= self.end

    def part(self, start: int, end: int) -> Span:
        """The places from `start` to before `end`, with the segments and blocks that hold any of them."""
        segments = tuple(segment for segment in self.segments if segment.end > start and segment.base < end)
        blocks = self.blocks and tuple(block for block in self.blocks if block.end > start and block.base < end)
        files = {block.sequence for block in blocks or ()}
        objects = self.objects and tuple(one for one in self.objects if one.sequence in files)
        return Span(self.topic, self.partition, start, end, segments, blocks, self.journal_in, objects)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} from {self.start} to {self.end - 1}"


class Slice(InputPartition):
    """What one task reads: some spans."""

    def __init__(self, spans: tuple[Span, ...]) -> None:
        super().__init__(spans)
        self.spans = spans


_TOO_OLD = ", or the query was planned so long ago that a bucket does not keep what it needs any more: run it again"


class _Gone:
    """Counts what should be there and is not."""

    def __init__(self) -> None:
        self.count = 0


def read_span(options: ReadOptions, span: Span, columns: list[str], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The rows of a span that may be wanted, with the columns of a segment; what is missing is no surprise for long."""
    gone = _Gone()
    for batch in _pieces(options, span, columns, wanted, gone):
        kept = wanted.filter(batch)
        if len(kept):
            yield kept
    if gone.count > 0 and options.fail_on_data_loss:
        raise DataLoss(
            f"{gone.count} of the {span.count} {options.table} of {span} are gone: retention removed them (while the "
            "query ran, or earlier from the midst of others), or a repair left a gap"
            + _TOO_OLD * is_bucket(options.path or "")
            + ". Set failOnDataLoss to false to read what is left"
            + ("" if options.include_deleted else ", or includeDeleted to true if the topic has an archive")
        )


def _pieces(
    options: ReadOptions, span: Span, columns: list[str], wanted: Wanted, gone: _Gone
) -> Iterator[pa.RecordBatch]:
    at = span.start
    for segment in span.segments:
        start, end = max(at, segment.base), min(span.end, segment.end)
        if start >= end:
            continue
        if at < start:  # a part that is in no segment
            yield from _elsewhere(options, span, at, start, columns, gone)
        window = Window(start, end, wanted.from_us, wanted.to_us)
        if not window.meets(segment.base, segment.end - 1, segment.first_us, segment.last_us):
            gone.count += _hole(segment, start, end)
        elif (reader := _opened(options, segment)) is None:
            yield from _elsewhere(options, span, start, end, columns, gone)
        else:
            yield from _segment(reader, segment, window, columns, gone)
        at = end
    if at < span.end:
        yield from _elsewhere(options, span, at, span.end, columns, gone)


def _hole(segment: SegmentPlace, start: int, end: int) -> int:
    """What a repair left out of a segment of which not every row is looked at, as far as that can be known."""
    whole = start <= segment.base and segment.end <= end and not isinstance(segment, ThinnedSegment)
    return segment.end - segment.base - segment.rows if whole else 0


def _opened(options: ReadOptions, segment: SegmentPlace) -> SegmentReader | None:
    """The file of a segment; None where this process cannot read it, or where another one lies in its place.

    Then there is the server to ask, and it tells if the segment is damaged indeed.
    """
    try:
        return open_segment(segment, options.table)
    except FileNotFoundError:
        return None
    except (OSError, CorruptData):
        if options.servers is None:
            raise
        return None


def _segment(
    reader: SegmentReader, segment: SegmentPlace, window: Window, columns: list[str], gone: _Gone
) -> Iterator[pa.RecordBatch]:
    rows = 0
    with reader:
        for table in reader.tables(window, columns=columns):
            rows += len(table)
            yield from table.to_batches()
    if window.timed or isinstance(segment, ThinnedSegment):
        gone.count += _hole(segment, window.start, window.end)
    else:
        gone.count += window.end - window.start - rows


def _elsewhere(
    options: ReadOptions, span: Span, start: int, end: int, columns: list[str], gone: _Gone
) -> Iterator[pa.RecordBatch]:
    """What is in no file that this process can read as a segment."""
    batches: Iterator[pa.RecordBatch] = iter(())
    if options.servers is not None:
        batches = _from_server(options, span, start, end)
    elif span.blocks is not None and span.journal_in is not None:
        blocks = [block for block in span.blocks if block.base < end and block.end > start]
        batches = read_blocks(
            _journal(span.journal_in, span.objects), blocks, options.table, span.partition, start, end
        )
    rows = 0
    try:
        for batch in batches:
            rows += len(batch)
            yield batch.select(columns)
    except FileNotFoundError:  # what is left of it is counted
        if span.objects is None:
            raise
    gone.count += end - start - rows


def _journal(directory: str, objects: tuple[JournalObject, ...] | None) -> ReadableStorage:
    """The journal of a shard, as it was when the read was planned."""
    return ReadOnlyStorage(directory) if objects is None else PlannedJournal(objects_at(directory), objects)


def _from_server(options: ReadOptions, span: Span, start: int, end: int) -> Iterator[pa.RecordBatch]:
    assert options.servers is not None
    client = connected(options.servers, options.secrets, patient=True)
    form = "arrow" if options.table == "messages" else "events"
    request = Read(
        span.topic, span.partition, offset=start, end=end, include_deleted=options.include_deleted, form=form
    )
    for page in client.pages(request, span.partition):
        if page.arrow is not None:
            yield from pa.ipc.open_stream(page.arrow)
        if page.events:  # the last of which is known by its place: the first may come after what is gone
            following = end if page.next_offset is None else page.next_offset
            yield events_to_arrow(following - len(page.events), page.events, span.partition)
