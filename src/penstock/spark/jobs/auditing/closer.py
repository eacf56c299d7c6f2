"""A closer look at the few chunks that are not as they should be: which offsets it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from penstock.spark.frames import any_of, is_within
from penstock.spark.jobs.auditing.files import CHUNK_BITS
from penstock.spark.jobs.auditing.frames import Frames
from penstock.spark.jobs.auditing.problems import Findings, Key
from penstock.spark.jobs.auditing.sides import Run, Side, inside, joined, without
from penstock.spark.jobs.auditing.sums import Sums, expected_chunks, hashed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHUNKS_MAX = 8
"""How many chunks of a side are read row by row; of the others only the place is reported."""
Chunks = Mapping[Key, Sequence[int]]


def check_counts(spark: SparkSession, side: Side, sums: Sums, ids: Mapping[str, int], findings: Findings) -> None:
    """Tell what is not there as often as it should be."""
    wrong: dict[Key, list[int]] = {}
    for view in side.of("messages"):
        expected, found = expected_chunks(view), sums.chunks(view.key)
        differ = [chunk for chunk in sorted({*expected, *found}) if expected.get(chunk, 0) != found.get(chunk, 0)]
        if differ:
            wrong[view.key] = differ
    rows = _rows(spark, side, ids, wrong)
    for (topic, partition), chunks in wrong.items():
        view = side.logs["messages", topic, partition]
        for chunk in chunks:
            run = (chunk << CHUNK_BITS, (chunk + 1) << CHUNK_BITS)
            there = rows.get((topic, partition, chunk))
            told = False
            if there is not None:
                offsets = there.column("offset")
                runs = joined((place, place + 1) for place in offsets.to_pylist())
                for start, end in without(inside(view.runs(), [run]), runs) if chunk not in view.rows_of_chunks else ():
                    told = True
                    what = f"{side.name}{end - start} messages are missing, from here to {end - 1}"
                    findings.problem(topic, partition, start, what)
                counts = pc.value_counts(offsets)
                for entry in islice(counts.filter(pc.greater(counts.field(1), 1)).to_pylist(), 100):
                    told = True
                    what = f"{side.name}the message is there {entry['counts']} times"
                    findings.problem(topic, partition, entry["values"], what)
            if not told:
                has, should = sums.chunks(view.key).get(chunk, 0), expected_chunks(view).get(chunk, 0)
                what = f"{side.name}of the messages from here to {run[1] - 1} there are {has} instead of {should}"
                findings.problem(topic, partition, run[0], what)


def tell_difference(
    spark: SparkSession, sides: Sequence[Side], ids: Mapping[str, int], wrong: Chunks, runs: Mapping[Key, Sequence[Run]]
) -> dict[tuple[str, int, int], list[int]]:
    """The offsets at which two sides have other messages, by topic, partition and chunk; inside some runs only."""
    both = [_rows(spark, side, ids, wrong) for side in sides]
    found: dict[tuple[str, int, int], list[int]] = {}
    for key in both[0].keys() & both[1].keys():
        one, other = (rows[key].select(["offset", "hash"]) for rows in both)
        together = one.join(other, "offset", join_type="full outer", right_suffix="_there")
        same = pc.fill_null(pc.equal(together.column("hash"), together.column("hash_there")), False)  # noqa: FBT003
        offsets = together.filter(pc.invert(same)).column("offset").to_pylist()
        mine = runs[key[0], key[1]]
        found[key] = sorted(place for place in offsets if any(start <= place < end for start, end in mine))
    return found


def _rows(
    spark: SparkSession, side: Side, ids: Mapping[str, int], wanted: Chunks
) -> dict[tuple[str, int, int], pa.Table]:
    """Offsets and hashes of the first of some chunks."""
    listed = [(*key, chunk) for key, chunks in sorted(wanted.items()) for chunk in chunks][:_CHUNKS_MAX]
    if not listed:
        return {}
    conditions = [
        (f.col("id") == ids[topic]) & is_within(partition, chunk << CHUNK_BITS, (chunk + 1) << CHUNK_BITS)
        for topic, partition, chunk in listed
    ]
    keys = {(topic, partition) for topic, partition, _ in listed}
    frames = Frames(spark, side, "messages", ids, {}).all(lambda view: view.key in keys)
    tables = [
        frame.where(any_of(conditions)).select("id", "partition", "offset", hashed().alias("hash")).toArrow()
        for frame in frames
    ]
    if not tables:
        return {}
    table = pa.concat_tables(tables)
    chunk_of = pc.shift_right(table.column("offset"), CHUNK_BITS)
    found = {}
    for topic, partition, chunk in listed:
        mine = pc.and_(pc.equal(table.column("id"), ids[topic]), pc.equal(table.column("partition"), partition))
        found[topic, partition, chunk] = table.filter(pc.and_(mine, pc.equal(chunk_of, chunk))).sort_by("offset")
    return found
