"""Filters that Spark pushes down change no result, and leave row groups unread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.datasource import DataSourceReader, EqualTo, GreaterThanOrEqual, In, LessThan

import penstock
from penstock.segments.reader import SegmentReader
from penstock.spark import slices
from penstock.spark.origins import open_segment
from penstock.spark.source import PenstockDataSource
from penstock.testing import VirtualClock
from tests.spark.harness import FULL, Planned, of_all_kinds, rows_of, stored

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PREDICATES = [
    "offset > 20 AND offset <= 33",
    "offset IN (1, 2, 50, 1000)",
    "offset IN (1, NULL)",
    "offset <=> 7",
    "offset > 9223372036854775806",
    "NOT (offset < 90 AND partition = 0)",
    "offset < 2.5",
    "partition IN (0, NULL)",
    "partition = 1 OR offset < 3",
    "topic IN ('u', 'x')",
    "key = 'key 1'",
    "key IN ('key 1', 'key 2')",
    "key IS NULL",
    "key IS NOT NULL AND key <= 'key 2'",
    "key <=> NULL",
    "priority IN (1, 70000)",
    "priority >= 100 AND offset < 90",
    "timestamp < '2026-01-01 00:00:03'",
    "timestamp >= '2026-01-01 00:00:03.5' AND timestamp < '2026-01-01 00:00:05'",
    "timestamp IN (TIMESTAMP '2026-01-01 00:00:02', NULL)",
    "value = 'value 4' AND deliver_at IS NULL",
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics over twelve seconds, in which the clock steps back once; part settled, part in the journal."""
    path = tmp_path_factory.mktemp("filters")
    clock = VirtualClock()
    with penstock.open(path, clock=clock, min_free_bytes=0) as broker:
        broker.create_topic("t", partitions=2, retention_age=None)
        broker.create_topic("u", retention_age=None)
        for second in range(12):
            broker.publish_many("t", of_all_kinds(17, second * 17))
            broker.publish_many("u", of_all_kinds(5, second * 17))
            clock.step_wall(-4.5 if second == 7 else 1.0)
            if second in (3, 8):
                broker.settle()
    return path


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """Sets whether Spark pushes filters down."""
    before = str(spark.conf.get(PUSHDOWN))
    yield lambda on: spark.conf.set(PUSHDOWN, on)
    spark.conf.set(PUSHDOWN, before)


def _table(spark: SparkSession, directory: Path, **options: Any) -> DataFrame:
    return spark.read.schema(FULL).format("penstock").options(path=str(directory), subscribe="t,u", **options).load()


def test_pushing_filters_down_changes_no_result(
    spark: SparkSession, directory: Path, pushdown: Callable[[str], None]
) -> None:
    with penstock.open(directory) as broker:
        expected = stored([*broker.read("t"), *broker.read("u")], 10)

    def numbered(tables: Iterable[DataFrame]) -> list[tuple[Any, ...]]:
        """All predicates, each on a table of its own, in one job."""
        frames = [
            table.where(predicate).select(functions.lit(number).alias("number"), "topic", "partition", "offset")
            for number, (predicate, table) in enumerate(zip(PREDICATES, tables, strict=False))
        ]
        return rows_of(reduce(DataFrame.unionAll, frames))

    whole = _table(spark, directory).localCheckpoint()
    assert rows_of(whole) == expected
    wanted = numbered(repeat(whole))
    counts = Counter(row[0] for row in wanted)
    assert sum(0 < counts[number] < len(expected) for number in range(len(PREDICATES))) > 12
    pushdown("true")
    assert numbered(_table(spark, directory, pushFilters="true") for _ in PREDICATES) == wanted
    pushdown("false")
    some = numbered(_table(spark, directory, pushFilters="true") for _ in range(3))
    assert some == [row for row in wanted if row[0] < 3]


def test_S1_filters_of_one_query_do_not_reach_another_on_the_same_table(
    spark: SparkSession, directory: Path, pushdown: Callable[[str], None]
) -> None:
    """Spark keeps the plan of the first query on a table, filters and all: so none are pushed unless asked for."""
    pushdown("true")
    table = _table(spark, directory)
    assert table.where("offset = 5").count() == 3
    assert table.count() == 12 * 22
    assert table.where("offset = 5").unionAll(table.where("offset = 6")).count() == 6
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING penstock OPTIONS (path '{directory}', subscribe 't,u')")
    assert spark.sql("SELECT * FROM v WHERE offset = 5").count() == 3
    assert spark.sql("SELECT * FROM v").count() == 12 * 22


def test_times_are_pushed_down_in_the_time_zone_of_the_session(
    spark: SparkSession, directory: Path, pushdown: Callable[[str], None]
) -> None:
    pushdown("true")
    expected = _table(spark, directory).where("timestamp >= '2026-01-01 00:00:05Z'").count()
    assert 0 < expected < 12 * 22
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        table = _table(spark, directory, pushFilters="true")
        assert table.where("timestamp >= '2025-12-31 19:00:05'").count() == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_row_groups_that_cannot_hold_what_is_wanted_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    with penstock.open(tmp_path, clock=clock, min_free_bytes=0) as broker:
        broker.create_topic("t", retention_age=None)
        for _ in range(4):
            broker.publish_many("t", [b"x"] * 70_000)  # three row groups
            clock.advance(10)
            broker.settle()
    opened: list[SegmentReader] = []
    real = open_segment

    def remembered(*arguments: Any) -> SegmentReader:
        opened.append(real(*arguments))
        return opened[-1]

    monkeypatch.setattr(slices, "open_segment", remembered)

    def read(*filters: Any) -> tuple[int, int, int]:
        """Rows, segments and row groups that were read."""
        opened.clear()
        rows = sum(map(len, Planned(FULL, filters, path=tmp_path, subscribe="t").tables()))
        return rows, len(opened), sum(reader.row_groups_read for reader in opened)

    at = penstock.model.units.to_datetime(clock.START_US + 15_000_000)
    assert read()[0] == 280_000
    assert read(EqualTo(("offset",), 100_000)) == (1, 1, 1)
    assert read(In(("offset",), (5, 6))) == (2, 1, 1)
    assert read(GreaterThanOrEqual(("offset",), 209_999), LessThan(("offset",), 210_001)) == (2, 2, 2)
    assert read(LessThan(("timestamp",), at))[::2] == (140_000, 7)
    assert read(GreaterThanOrEqual(("timestamp",), at), LessThan(("offset",), 150_000)) == (10_000, 1, 1)
    assert read(EqualTo(("partition",), 3)) == (0, 0, 0)
    assert read(EqualTo(("topic",), "u")) == (0, 0, 0)


def test_filters_reach_the_planning_although_spark_thinks_that_the_reader_takes_none(
    spark: SparkSession, directory: Path, pushdown: Callable[[str], None]
) -> None:
    """Spark fails reads of a source with its own `pushFilters` while pushdown is off: ours looks like Spark's."""
    options = {"path": str(directory), "subscribe": "t,u", "pushFilters": "true"}
    reader = PenstockDataSource(options).reader(FULL)
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters  # type: ignore[attr-defined]
    assert type(reader).pushFilters is DataSourceReader.pushFilters
    tasks = {}
    for on in ("false", "true"):
        pushdown(on)
        frame = _table(spark, directory, pushFilters="true", minPartitions=10).where("offset = 3")
        tasks[on] = frame.rdd.getNumPartitions()
        assert frame.count() == 3
    assert tasks["true"] <= 3 < 10 <= tasks["false"]
