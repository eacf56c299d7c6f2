"""Spark: topics read and written through the data source, beside Spark's own Parquet reader on the same files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bench import Bench
from benchmarks.rows import Row, Target, alone, compare
from benchmarks.sparks import (
    TOPIC,
    fill,
    idle_seconds,
    publish_tail,
    quiet_session,
    seconds_of,
    segments_of,
    serving,
    stream_seconds,
    to_nowhere,
)
from benchmarks.verify import check_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ALL, _QUICKLY = (Target("ratio", ">=", bound) for bound in (0.6, 0.9))
_FIVE, _TWO = (Target("measured", ">=", bound) for bound in (500_000, 200_000))
_BARE = "spark.read.parquet on the same segments"
Reading = Callable[["DataFrame"], object]
_QUESTIONS: dict[str, Reading] = {
    "count": lambda frame: frame.count(),
    "sum of one column": lambda frame: frame.selectExpr("sum(priority)").collect(),
    "groupBy(key)": lambda frame: frame.groupBy("key").count().collect(),
}


def run(bench: Bench) -> list[Row]:
    count, rounds = bench.size(10_000_000, 20_000), range(bench.size(3, 1))
    rows: list[Row] = []
    with bench.scratch() as path:
        fill(path, count)
        with quiet_session() as spark, serving(path) as server:
            source = {"servers": server, "subscribe": TOPIC}
            native, ours = _frames(spark, path, source)
            check_count("rows read by Spark", ours().count(), count)
            pairs = [(count / to_nowhere(ours()), count / to_nowhere(native())) for _ in rounds]
            rows.append(compare(f"Spark: {count:,} settled, all columns", "messages/s", pairs, _BARE, _ALL))
            rows += [_question(spark, name, ask, native, server, count, bench) for name, ask in _QUESTIONS.items()]
            rows.append(_tail(spark, server, bench))
            rates = [count / stream_seconds(spark, source, bench.place(), count) for _ in rounds]
            rows.append(alone(f"Spark: stream, availableNow, {count:,}", "messages/s", rates, _FIVE))
            rows.append(_idle(spark, source, bench))
            rows.append(_write(spark, server, bench))
    return [*rows, *_growth(bench)]


def _frames(
    spark: SparkSession, path: Path, source: dict[str, str]
) -> tuple[Callable[[], DataFrame], Callable[[], DataFrame]]:
    files = segments_of(path)
    return lambda: spark.read.parquet(*files), lambda: spark.read.format("penstock").options(**source).load()


def _question(
    spark: SparkSession,
    name: str,
    ask: Reading,
    native: Callable[[], DataFrame],
    server: str,
    count: int,
    bench: Bench,
) -> Row:
    from penstock.spark import read_topic

    pairs = []
    for _ in range(bench.size(11, 1)):
        theirs = seconds_of(lambda: ask(native()))
        pairs.append((count / seconds_of(lambda: ask(read_topic(spark, TOPIC, servers=server))), count / theirs))
    return compare(f"Spark: read_topic, {name}", "messages/s", pairs, _BARE, _QUICKLY)


def _tail(spark: SparkSession, server: str, bench: Bench) -> Row:
    count = bench.size(2_000_000, 5_000)
    publish_tail(server, "tail", count)
    source = {"servers": server, "subscribe": "tail"}
    rates = []
    for _ in range(bench.size(3, 1)):
        frame = spark.read.format("penstock").options(**source).load()
        rates.append(count / to_nowhere(frame))
    return alone(f"Spark: the live tail, {count:,}, all columns", "messages/s", rates, _FIVE)


def _idle(spark: SparkSession, source: dict[str, str], bench: Bench) -> Row:
    """How long a trigger takes that finds nothing to do."""
    triggers = bench.size(100, 5)
    ours = idle_seconds(
        spark.readStream.format("penstock").options(**source, startingOffsets="latest").load(), bench.place(), triggers
    )
    theirs = idle_seconds(spark.readStream.format("rate").option("rowsPerSecond", 1).load(), bench.place(), triggers)
    return compare(
        "Spark: a micro-batch with nothing to do", "s", [(ours, theirs)], "the rate source", Target("ratio", "<=", 1.0)
    )


def _write(spark: SparkSession, server: str, bench: Bench) -> Row:
    count = bench.size(2_000_000, 5_000)
    rates = []
    for number in range(bench.size(3, 1)):
        frame = spark.range(count).selectExpr("repeat(chr(65 + id % 26), 100) AS value")
        writer = frame.write.format("penstock").option("servers", server).option("topic", f"written-{number}")
        rates.append(count / seconds_of(writer.mode("append").save))
        read = spark.read.format("penstock").options(servers=server, subscribe=f"written-{number}").load()
        check_count("messages written by Spark", read.count(), count)
    return alone(f"Spark: write, {count:,}, durable, exactly once", "messages/s", rates, _TWO)


def _growth(bench: Bench) -> list[Row]:
    """Time for each message, from few to many: it should not grow."""
    sizes = (bench.size(0, 1) and [5_000, 20_000]) or [100_000, 1_000_000, 10_000_000, 30_000_000]
    times: dict[int, float] = {}
    with quiet_session() as spark:
        for count in sizes:
            with bench.scratch() as path:
                fill(path, count)
                source = {"path": str(path), "subscribe": TOPIC}
                frame = spark.read.format("penstock").options(**source).load()
                times[count] = min(to_nowhere(frame) for _ in range(3)) / count
    rows = []
    for count in sizes[1:]:
        row = Row(
            f"Spark: time for each of {count:,} messages",
            "s",
            times[count],
            times[sizes[0]],
            f"for each of {sizes[0]:,}",
            (Target("ratio", "<=", 1.2),),
        )
        rows.append(row)
    return rows
