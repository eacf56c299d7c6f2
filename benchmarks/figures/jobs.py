"""Jobs and pipelines on Spark, each beside a bare Spark job on the same data, in the same run."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import TYPE_CHECKING

import penstock
from benchmarks.bench import Bench
from benchmarks.cluster import Cluster
from benchmarks.lives import Stream, fill_consumed, write_csv
from benchmarks.rows import Row, Target, compare
from benchmarks.sparks import TOPIC, fill, quiet_session, seconds_of, segments_of, serving, to_nowhere
from benchmarks.verify import check_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.jobs import Place

_LOADED = (Target("ratio", ">=", 0.4), Target("measured", ">=", 150_000))
_COPIED = Target("ratio", ">=", 0.5)
_AUDITED, _TRACED = Target("ratio", "<=", 3), Target("ratio", "<=", 6)
_SUSTAINED = Target("measured", ">=", 100_000)
_SCALED = Target("ratio", ">=", 1.6)
_RATE = 105_000  # what is published beside the pipeline
_PIPELINE = """
server: {server}
checkpoints: {checkpoints}
settings: {{spark.master: "local[2]", spark.ui.enabled: "false", spark.sql.shuffle.partitions: 2}}
pipelines:
  copied:
    sources:
      orders:
        topic: source
        max_per_trigger: 400000
        value: json
        schema: id BIGINT, customer STRING, amount DOUBLE
    steps:
      - {{name: priced, sql: "SELECT id, customer, amount * 1.19 AS gross FROM orders"}}
    sinks:
      target: {{from: priced, topic: target, key: customer}}
"""


def run(bench: Bench) -> list[Row]:
    with quiet_session() as spark:
        rows = [_load(bench, spark), *_archive_and_audit(bench, spark), _trace_report(bench, spark)]
    return [*rows, _pipeline(bench), _scaling(bench)]


def _load(bench: Bench, spark: SparkSession) -> Row:
    from penstock.spark.jobs import Place, load

    count, pairs = bench.size(5_000_000, 20_000), []
    with bench.scratch() as path, serving(path / "data") as server:
        file = path / "orders.csv"
        write_csv(file, count)
        for number in range(bench.size(3, 1)):
            bare = to_nowhere(spark.read.option("header", "true").csv(str(file)))
            place, topic = Place(servers=server), f"loaded-{number}"
            seconds = seconds_of(partial(load, spark, place, [str(file)], topic))
            with penstock.connect(server) as client:
                check_count("messages loaded", sum(part.end_offset for part in _topic(client, topic)), count)
            pairs.append((count / seconds, count / bare))
    what = f"Jobs: load of {count:,} rows of CSV, durable, once"
    return compare(what, "messages/s", pairs, "Spark reads the same CSV into a noop sink", *_LOADED)


def _topic(client: penstock.Client, name: str) -> tuple[penstock.PartitionInfo, ...]:
    return next(info.partitions for info in client.topics() if info.name == name)


def _archive_and_audit(bench: Bench, spark: SparkSession) -> list[Row]:
    from penstock.spark.jobs import Place, archive

    count = bench.size(20_000_000, 20_000)
    copies, audits = [], []
    with bench.scratch() as path:
        fill(path / "data", count)
        place, files = Place(path=str(path / "data")), segments_of(path / "data")
        for number in range(bench.size(3, 1)):
            bare = seconds_of(partial(spark.read.parquet(*files).write.parquet, str(path / f"copy-{number}")))
            lake = str(path / f"lake-{number}")
            seconds = seconds_of(partial(archive, spark, place, [TOPIC], lake))
            check_count("messages in the lake", _rows_in(spark, lake), count)
            copies.append((count / seconds, count / bare))
            bare = _hashed(spark, files)
            audits.append((seconds_of(partial(_audit, spark, place)), bare))
    return [
        compare(f"Jobs: archive of {count:,} messages", "messages/s", copies, "Spark copies the same Parquet", _COPIED),
        compare(f"Jobs: audit of {count:,} messages", "s", audits, "Spark sums a hash of every column", _AUDITED),
    ]


def _audit(spark: SparkSession, place: Place) -> None:
    from penstock.spark.jobs import audit

    check_count("audits that found everything whole", int(audit(spark, place, [TOPIC]).whole), 1)


def _rows_in(spark: SparkSession, lake: str) -> int:
    from penstock.spark import read_topic

    return read_topic(spark, TOPIC, path=lake).count()


def _hashed(spark: SparkSession, files: list[str]) -> float:
    """How long a bare scan takes that sums a hash of every column."""
    frame = spark.read.parquet(*files)
    maps = [name for name, kind in frame.dtypes if kind.startswith("map")]
    columns = [f"map_entries({name})" if name in maps else f"`{name}`" for name in frame.columns]
    total = f"sum(CAST(xxhash64({', '.join(columns)}) AS DECIMAL(38, 0)))"
    return seconds_of(lambda: frame.selectExpr(total).collect())


def _trace_report(bench: Bench, spark: SparkSession) -> Row:
    from penstock.spark.jobs import Place, trace_report

    count, pairs = bench.size(10_000_000, 20_000), []
    with bench.scratch() as path:
        fill_consumed(path / "data", count)
        place = Place(path=str(path / "data"))
        files = sorted(map(str, (path / "data" / "topics" / TOPIC / "events").glob("*/*.parquet")))
        for number in range(bench.size(5, 1)):
            bare = _hashed(spark, files)
            out = str(path / f"report-{number}")
            pairs.append((seconds_of(partial(trace_report, spark, place, [TOPIC], out)), bare))
    what = f"Jobs: trace-report of {count:,} messages"
    return compare(what, "s", pairs, "Spark sums a hash of every column of the events", _TRACED)


def _pipeline(bench: Bench) -> Row:
    """A stream goes on while a pipeline copies it to another topic: how much that is a second, and how far behind."""
    seconds, rate = bench.size(40, 3), bench.size(_RATE, 2_000)
    with bench.scratch() as path, serving(path / "data") as server, penstock.connect(server) as client:
        client.create_topic("source")
        client.create_topic("target")
        file = path / "pipeline.yaml"
        file.write_text(_PIPELINE.format(server=server, checkpoints=path / "checkpoints"))
        client.publish_many("source", ['{"id": 0, "customer": "first", "amount": 1.0}'])
        with _running(file):
            _until(lambda: _end(client, "target") > 0)
            through, lags = _follow(client, Stream(server, "source", rate), seconds, bench.size(20, 1))
    half = len(lags) // 2
    early, late = max(lags[:half]), max(lags[half:])
    note = f"beside {rate:,}/s published; at most {early:,} behind in the first half, {late:,} in the second"
    return Row(
        f"Pipeline: topic to topic for {seconds} s",
        "messages/s",
        through,
        targets=(_SUSTAINED,),
        note=note,
        details={"lags": lags, "published_rate": rate},
    )


def _follow(client: penstock.Client, stream: Stream, seconds: float, warm_s: float) -> tuple[float, list[int]]:
    """How much comes through a second, and how far behind it is meanwhile, once everything is warm."""
    with stream:
        sleep(warm_s)
        began_s, first, lags = monotonic(), _end(client, "target"), []
        while (passed_s := monotonic() - began_s) < seconds:
            sleep(0.5)
            lags.append(stream.published - _end(client, "target"))
        return (_end(client, "target") - first) / passed_s, lags


def _end(client: penstock.Client, topic: str) -> int:
    return sum(part.end_offset for part in _topic(client, topic))


@contextlib.contextmanager
def _running(file: Path) -> Iterator[None]:
    """`penstock pipeline run` beside what is measured."""
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(file)]
    with (file.parent / "pipeline.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError((file.parent / "pipeline.log").read_text()[-2000:])
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
        process.wait()


def _until(happened: Callable[[], bool]) -> None:
    deadline_s = monotonic() + 180
    while not happened():
        if monotonic() > deadline_s:
            raise RuntimeError("the pipeline does not begin")
        sleep(0.1)


def _scaling(bench: Bench) -> Row:
    """The same audit on a cluster with one worker and with two, of one core each."""
    count, took, gains = bench.size(20_000_000, 20_000), {}, []
    warm, rounds = bench.size(2, 0), bench.size(4, 1)
    with bench.scratch() as path, Cluster(bench.place(), 2) as cluster:
        fill(path / "data", count)
        for workers in (1, 2):  # the other one has nothing to do
            gains.append(_gain(bench.size(40, 1)))
            took[workers] = _audit_seconds(cluster.address, path / "data", workers, warm, rounds)
    gains.append(_gain(bench.size(40, 1)))
    shown = ", ".join(f"{gain:.2f}" for gain in gains)
    return Row(
        f"Jobs: audit of {count:,} with 2 workers, how many times as fast",
        "",
        took[1] / took[2],
        1.0,
        "with 1 worker",
        (_SCALED,),
        f"{took[1]:.1f} s and {took[2]:.1f} s; what two plain processes do at once, of what one does: {shown}",
    )


def _gain(rounds: int) -> float:
    """What the machine's second core is worth at this moment, to programs that share nothing."""
    code = f"b = bytes(range(256)) * 40_000\nfor _ in range({rounds}): sum(b[::7])"

    def run(processes: int) -> float:
        started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(processes)]
        return seconds_of(lambda: [process.wait() for process in started])

    return 2 * run(1) / run(2)


def _audit_seconds(master: str, data: Path, workers: int, warm: int, rounds: int) -> float:
    """The median of some audits in a session, without the first ones: Java gets quicker with each."""
    from penstock.spark.jobs import Place
    from penstock.spark.sessions import job_session

    settings = {
        "spark.cores.max": str(workers),
        "spark.executor.memory": "1536m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    }
    spark = job_session(master, settings)
    try:
        took = [seconds_of(partial(_audit, spark, Place(path=str(data)))) for _ in range(warm + rounds)]
        return median(took[warm:])
    finally:
        spark.stop()
