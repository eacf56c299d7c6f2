"""Exact percentiles of values that come with how often they were seen."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

PERCENTS = (50, 95, 99)


def percentiles(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """For each combination of keys: `messages`, `p50`, `p95`, `p99` and `highest` of the column `value`.

    Between two values the percentile is as far as its place is between theirs, as pandas and Spark have it.
    """
    names = list(keys)
    found = table.group_by([*names, "value"]).aggregate([("count", "sum")])
    found = found.sort_by([(name, "ascending") for name in [*names, "value"]]).combine_chunks()
    value, count = (_flat(found.column(name)) for name in ("value", "count_sum"))
    cell = _cells(found, names)
    behind = pc.cumulative_sum(count)
    starts = pc.cast(pc.indices_nonzero(pc.fill_null(pc.not_equal(pc.pairwise_diff(cell), 0), True)), pa.int64())  # noqa: FBT003
    lasts = pc.subtract(pa.concat_arrays([starts.slice(1), pa.array([len(found)], pa.int64())]), 1)
    before = pc.subtract(behind.take(starts), count.take(starts))
    messages = pc.subtract(behind.take(lasts), before)
    seen = pc.subtract(behind, before.take(cell))  # how many of its cell are not higher
    columns = {name: found.column(name).take(starts) for name in names}
    columns["messages"] = messages
    for percent in PERCENTS:
        place = pc.multiply(pc.subtract(messages, 1), percent)  # in hundredths
        low = pc.divide(place, 100)
        rest = pc.subtract(place, pc.multiply(low, 100))
        high = pc.min_element_wise(pc.add(low, 1), pc.subtract(messages, 1))
        lower, higher = (_at(value, count, seen, cell, wanted) for wanted in (low, high))
        step = pc.divide(pc.multiply(pc.subtract(higher, lower), rest).cast(pa.float64()), 100.0)
        columns[f"p{percent}"] = pc.add(lower.cast(pa.float64()), step)
    columns["highest"] = value.take(lasts).cast(pa.float64())
    return pa.table(columns)


def _cells(table: pa.Table, names: list[str]) -> pa.Array:
    """The number of the combination of each row, in order."""
    changes = pa.repeat(pa.scalar(False), len(table))  # noqa: FBT003
    for name in names:
        column = table.column(name).combine_chunks()
        codes = _flat(pa.chunked_array([column.dictionary_encode(null_encoding="encode").indices.cast(pa.int64())]))
        changes = pc.or_(changes, pc.fill_null(pc.not_equal(pc.pairwise_diff(codes), 0), False))  # noqa: FBT003
    return pc.cumulative_sum(changes.cast(pa.int64()))


def _at(value: pa.Array, count: pa.Array, seen: pa.Array, cell: pa.Array, wanted: pa.Array) -> pa.Array:
    """The value at a place (from 0) of each cell: the first of which more are not higher."""
    place = wanted.take(cell)
    return value.filter(pc.and_(pc.greater(seen, place), pc.less_equal(pc.subtract(seen, count), place)))


def _flat(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
