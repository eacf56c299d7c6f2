"""What the tasks found, put together: each table by one task, with exact percentiles."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.jobs.tracing.chunks import Chunk
from penstock.spark.jobs.tracing.looking import METRICS, PartKey, look, packed, unpacked
from penstock.spark.jobs.tracing.runs import flat, stretches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EDGES_US = [step * 10**power for power in range(1, 12) for step in (1, 2, 5)]
"""Where the bars of a histogram end; the last has everything above."""
_DETAILS = 50
_PERCENTS = (50, 95, 99)
OTHERS = "(others)"


def gather(spark: SparkSession, chunks: Sequence[Chunk]) -> dict[PartKey, pa.Table]:
    """Look at all chunks, and put together what belongs together."""
    if not chunks:
        return {}
    context = spark.sparkContext
    packed_chunks = [pickle.dumps(chunk) for chunk in chunks]
    parts = context.parallelize(packed_chunks, len(chunks)).flatMap(lambda item: look(pickle.loads(item)))
    together = parts.groupByKey(min(len(chunks), context.defaultParallelism), _place).map(_put_together)
    found: dict[PartKey, pa.Table] = {}
    for key, tables in map(pickle.loads, together.collect()):
        for name, data in tables.items():
            found[key[0], key[1], name] = unpacked(data)
    return found


def _place(key: PartKey) -> int:
    return zlib.crc32("\0".join(key).encode())


def _put_together(item: tuple[PartKey, Iterable[bytes]]) -> bytes:
    key, parts = item
    table = pa.concat_tables([unpacked(part) for part in parts])
    tables = {name: packed(one) for name, one in _summed(key[2], table).items()}
    return pickle.dumps((key, tables))


def _summed(kind: str, table: pa.Table) -> dict[str, pa.Table]:
    if kind in METRICS:
        return {kind: _by_lane_and_hour(table), f"{kind}-histogram": _histogram(table)}
    if kind == "busy":
        return {kind: percentiles(table, ["consumer"])}
    if kind == "funnel":
        return {kind: table.group_by("stage").aggregate([("messages", "sum")])}
    if kind == "causes":
        return {kind: _most_frequent(table)}
    if kind == "consumers":
        return {kind: table.group_by(["consumer", "kind"]).aggregate([("messages_sum", "sum")])}
    keys = ["state", "since", "consumer", "partition"]
    found = table.group_by(keys).aggregate([("low_min", "min"), ("count_sum", "sum")])
    return {kind: found.rename_columns([*keys, "low_min", "count_sum"])}


def _by_lane_and_hour(table: pa.Table) -> pa.Table:
    """Percentiles of all, by lane, by hour, and by both; null stands for all."""
    found = []
    nothing = pa.scalar(None, pa.int64())
    for keys in ([], ["lane"], ["hour"], ["lane", "hour"]):
        one = percentiles(table, keys)
        for name in ("lane", "hour"):
            if name not in keys:
                one = one.append_column(name, pa.repeat(nothing, len(one)))
        found.append(one.select(["lane", "hour", "messages", "p50", "p95", "p99", "highest"]))
    return pa.concat_tables(found)


def _histogram(table: pa.Table) -> pa.Table:
    """How many there are between two edges."""
    value, count = table.column("value"), table.column("count")
    below = [pc.sum(count.filter(pc.less(value, edge))).as_py() or 0 for edge in EDGES_US]
    total = pc.sum(count).as_py() or 0
    counts = [behind - before for before, behind in zip([0, *below], [*below, total], strict=True)]
    return pa.table({"edge": pa.array([*EDGES_US, None], pa.int64()), "messages": pa.array(counts, pa.int64())})


def _most_frequent(table: pa.Table) -> pa.Table:
    """Of each cause, the most frequent details, and all others together."""
    table = table.group_by(["cause", "detail"]).aggregate([("messages_sum", "sum")])
    table = table.rename_columns(["cause", "detail", "messages"])
    rows = sorted(table.to_pylist(), key=lambda row: (row["cause"], -row["messages"], row["detail"] or ""))
    kept: list[dict[str, object]] = []
    for cause, mine in groupby(rows, key=lambda row: row["cause"]):
        found = list(mine)
        kept += found[:_DETAILS]
        if others := sum(row["messages"] for row in found[_DETAILS:]):
            kept.append({"cause": cause, "detail": OTHERS, "messages": others})
    return pa.Table.from_pylist(kept, table.schema)


def percentiles(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """For each combination of keys: `messages`, `p50`, `p95`, `p99` and `highest` of the column `value`.

    Between two values the percentile is as far as its place is between theirs, as pandas and Spark have it.
    """
    names = list(keys)
    found = table.group_by([*names, "value"]).aggregate([("count", "sum")])
    found = found.sort_by([(name, "ascending") for name in [*names, "value"]]).combine_chunks()
    value, count = (flat(found.column(name)) for name in ("value", "count_sum"))
    cell = _cells(found, names)
    behind = pc.cumulative_sum(count)
    starts, ends = stretches(pc.not_equal(pc.pairwise_diff(cell), 0))
    lasts = pc.subtract(ends, 1)
    before = pc.subtract(behind.take(starts), count.take(starts))
    messages = pc.subtract(behind.take(lasts), before)
    seen = pc.subtract(behind, before.take(cell))  # how many of its cell are not higher
    columns = {name: found.column(name).take(starts) for name in names}
    columns["messages"] = messages
    for percent in _PERCENTS:
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
        codes = flat(pa.chunked_array([column.dictionary_encode(null_encoding="encode").indices.cast(pa.int64())]))
        changes = pc.or_(changes, pc.fill_null(pc.not_equal(pc.pairwise_diff(codes), 0), False))  # noqa: FBT003
    return pc.cumulative_sum(changes.cast(pa.int64()))


def _at(value: pa.Array, count: pa.Array, seen: pa.Array, cell: pa.Array, wanted: pa.Array) -> pa.Array:
    """The value at a place (from 0) of each cell, if the values of the cell were written out in order."""
    place = wanted.take(cell)
    return value.filter(pc.and_(pc.greater(seen, place), pc.less_equal(pc.subtract(seen, count), place)))
