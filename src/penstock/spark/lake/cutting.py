"""Where files and row groups end: by what the rows are, whatever batches they come in and whoever writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.segments.schema import POSITION, SCHEMAS, TIMESTAMP
from penstock.segments.writer import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from penstock.spark.lake.layout import DAY_US, Limits

_ROW_BYTES = 64


class RowGroup(NamedTuple):
    """Rows that are written together, and the number of the file that they belong to."""

    file: int
    rows: pa.Table
    content_bytes: int


def cut(table: str, batches: Iterable[pa.RecordBatch], limit: Limits, *, thinned: bool = False) -> Iterator[RowGroup]:
    """The row groups of files that begin with the first row.

    A row group ends with a number of rows, or behind the row with which it is large. A file ends where the date
    changes, before multiples of `limit.rows`, where places are missing, and behind the row with which it is large. Of
    thinned rows, places do not matter.
    """
    file = file_bytes = rows = size = 0
    waiting: list[pa.RecordBatch] = []
    for begins, stretch in _stretches(table, batches, limit, thinned):
        if begins:
            if waiting:
                yield RowGroup(file, _whole(waiting), size)
            waiting, rows, size = [], 0, 0
            file, file_bytes = file + 1, 0
        left = stretch
        while len(left):
            room = min(ROW_GROUP_BYTES[table], limit.size_bytes - file_bytes)
            taken, taken_bytes = _first_rows(table, left, ROW_GROUP_ROWS - rows, room - size)
            waiting.append(left.slice(0, taken))
            rows, size, left = rows + taken, size + taken_bytes, left.slice(taken)
            if rows == ROW_GROUP_ROWS or size >= room:
                yield RowGroup(file, _whole(waiting), size)
                file_bytes += size
                waiting, rows, size = [], 0, 0
                if file_bytes >= limit.size_bytes:
                    file, file_bytes = file + 1, 0
    if waiting:
        yield RowGroup(file, _whole(waiting), size)


def _whole(batches: list[pa.RecordBatch]) -> pa.Table:
    """In one piece: where pages end depends on the pieces."""
    return pa.Table.from_batches(batches).combine_chunks()


def _first_rows(table: str, batch: pa.RecordBatch, rows: int, size: int) -> tuple[int, int]:
    """How many rows to take, until either limit is reached, and how many bytes they hold."""
    sizes = _content_bytes(table, batch.slice(0, rows))
    whole = pc.sum(sizes).as_py()
    if whole < size:
        return len(sizes), whole
    reached = pc.cumulative_sum(sizes)
    taken = pc.index(pc.greater_equal(reached, size), pa.scalar(value=True)).as_py() + 1
    return taken, reached[taken - 1].as_py()


def _content_bytes(table: str, batch: pa.RecordBatch) -> pa.Array:
    """What each row holds, by its values alone."""
    sizes = pa.repeat(pa.scalar(_ROW_BYTES, pa.int64()), len(batch))
    for name in ("key", "value") if table == "messages" else ("detail",):
        column = batch.column(name)
        if column.null_count < len(batch):
            sizes = pc.add(sizes, pc.fill_null(pc.binary_length(column), 0))
    lists = batch.column("headers" if table == "messages" else "offsets")
    if lists.null_count < len(batch):
        each = (
            pc.add(pc.binary_length(lists.keys), pc.fill_null(pc.binary_length(lists.items), 0))
            if table == "messages"
            else pa.repeat(pa.scalar(8, pa.int32()), len(lists.values))
        )
        until = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(each.cast(pa.int64()))])
        sums = until.take(lists.offsets)
        sizes = pc.add(sizes, pc.subtract(sums[1:], sums[:-1]))
    return sizes


def _stretches(
    table: str, batches: Iterable[pa.RecordBatch], limit: Limits, thinned: bool
) -> Iterator[tuple[bool, pa.RecordBatch]]:
    """Rows that belong together, and whether they begin a file that the rows before are not in."""
    schema, position, time = SCHEMAS[table], POSITION[table], TIMESTAMP[table]
    last: tuple[int, int] | None = None  # the place and the day of the row before
    for given in batches:
        batch = pa.RecordBatch.from_arrays(given.columns, schema=schema)
        places, days = batch.column(position), pc.divide(batch.column(time).cast(pa.int64()), DAY_US)
        first, day = places[0].as_py(), days[0].as_py()
        begins = last is not None and (
            last[1] != day or (not thinned and (first != last[0] + 1 or first // limit.rows != last[0] // limit.rows))
        )
        starts = [0, *_breaks(places, days, limit, thinned), len(batch)]
        for number, (start, end) in enumerate(pairwise(starts)):
            yield begins or number > 0, batch.slice(start, end - start)
        last = places[-1].as_py(), days[-1].as_py()


def _breaks(places: pa.Array, days: pa.Array, limit: Limits, thinned: bool) -> list[int]:
    """The rows of a batch with which a file begins, the first one aside."""
    changes = pc.not_equal(days[1:], days[:-1])
    if not thinned:
        blocks = pc.divide(places, limit.rows)
        changes = pc.or_(changes, pc.not_equal(blocks[1:], blocks[:-1]))
        changes = pc.or_(changes, pc.not_equal(pc.subtract(places[1:], places[:-1]), 1))
    found: list[int] = pc.add(pc.indices_nonzero(changes), 1).to_pylist()
    return found
