"""A server of several processes and a directory in shards, as Spark sees them: one server, one directory.

Single processes are killed, and shards moved, while streams read and write topics of all shards: every row is there
once.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.client import Client
from penstock.model.errors import ConnectionLost
from penstock.model.placement import shard_of
from penstock.model.processes import ClusterInfo
from penstock.spark import read_events, read_topic, topics
from penstock.spark.source import PenstockDataSource
from penstock.spark.writing import StreamWriter
from tests.server.harness import Child, until
from tests.spark.harness import ALL, FULL, of_all_kinds, rows_of, stored
from tests.spark.streams import Recorder, disconnect, finish, start, stream_of
from tests.spark.test_writing import Context, batch_of, schema_of

pytestmark = pytest.mark.crash
SHARDS, PROCESSES = 4, 2
ROWS = "topic STRING, value STRING"
EXPECTED = ("ConnectionLost", "RequestTimeout", "StageNotFound", "BrokerClosed")
"""Errors that a query may end with while a process is replaced; it is started again from its checkpoint."""


def _of_each_shard(name: str) -> list[str]:
    """A topic in each shard, by the number of the shard."""
    names = [f"{name}-{n}" for n in range(100)]
    return [next(topic for topic in names if shard_of(topic, SHARDS) == shard) for shard in range(SHARDS)]


SOURCES, TARGETS = _of_each_shard("source"), _of_each_shard("target")


class Server(Child):
    """Several processes, with a client that is connected to one of them."""

    client: Client

    def cluster(self) -> ClusterInfo:
        """How it stands when every shard is open, asked of a process that is alive."""

        def ask() -> ClusterInfo | None:
            with contextlib.suppress(ConnectionLost), Client(self.address, timeout=5) as client:
                found = client.cluster()
                return found if all(shard.state == "open" for shard in found.shards) else None
            return None

        found: ClusterInfo = until(ask, "all shards are open")
        return found

    def fill(self, first: int, count: int) -> None:
        """Publish so many numbers, in turns to the topics of all shards."""
        for place, topic in enumerate(SOURCES):
            self.client.publish_many(topic, [f"{n}" for n in range(first + place, first + count, SHARDS)])

    def copies(self) -> Counter[bytes]:
        """What the targets hold, and how often; all of it at its place."""
        found: Counter[bytes] = Counter()
        for place, topic in enumerate(TARGETS):
            values = [message.value for message in self.client.read(topic)]
            assert {int(value) // 7 % SHARDS for value in values} == {place}
            found.update(values)
        return found


@contextlib.contextmanager
def serving(path: Path) -> Iterator[Server]:
    with Server(path, "--shards", str(SHARDS), "--processes", str(PROCESSES)) as server:
        try:
            with Client(server.address) as client:
                server.client = client
                yield server
        finally:
            disconnect(server.address)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "data") as running:
        yield running


def numbers(count: int) -> Counter[bytes]:
    """Each once."""
    return Counter(b"%d" % n for n in range(count))


# Reading.


def test_S1_S2_topics_of_all_shards_are_read_through_processes_and_without_a_server(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "data")
    with serving(tmp_path / "data") as server:
        client, chosen = server.client, {"servers": server.address, "subscribePattern": "source-.*"}
        for topic in SOURCES:
            client.create_topic(topic, partitions=2)
            client.publish_many(topic, of_all_kinds(60, delayed=False))
        client.settle()
        for more, topic in enumerate(SOURCES):
            client.publish_many(topic, of_all_kinds(10 + more, 60))
            with client.consumer(topic, "g") as consumer:
                consumer.ack(consumer.receive(5))
        expected = stored(message for topic in SOURCES for message in client.read(topic))
        assert len(expected) == 60 * SHARDS + 10 + 11 + 12 + 13
        frame = spark.read.format("penstock").schema(ALL).options(**chosen, minPartitions="9").load()
        assert rows_of(frame) == expected
        client.settle()
        assert rows_of(frame) == expected, "where they were when it was planned, or where they are now"
        for topic in SOURCES:
            of_topic = [row[:10] for row in expected if row[0] == topic]
            assert rows_of(read_topic(spark, topic, servers=server.address).select(*FULL.fieldNames())) == of_topic
            events = read_events(spark, topic, servers=server.address).where("kind = 'acked'")
            assert sum(row["count"] for row in events.collect()) == 5
        groups = (
            spark.read.format("penstock").options(**chosen, table="groups").load().select("topic", "group", "acked")
        )
        assert sorted(map(tuple, groups.collect())) == sorted((topic, "g", 5) for topic in SOURCES)
        client.publish_many(SOURCES[0], ["in the journal", "too"])
        expected = stored(message for topic in SOURCES for message in client.read(topic))
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    frame = spark.read.format("penstock").schema(ALL).options(path=path, subscribe=",".join(SOURCES)).load()
    assert rows_of(frame) == expected
    assert rows_of(read_topic(spark, SOURCES[0], path=path).select(*FULL.fieldNames())) == [
        row[:10] for row in expected if row[0] == SOURCES[0]
    ]
    ends = topics(spark, path=path).groupBy("topic").sum("end_offset")
    assert dict(map(tuple, ends.collect())) == Counter(row[0] for row in expected)


def test_S3_S6_a_stream_of_topics_in_all_shards_reads_each_once_and_its_lag_is_seen(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    sink = Recorder()
    server.fill(0, 100)
    options = {"subscribePattern": "source-.*", "startingOffsets": "earliest", "group": "reader"}
    for number in range(2):
        frame = stream_of(spark, server.address, **options, maxMessagesPerTrigger=40)
        finish(start(frame, tmp_path / "checkpoint", sink))
        places = [(m.topic, m.partition, m.offset) for topic in SOURCES for m in server.client.read(topic)]
        assert len(places) == 100 + 60 * number
        assert sink.total() == Counter(places)
        assert [server.client.group(topic, "reader").lag for topic in SOURCES] == [0] * SHARDS
        server.fill(100, 60)
    assert [server.client.group(topic, "reader").lag for topic in SOURCES] == [15] * SHARDS


# Writing.


def _copy(spark: SparkSession, server: Server, checkpoint: Path, limit: int) -> StreamingQuery:
    """A query that copies all sources, each row to the target that its value tells."""
    frame = stream_of(
        spark,
        server.address,
        subscribe=",".join(SOURCES),
        startingOffsets="earliest",
        group="copier",
        maxMessagesPerTrigger=limit,
    )
    place = f"CAST(CAST(CAST(value AS STRING) AS INT) / 7 AS INT) % {SHARDS} + 1"
    targets = ", ".join(f"'{topic}'" for topic in TARGETS)
    rows = frame.selectExpr("value", f"element_at(array({targets}), {place}) AS topic")
    writer = rows.writeStream.format("penstock").option("servers", server.address)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def test_S3_S5_a_stream_writes_to_topics_of_all_shards_once(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    server.fill(0, 200)
    finish(_copy(spark, server, checkpoint, 70))
    assert server.copies() == numbers(200)
    server.fill(200, 100)
    finish(_copy(spark, server, checkpoint, 70))
    assert server.copies() == numbers(300)
    assert [server.client.group(topic, "copier").lag for topic in SOURCES] == [0] * SHARDS


def _kill_some(server: Server, chance: random.Random, ending: threading.Event) -> int:
    """Kill three processes, one after the other, unless it ends before; how many."""
    for done in range(3):
        if ending.wait(chance.uniform(0.5, 3.0)):
            return done
        os.kill(chance.choice(server.cluster().processes).pid, signal.SIGKILL)
    return 3


def _move_some(server: Server, chance: random.Random, ending: threading.Event) -> int:
    """Move shards, one after the other, unless it ends before; how many."""
    for done in range(20):
        if ending.wait(chance.uniform(0.1, 1.0)):
            return done
        shard = chance.choice(server.cluster().shards)
        server.client.move_shard(shard.number, 1 - shard.process)
    return 20


@pytest.mark.parametrize("disturb", [_kill_some, _move_some])
def test_S3_S5_C12_processes_are_killed_or_shards_moved_and_a_stream_loses_and_doubles_nothing(
    spark: SparkSession, server: Server, tmp_path: Path, disturb: Callable[..., int]
) -> None:
    server.fill(0, 1600)
    ending, failures = threading.Event(), 0
    with ThreadPoolExecutor() as threads:
        disturbed = threads.submit(disturb, server, random.Random(11), ending)
        try:
            while True:
                try:
                    finish(_copy(spark, server, tmp_path / "checkpoint", 100))
                    break
                except StreamingQueryException as error:
                    told, failures = str(error), failures + 1
                    assert any(kind in told for kind in EXPECTED), told
                    assert failures < 20
                    server.cluster()  # with no process at all, the next one would fail as well
        finally:
            ending.set()
    assert disturbed.result(), "the stream was over too soon"
    server.cluster()
    assert server.copies() == numbers(1600)
    until(lambda: not any(server.client.group(topic, "copier").lag for topic in SOURCES), "the end of the lag")


class Epochs:
    """Runs the tasks of epochs and ends them, as Spark does."""

    def __init__(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._address, self._monkeypatch = address, monkeypatch

    def writer(self) -> StreamWriter:
        writer = PenstockDataSource({"servers": self._address}).streamWriter(schema_of(ROWS), False)  # noqa: FBT003
        assert isinstance(writer, StreamWriter)
        return writer

    def stage(self, values: list[str]) -> list[WriterCommitMessage]:
        """Two tasks with a row for each target and value."""
        done = []
        for place in range(2):
            self._monkeypatch.setattr(TaskContext, "get", lambda place=place: Context("q", place))
            rows = [(topic, value) for topic in TARGETS for value in values[place::2]]
            done.append(self.writer().write(iter([batch_of(ROWS, rows)])))
        return done

    def write(self, epoch: int, values: list[str]) -> None:
        """An epoch from its tasks to its end."""
        self.writer().commit(self.stage(values), epoch)


def test_S5_an_epoch_that_was_published_in_one_shard_only_is_completed_by_its_retry(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, first = tmp_path / "data", ["a", "b", "c"]
    with penstock.open(path, shards=SHARDS, min_free_bytes=0) as broker:
        for topic in TARGETS:
            broker.stage_many("s", topic, first)
        broker.seal_stage("s")
        shard = broker.shards.of(TARGETS[0])
        shard.staging.publish_staged(["s"], "spark-q", 0)  # and here everything ends
    found = spark.read.format("penstock").options(path=str(path), subscribePattern="target-.*").load()
    assert {row["topic"] for row in found.collect()} == {TARGETS[0]}, "what a reader sees between two parts"
    with serving(path) as server:
        epochs = Epochs(server.address, monkeypatch)
        for epoch, values in ((0, first), (0, first), (1, ["d"]), (0, ["never seen"]), (1, ["d"])):
            epochs.write(epoch, values)
        for topic in TARGETS:
            assert sorted(m.value for m in server.client.read(topic)) == [b"a", b"b", b"c", b"d"]


@pytest.mark.usefixtures("spark")
def test_S5_C12_an_epoch_is_completed_when_a_process_that_stops_in_it_is_replaced(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, victim = server.cluster().processes
    address = f"127.0.0.1{asked.address}"
    epochs = Epochs(address, monkeypatch)
    for topic in TARGETS:
        server.client.create_topic(topic)
    done = epochs.stage(["a", "b"])
    os.kill(victim.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor() as threads, Client(address) as client:
            committed = threads.submit(epochs.writer().commit, done, 0)
            topic = TARGETS[asked.shards[0]]
            until(lambda: [*client.read(topic, 0)], "the part of the process that runs is seen")
            assert not committed.done(), "the other part is still to come"
            committed.result()  # once the supervisor has replaced the other process
    finally:
        disconnect(address)
    assert server.cluster().processes[victim.number].pid != victim.pid
    epochs.writer().commit(done, 0)
    for topic in TARGETS:
        assert sorted(m.value for m in server.client.read(topic)) == [b"a", b"b"]
