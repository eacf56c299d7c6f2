"""What the tests of streams and of writing share: servers, readers asked as Spark asks them, queries, drivers."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.client import Client
from penstock.spark import connecting
from penstock.spark.source import PenstockDataSource
from penstock.spark.streaming import StreamReader
from tests.server.harness import Running

PATIENCE_S = 60
Place = tuple[str, int, int]
"""Topic, partition, offset."""
Offset = dict[str, Any]


class Served(Running):
    """A server in a thread of its own, and a client of it."""

    client: Client
    path: Path

    def staged(self) -> list[str]:
        """The files of stages that are there."""
        return sorted(path.name for path in self.path.rglob("staging/*"))

    def places(self, *topics: str) -> Counter[Place]:
        """Every message that can be read, once."""
        return Counter((m.topic, m.partition, m.offset) for topic in topics for m in self.client.read(topic))

    def values(self, topic: str) -> list[bytes]:
        return [message.value for message in self.client.read(topic)]

    def fill(self, topic: str, *counts: int) -> None:
        """Publish so many messages to each partition."""
        for partition, count in enumerate(counts):
            for start in range(0, count, 1000):
                numbers = range(start, min(count, start + 1000))
                self.client.publish_many(
                    topic, [penstock.Message(f"{topic}.{partition}.{n}", partition=partition) for n in numbers]
                )

    def expire(self, topic: str) -> None:
        """Have retention remove everything that is there."""
        self.client.settle()
        self.client.configure_topic(topic, retention_age=0)
        assert self.client.retain() > 0
        self.client.configure_topic(topic, retention_age="7d")

    def lag(self, topic: str, group: str) -> int:
        return self.client.group(topic, group).lag


@contextlib.contextmanager
def serving(path: Path, port: int = 0, **options: Any) -> Iterator[Served]:
    """A server, with a client connected."""
    with Served(path, port, **options) as server, Client(server.address) as client:
        server.path, server.client = path, client
        try:
            yield server
        finally:
            disconnect(server.address)


def disconnect(address: str) -> None:
    """Close what the data source keeps open in this process."""
    for place in [place for place in connecting._clients if place[0] == address]:
        connecting._clients.pop(place).close()


# Readers without Spark: what it would ask of them, in the order in which it does.


def reader_of(address: str, **options: Any) -> StreamReader:
    source = PenstockDataSource({"servers": address, **{name: str(value) for name, value in options.items()}})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, StreamReader)
    return reader


def rows_of(reader: StreamReader, start: Offset, end: Offset) -> list[Place]:
    """What a micro-batch reads: offsets come out of JSON, and everything is sent to the tasks, as Spark does it."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    found: list[Place] = []
    position = "event" if reader._options.table == "events" else "offset"
    for part in pickle.loads(pickle.dumps(list(reader.partitions(start, end)))):
        for batch in pickle.loads(pickle.dumps(reader)).read(part):
            found += [(row["topic"], row["partition"], row[position]) for row in batch.to_pylist()]
    return found


def drain(reader: StreamReader, start: Offset | None = None, limit: ReadLimit | None = None) -> list[list[Place]]:
    """Batches until there is nothing new; what each of them read."""
    at = reader.initialOffset() if start is None else start
    limit = limit or reader.getDefaultReadLimit()
    batches: list[list[Place]] = []
    while (end := reader.latestOffset(at, limit)) != at:
        batches.append(rows_of(reader, at, end))
        reader.commit(end)
        at = end
    return batches


def total(batches: list[list[Place]]) -> Counter[Place]:
    """What some batches read together, and how often."""
    return Counter(place for batch in batches for place in batch)


# Queries.


def stream_of(spark: SparkSession, address: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("penstock").option("servers", address)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


class Recorder:
    """A sink that keeps what each micro-batch had; it can be told to fail in the middle of one, or to wait."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Place]] = {}
        self.fails_in: int | None = None
        self.began = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def __call__(self, frame: DataFrame, number: int) -> None:
        rows = frame.collect()
        self.began.set()
        assert self.may_go_on.wait(PATIENCE_S)
        if self.fails_in == number:
            raise RuntimeError("the sink fails in the middle of a batch")
        position = "event" if "event" in frame.columns else "offset"
        self.batches[number] = [(row["topic"], row["partition"], row[position]) for row in rows]

    def total(self) -> Counter[Place]:
        return total([*self.batches.values()])


def start(frame: DataFrame, checkpoint: Path, sink: Recorder, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def finish(query: StreamingQuery) -> StreamingQuery:
    """Wait until it has ended by itself; raises what it failed with."""
    try:
        assert query.awaitTermination(PATIENCE_S), "the query does not end"
    finally:
        query.stop()
    return query


def copy(
    spark: SparkSession, address: str, source: str, target: str, checkpoint: Path, **options: Any
) -> StreamingQuery:
    """A query that copies a topic to another, as far as it is there now."""
    frame = stream_of(spark, address, subscribe=source, startingOffsets="earliest", **options).select("key", "value")
    writer = frame.writeStream.format("penstock").option("servers", address).option("topic", target)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


# Drivers in processes of their own.


def drive(script: Path, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a driver to its end, whatever that is."""
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=120,
    )
