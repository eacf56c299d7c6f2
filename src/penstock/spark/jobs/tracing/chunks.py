"""What a task reads: when messages were published, and the events that speak of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.model.errors import CorruptData
from penstock.model.layout import SegmentPlace
from penstock.segments.schema import EVENTS
from penstock.segments.window import Window
from penstock.spark.filters import Wanted
from penstock.spark.jobs.auditing.events import Era
from penstock.spark.jobs.tracing.runs import Runs, stretches
from penstock.spark.options import ReadOptions
from penstock.spark.origins import open_segment
from penstock.spark.slices import Span, read_span
from penstock.storage.buckets import is_bucket

EVENT_COLUMNS = [name for name in EVENTS.names if name != "partition"]
_NONE = pa.array([], pa.int64())
_MESSAGE_COLUMNS = ["offset", "timestamp", "priority", "deliver_at"]


@dataclass(frozen=True)
class Chunk:
    """Consecutive messages of one partition, and the events that may speak of them."""

    topic: str
    partition: int
    messages: Span
    message_options: ReadOptions
    events: tuple[Span, ...]
    event_options: ReadOptions
    eras: tuple[Era, ...]


def read_messages(chunk: Chunk) -> tuple[Runs, pa.Table]:
    """Messages that were published together, as runs, and a table of them: `published`, `due` and `lane`."""
    found = [_together(*read) for read in _message_tables(chunk)]
    lows, highs, tables = ([each[part] for each in found] for part in range(3))
    table = pa.concat_tables(tables) if tables else pa.table(dict.fromkeys(("published", "due", "lane"), _NONE))
    low, high = (pa.concat_arrays(parts) if parts else _NONE for parts in (lows, highs))
    return Runs(low, high, pa.arange(0, len(low))), table


_Read = tuple[pa.Table, int, set[int]]
"""Messages, the offset of the first, and their lanes; columns in which there is nothing new may be left out."""


def _message_tables(chunk: Chunk) -> Iterator[_Read]:
    span = chunk.messages
    at = span.start
    for segment in span.segments:
        start, end = max(at, segment.base), min(span.end, segment.end)
        if is_bucket(segment.path):  # Arrow would ask it by a client of its own
            continue
        try:
            parquet = pq.ParquetFile(segment.path, page_checksum_verification=True)
        except (OSError, pa.ArrowException):
            continue
        with parquet:
            if start < end and Path(segment.path).stat().st_size == segment.size_bytes:
                yield from _slowly(chunk, at, start)
                yield from _of_file(parquet, start, end)
                at = end
    yield from _slowly(chunk, at, span.end)


def _slowly(chunk: Chunk, start: int, end: int) -> Iterator[_Read]:
    for table in _elsewhere(chunk.message_options, chunk.messages, start, end, _MESSAGE_COLUMNS):
        yield table, start, set()


def _of_file(parquet: pq.ParquetFile, start: int, end: int) -> Iterator[_Read]:
    """Of a segment, only the columns that tell something: the footer knows what is the same in all rows."""
    metadata = parquet.metadata
    columns = {metadata.schema.column(number).path: number for number in range(len(metadata.schema))}
    chosen = []
    lanes: set[int] = set()
    wanted = {"timestamp"}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        offset, lane, due = (group.column(columns[name]).statistics for name in ("offset", "priority", "deliver_at"))
        if offset.min_raw < end and offset.max_raw >= start:
            chosen.append((number, offset.min_raw, offset.max_raw))
            lanes |= {lane.min_raw, lane.max_raw}
            wanted |= {"offset"} if offset.max_raw - offset.min_raw + 1 != group.num_rows else set()
            wanted |= {"deliver_at"} if due.null_count != group.num_rows else set()
    if not chosen:
        return
    wanted |= {"priority"} if len(lanes) > 1 else set()
    if any(after[1] != before[2] + 1 for before, after in pairwise(chosen)):
        wanted.add("offset")
    table = parquet.read_row_groups([number for number, _, _ in chosen], sorted(wanted), use_threads=False)
    if "offset" in wanted:
        places = table.column("offset")
        yield table.filter(pc.and_(pc.greater_equal(places, start), pc.less(places, end))), start, lanes
    else:
        first = max(start, chosen[0][1])
        yield table.slice(first - chosen[0][1], end - first), first, lanes


def _together(table: pa.Table, first: int, lanes: set[int]) -> tuple[pa.Array, pa.Array, pa.Table]:
    """Where runs of messages with one time, one lane and one due time begin and end, and what these are."""
    count = len(table)
    column = {name: table.column(name).combine_chunks() for name in table.column_names}
    if set(column) == {"timestamp"}:  # as most are: with nothing else to look at
        encoded = pc.run_end_encode(column["timestamp"].cast(pa.int64()), run_end_type=pa.int64())
        ends, times = encoded.run_ends, encoded.values
        begins = pa.concat_arrays([pa.array([0], pa.int64()), ends.slice(0, len(ends) - 1)]) if count else _NONE
        low, dues = pc.add(begins, first), pa.nulls(len(begins), pa.int64())
        lane = pa.repeat(pa.scalar(min(lanes), pa.int64()), len(begins))
    else:
        offsets = column.get("offset", pa.arange(first, first + count))
        lane = column.get("priority", pa.repeat(pa.scalar(min(lanes, default=0), pa.int16()), count)).cast(pa.int64())
        due = column.get("deliver_at", pa.nulls(count, pa.int64())).cast(pa.int64())
        time = column["timestamp"].cast(pa.int64())
        changes = pc.not_equal(pc.pairwise_diff(offsets), 1)
        for other in (time, lane, pc.fill_null(due, 0)):
            changes = pc.or_(changes, pc.not_equal(pc.pairwise_diff(other), 0))
        begins, ends = stretches(changes)
        low, times, lane, dues = (each.take(begins) for each in (offsets, time, lane, due))
    return low, pc.add(low, pc.subtract(ends, begins)), pa.table({"published": times, "due": dues, "lane": lane})


def read_events(
    options: ReadOptions, span: Span, about: tuple[int, int] | None, columns: list[str]
) -> Iterator[pa.Table]:
    """Events, in order; only those that may speak of messages from the first of these offsets to the second.

    Row groups that speak of others are not read, where the files can be seen from here.
    """
    at = span.start
    for segment in span.segments:
        yield from _elsewhere(options, span, at, segment.base, columns)
        at = segment.end
        try:
            reader = open_segment(segment, "events")
        except (OSError, CorruptData):
            if options.servers is None:
                raise
            yield from _elsewhere(options, span, segment.base, segment.end, columns)
            continue
        with reader:
            yield from reader.tables(Window(), about, columns)
    yield from _elsewhere(options, span, at, span.end, columns)


def _elsewhere(options: ReadOptions, whole: Span, start: int, end: int, columns: list[str]) -> Iterator[pa.Table]:
    """What is in no file that can be seen from here: from the journal, or through the server."""
    if start < end:
        for batch in read_span(options, whole.part(start, end), columns, Wanted()):
            yield pa.Table.from_batches([batch])


def events_about(chunk: Chunk) -> pa.Table:
    """The events that may speak of the messages of a chunk, in order."""
    about = (chunk.messages.start, chunk.messages.end - 1)
    found = [table for span in chunk.events for table in read_events(chunk.event_options, span, about, EVENT_COLUMNS)]
    if not found:
        return pa.table({name: pa.array([], pa.int64()) for name in EVENT_COLUMNS})
    return pa.concat_tables(found)


def bounds_of(segment: SegmentPlace) -> tuple[int, int]:
    """The lowest and the highest offset that the events of a segment speak of, from its footer."""
    with open_segment(segment, "events") as reader:
        return reader.bounds("offset")[0], reader.bounds("last")[1]
