"""Messages that are there twice, by what should tell them apart: the key, or the dedupe id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.spark.frames import union
from penstock.spark.jobs.auditing.frames import NEVER, Frames
from penstock.spark.jobs.auditing.problems import Findings, Key
from penstock.spark.jobs.auditing.sides import Side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAYS = ("none", "key", "dedupe-id")
_SHOWN = 20
_FOUND = """
SELECT id, identity, places, count(*) OVER (PARTITION BY id) AS many,
  row_number() OVER (PARTITION BY id ORDER BY places[0]) AS number
FROM (
  SELECT id, identity, window_us, sort_array(collect_list(struct(time_us, partition, offset))) AS places
  FROM {rows} JOIN {windows} USING (id) WHERE identity IS NOT NULL GROUP BY id, identity, window_us HAVING count(*) > 1)
WHERE exists(sequence(1, size(places) - 1), at -> places[at].time_us - places[at - 1].time_us < window_us)
"""


def find_duplicates(
    spark: SparkSession,
    way: str,
    sides: list[tuple[Side, Mapping[Key, int]]],
    ids: Mapping[str, int],
    windows_us: Mapping[str, int],
    findings: Findings,
) -> int:
    """Tell which identities are there more than once in a topic; how many.

    Of a side, messages before the offset that is given for their partition count. Dedupe ids may come again when the
    window of their topic is over, where that is known.
    """
    column = "key" if way == "key" else "dedupe_id"
    frames: list[DataFrame] = []
    for side, befores in sides:
        cuts = {view.key: [befores.get(view.key, NEVER)] for view in side.of("messages")}
        for frame in Frames(spark, side, "messages", ids, cuts).all():
            chosen = frame.where(f"offset < cuts[0] AND {column} IS NOT NULL")
            made = [f.col(column).alias("identity"), f.unix_micros("timestamp").alias("time_us")]
            frames.append(chosen.select("id", *made, "partition", "offset"))
    rows = union(frames)
    if rows is None:
        return 0
    known = [(number, windows_us.get(topic, NEVER) if way != "key" else NEVER) for topic, number in ids.items()]
    windows = spark.createDataFrame(known, "id INT, window_us BIGINT").hint("broadcast")
    found = spark.sql(_FOUND, rows=rows, windows=windows)
    names = {number: topic for topic, number in ids.items()}
    totals: dict[str, int] = {}
    for row in found.where(f"number <= {_SHOWN}").collect():
        topic, (first, *others) = names[row.id], row.places
        totals[topic] = row.many
        again = ", ".join(f"{topic}/{place.partition}/{place.offset}" for place in others[:3])
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        shown = bytes(row.identity).decode(errors="replace") if way == "key" else row.identity
        findings.problem(topic, first.partition, first.offset, f"{way} {shown!r:.80} is there again: {again}{more}")
    for topic, many in totals.items():
        if many > _SHOWN:
            findings.problem(topic, None, None, f"{many - _SHOWN} further {way}s are there more than once")
    return sum(totals.values())
