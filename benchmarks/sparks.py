"""What the figures of Spark share: a session, a filled topic, a server, and ways to measure."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from time import perf_counter, sleep
from typing import TYPE_CHECKING

import penstock
from benchmarks.load import BATCH, values
from benchmarks.verify import check_count
from penstock.bench.own import OwnServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "orders"
_KEYS = 1000
_UNSETTLED = {
    "PENSTOCK_BROKER_SEGMENT_MIN_BYTES": "1GiB",
    "PENSTOCK_BROKER_JOURNAL_FILES_MAX": "1000",
    "PENSTOCK_BROKER_MAX_UNSETTLED_BYTES": "72GiB",
}
"""Of the server: what is published stays in the journal."""


def fill(path: Path, count: int) -> None:
    """A topic with so many messages with keys, all settled."""
    with penstock.open(path) as broker:
        fill_broker(broker, count)


def fill_broker(broker: penstock.Broker, count: int) -> None:
    """The same, of a broker that is open."""
    every = [penstock.Message(value, key=f"customer-{n % _KEYS}") for n, value in enumerate(values())]
    batches = [every[start : start + BATCH] for start in range(0, len(every), BATCH)]
    for number in range(count // BATCH):
        broker.publish_many(TOPIC, batches[number % len(batches)])
    broker.settle()


def segments_of(path: Path) -> list[str]:
    """The segment files of the topic."""
    return sorted(map(str, (path / "topics" / TOPIC / "messages").glob("*/*.parquet")))


@contextlib.contextmanager
def serving(path: Path) -> Iterator[str]:
    """A server on the directory, which settles nothing by itself; its address."""
    before = {name: os.environ.get(name) for name in _UNSETTLED}
    os.environ.update(_UNSETTLED)
    try:
        with OwnServer(path) as server:
            yield server.address
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def publish_tail(server: str, topic: str, count: int) -> None:
    """Messages that are in the journal."""
    every = values()
    with penstock.connect(server) as client:
        for start in range(0, count, BATCH):
            place = start % (len(every) - BATCH + 1)
            client.publish_many(topic, every[place : place + BATCH])


@contextlib.contextmanager
def quiet_session() -> Iterator[SparkSession]:
    """Spark on two cores of this machine, with its defaults but for the sockets between Python and Java."""
    from penstock.spark import session

    spark = session(
        "penstock benchmarks",
        master="local[2]",
        settings={
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "3g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.noDataProgressEventInterval": "0",
            "spark.python.unix.domain.socket.enabled": "true",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def seconds_of(work: Callable[[], object]) -> float:
    """How long something takes."""
    start = perf_counter()
    work()
    return perf_counter() - start


def to_nowhere(frame: DataFrame) -> float:
    """How long it takes to have all rows and columns of a frame."""
    return seconds_of(lambda: frame.write.format("noop").mode("overwrite").save())


def stream_seconds(spark: SparkSession, source: dict[str, str], place: Path, count: int) -> float:
    """How long a stream takes from the beginning to the end of what is there."""
    frame = spark.readStream.format("penstock").options(**source, startingOffsets="earliest").load()
    start = perf_counter()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(place)).trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = perf_counter() - start
    check_count("messages streamed", sum(progress["numInputRows"] for progress in query.recentProgress), count)
    return seconds


def idle_seconds(frame: DataFrame, place: Path, triggers: int) -> float:
    """How long triggers take, on average, that find nothing new; Spark counts whole milliseconds, here from 1 on."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(place)).start()
    idle: list[float] = []
    try:
        seen = -1
        while len(idle) < triggers:
            progress = query.lastProgress
            if progress is None or progress["timestamp"] == seen:
                sleep(0.001)
                continue
            seen = progress["timestamp"]
            if progress["numInputRows"] == 0 and "addBatch" not in progress["durationMs"]:
                idle.append(max(1, progress["durationMs"]["triggerExecution"]) / 1000)
    finally:
        query.stop()
    return mean(idle)
