"""The rows of a side as DataFrames: checked files by Spark's own reader, the rest by the data source."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

from penstock.segments.schema import SCHEMAS
from penstock.spark.frames import is_plain_path, read_segments
from penstock.spark.jobs.auditing.problems import Key
from penstock.spark.jobs.auditing.sides import LogView, Side
from penstock.spark.options import Offsets
from penstock.spark.planning import between
from penstock.spark.registering import register

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_OWN_FRAMES, _OWN_ROWS = 16, 1_000_000
"""The largest topics have frames of their own; rows of the others are assigned to their topic by file."""
NEVER = 2**63 - 1


class Frames:
    """Makes the frames of one table of one side: its stored columns, `id` (of the topic), `cuts` (of the log)."""

    def __init__(
        self, spark: SparkSession, side: Side, table: str, ids: Mapping[str, int], cuts: Mapping[Key, Sequence[int]]
    ) -> None:
        self._spark, self._side, self._table, self._ids = spark, side, table, ids
        self._width = max(map(len, cuts.values()), default=0)
        self._cuts = {key: [*found, *[NEVER] * (self._width - len(found))] for key, found in cuts.items()}
        fields = from_arrow_schema(SCHEMAS[table]).fields
        self._schema = StructType([StructField(field.name, field.dataType) for field in fields])
        self._stored = self._schema.fieldNames()

    def all(self, wanted: Callable[[LogView], bool] = lambda view: True) -> list[DataFrame]:
        """Frames that together have every row of the logs that are wanted."""
        by_topic: dict[str, list[LogView]] = {}
        sourced: dict[Key, tuple[int, int]] = {}
        for view in filter(wanted, self._side.of(self._table)):
            is_plain = all(is_plain_path(one.path) for one in view.segments)
            if view.segments and is_plain:
                by_topic.setdefault(view.topic, []).append(view)
            start = view.source_from if is_plain else view.first
            if start < view.end:
                sourced[view.key] = (start, view.end)
        sizes = {topic: sum(one.rows for view in mine for one in view.segments) for topic, mine in by_topic.items()}
        large = [topic for topic, rows in sizes.items() if rows >= _OWN_ROWS]
        largest = sorted(large, key=lambda topic: (-sizes[topic], topic))[:_OWN_FRAMES]
        frames = [self._of_topic(by_topic[topic]) for topic in largest]
        others = [view for topic, mine in by_topic.items() if topic not in largest for view in mine]
        frames += [self._by_file(others)] if others else []
        return [*frames, self._source(sourced)] if sourced else frames

    def _of_topic(self, views: list[LogView]) -> DataFrame:
        """One topic: the partition of a row says where its log is cut."""
        files = [one.path for view in views for one in view.segments]
        last = max(view.partition for view in views)
        of_partition = f.array(*[_longs(self._cuts_of((views[0].topic, number))) for number in range(last + 1)])
        return read_segments(self._spark, self._schema, files).select(
            *self._stored,
            f.lit(self._ids[views[0].topic]).alias("id"),
            (of_partition[f.col("partition")] if self._width else _longs([])).alias("cuts"),
        )

    def _by_file(self, views: list[LogView]) -> DataFrame:
        """Many topics: the file of a row says which log it belongs to."""
        owners = {one.path: view for view in views for one in view.segments}
        frame = read_segments(self._spark, self._schema, owners)
        paths = [urlsplit(name).path for name in frame.inputFiles()]  # with %20 for a space, as Spark has it
        rows = [
            (f"{scheme}{path}", *self._place_of(owners[unquote(path)].key))
            for path in paths
            for scheme in ("file:", "file://")  # Spark writes one or the other
        ]
        places = self._spark.createDataFrame(rows, StructType([StructField("file", StringType()), *_PLACE]))
        frame = frame.select(*self._stored, f.col("_metadata.file_path").alias("file"))
        return frame.join(f.broadcast(places), "file").drop("file")

    def _source(self, runs: Mapping[Key, tuple[int, int]]) -> DataFrame:
        """Rows through the data source; what is not there is found by counting."""
        register(self._spark)
        start: Offsets = {}
        end: Offsets = {}
        for (topic, number), (low, high) in runs.items():
            start.setdefault(topic, {})[number] = low
            end.setdefault(topic, {})[number] = high
        options: dict[str, Any] = {
            **self._side.place.options,
            "table": self._table,
            "assign": json.dumps({topic: sorted(places) for topic, places in start.items()}),
            **between(start, end),
            "includeDeleted": "true",
            "failOnDataLoss": "false",
        }
        schema = StructType([*self._schema.fields, StructField("topic", StringType())])
        frame = self._spark.read.format("penstock").schema(schema).options(**options).load()
        rows = [(*key, *self._place_of(key)) for key in runs]
        named = [StructField("topic", StringType()), StructField("partition", IntegerType()), *_PLACE]
        places = self._spark.createDataFrame(rows, StructType(named))
        found = frame.join(f.broadcast(places), ["topic", "partition"])
        return found.select(*self._stored, "id", "cuts")

    def _place_of(self, key: Key) -> tuple[int, list[int]]:
        return self._ids[key[0]], self._cuts_of(key)

    def _cuts_of(self, key: Key) -> list[int]:
        return self._cuts.get(key, [NEVER] * self._width)


_PLACE = [StructField("id", IntegerType()), StructField("cuts", ArrayType(LongType()))]


def _longs(numbers: Sequence[int]) -> Column:
    return f.array(*map(f.lit, numbers)).cast("array<bigint>")
