"""Sums over messages: how many, and an additive hash of every column, so that parts can be put together and compared.

The hash of a part is the sum, modulo 2 ** 64, of the hashes of its messages: that of two parts without a message in
common is the sum of theirs, in any order and wherever the messages lie.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.spark.frames import union
from penstock.spark.jobs.auditing.files import CHUNK_BITS
from penstock.spark.jobs.auditing.frames import Frames
from penstock.spark.jobs.auditing.problems import Key
from penstock.spark.jobs.auditing.sides import LogView, Run, Side, joined

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_NULLABLE = ("key", "headers", "deliver_at", "expires_at", "dedupe_id")
_HASHED = (
    *("offset", "timestamp", "key", "value", "headers", "priority"),
    *("deliver_at", "expires_at", "dedupe_id", "partition"),
)
MODULUS = 1 << 64


@dataclass(frozen=True)
class Sum:
    """How many messages there are, and the sum of their hashes."""

    count: int = 0
    hash: int = 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.count + other.count, (self.hash + other.hash) % MODULUS)


class Sums:
    """The sums of one side: by log, then by region (between two cuts) and chunk."""

    def __init__(self, cuts: Mapping[Key, Sequence[int]]) -> None:
        self._cuts = cuts
        self._found: dict[Key, dict[tuple[int, int], Sum]] = defaultdict(dict)

    def add(self, key: Key, region: int, chunk: int, found: Sum) -> None:
        """Take in what one query says."""
        mine = self._found[key]
        mine[region, chunk] = mine.get((region, chunk), Sum()) + found

    def chunks(self, key: Key) -> dict[int, int]:
        """How many rows each chunk of a log has."""
        counts: dict[int, int] = defaultdict(int)
        for (_, chunk), found in self._found[key].items():
            counts[chunk] += found.count
        return counts

    def between(self, key: Key, run: Run) -> dict[int, Sum]:
        """The sums of the chunks between two cuts."""
        cuts = self._cuts.get(key, ())
        low, high = (sum(cut <= place for cut in cuts) for place in run)
        found: dict[int, Sum] = defaultdict(Sum)
        for (region, chunk), one in self._found[key].items():
            if low <= region < high:
                found[chunk] += one
        return dict(found)

    def total(self, key: Key, runs: Sequence[Run] | None = None) -> Sum:
        """The sum of a whole log, or of runs between cuts."""
        if runs is None:
            parts = list(self._found[key].values())
        else:
            parts = [one for run in runs for one in self.between(key, run).values()]
        return sum(parts, Sum())


def hashed() -> Column:
    """The hash of a message. Spark's leaves out what is NULL, so which columns are is hashed too."""
    nulls = f.lit(0)
    for bit, name in enumerate(_NULLABLE):
        nulls += f.when(f.col(name).isNull(), 1 << bit).otherwise(0)
    columns = [f.sort_array(f.map_entries(name)) if name == "headers" else f.col(name) for name in _HASHED]
    return f.xxhash64(*columns, nulls)


def sum_up(spark: SparkSession, side: Side, ids: Mapping[str, int], cuts: Mapping[Key, Sequence[int]]) -> Sums:
    """One pass over all messages of a side."""
    names = {number: topic for topic, number in ids.items()}
    width = max(map(len, cuts.values()), default=0)
    region = f.lit(0)
    for place in range(width):
        region += f.when(f.col("offset") >= f.col("cuts")[place], 1).otherwise(0)
    sums = Sums(cuts)
    frames = []
    for frame in Frames(spark, side, "messages", ids, cuts).all():
        keyed = frame.select(
            "id",
            "partition",
            region.alias("region"),
            f.shiftright("offset", CHUNK_BITS).alias("chunk"),
            hashed().alias("hash"),
        )
        halves = (f.col("hash").bitwiseAND(0xFFFFFFFF), f.shiftright("hash", 32))  # a sum of whole ones may overflow
        frames.append(
            keyed.groupBy("id", "partition", "region", "chunk").agg(f.count("*"), *[f.sum(half) for half in halves])
        )
    found = union(frames)
    for number, partition, at, chunk, count, low, high in () if found is None else found.collect():
        sums.add((names[number], partition), at, chunk, Sum(count, (low + (high << 32)) % MODULUS))
    return sums


def expected_chunks(view: LogView) -> dict[int, int]:
    """How many rows each chunk of a log should have."""
    whole = [(one.base, one.end) for one in view.segments if one.rows == one.end - one.base]
    found: dict[int, int] = defaultdict(int)
    for chunk, rows in view.rows_of_chunks.items():
        found[chunk] += rows
    for start, end in joined([*whole, (view.source_from, view.end)]):
        at = start
        while at < end:
            chunk = at >> CHUNK_BITS
            stop = min(end, (chunk + 1) << CHUNK_BITS)
            found[chunk] += stop - at
            at = stop
    return dict(found)
