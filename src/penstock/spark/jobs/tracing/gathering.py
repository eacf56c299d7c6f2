"""What the tasks found, put together: each table by one task, exact."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.jobs.tracing.looking import METRICS, Part, look, packed, unpacked
from penstock.spark.jobs.tracing.reading import Chunk
from penstock.spark.jobs.tracing.weights import percentiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PartKey = tuple[str, str, str]
"""A topic, a group, and what it is about."""
EDGES_US = [step * 10**power for power in range(1, 12) for step in (1, 2, 5)]
"""Where the bars of a histogram end; the last has everything above."""
_DETAILS = 50
OTHERS = "(others)"


def gather(spark: SparkSession, chunks: Sequence[Chunk]) -> dict[PartKey, pa.Table]:
    """Look at all chunks, and put together what belongs together."""
    if not chunks:
        return {}
    context = spark.sparkContext
    packed_chunks = [pickle.dumps(chunk) for chunk in chunks]
    parts = context.parallelize(packed_chunks, len(chunks)).flatMap(lambda item: map(_keyed, look(pickle.loads(item))))
    together = parts.groupByKey(min(len(chunks), context.defaultParallelism), _place).map(_put_together)
    found: dict[PartKey, pa.Table] = {}
    for key, tables in map(pickle.loads, together.collect()):
        for name, data in tables.items():
            found[key[0], key[1], name] = unpacked(data)
    return found


def _keyed(part: Part) -> tuple[PartKey, bytes]:
    return (part.topic, part.group, part.kind), part.data


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
    rows = sorted(table.to_pylist(), key=lambda row: (row["cause"], -row["messages_sum_sum"], row["detail"] or ""))
    kept: list[tuple[str, str | None, int]] = []
    seen: dict[str, int] = {}
    for row in rows:
        cause, messages = row["cause"], row["messages_sum_sum"]
        seen[cause] = seen.get(cause, 0) + 1
        if seen[cause] <= _DETAILS:
            kept.append((cause, row["detail"], messages))
        elif seen[cause] == _DETAILS + 1:
            kept.append((cause, OTHERS, messages))
        else:
            kept[-1] = (cause, OTHERS, kept[-1][2] + messages)
    return pa.table(
        {
            "cause": pa.array([row[0] for row in kept], pa.string()),
            "detail": pa.array([row[1] for row in kept], pa.string()),
            "messages": pa.array([row[2] for row in kept], pa.int64()),
        }
    )
