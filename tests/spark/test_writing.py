"""Writing: rows become messages, all of them or none; an epoch that comes again is written once."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.model.errors import ConnectionLost, InvalidArgument, LimitExceeded, PenstockError, StageNotFound
from penstock.spark import connecting
from penstock.spark.source import PenstockDataSource
from penstock.spark.writing import BatchWriter, Staged, StreamWriter
from tests.server.harness import until
from tests.spark.streams import Served, serving

pytestmark = pytest.mark.usefixtures("spark")  # it knows how schemas are written
VALUES = "value STRING"
Rows = list[tuple[Any, ...]]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data", broker={"max_value_bytes": "16MB"}) as server:
        yield server


class Context:
    """What a task knows of itself."""

    def __init__(self, query: str | None, place: int) -> None:
        self._query, self._place = query, place

    def getLocalProperty(self, name: str) -> str | None:
        return self._query if name == "sql.streaming.queryId" else None

    def partitionId(self) -> int:
        return self._place


def schema_of(words: str) -> StructType:
    schema = StructType.fromDDL(words)
    assert isinstance(schema, StructType)
    return schema


def batch_of(schema: str, rows: Rows) -> pa.RecordBatch:
    arrow = to_arrow_schema(schema_of(schema), timezone="UTC")
    columns = [pa.array([row[n] for row in rows], field.type) for n, field in enumerate(arrow)]
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def batch_writer(address: str, schema: str = VALUES, topic: str | None = "t") -> BatchWriter:
    options = {"servers": address} | ({} if topic is None else {"topic": topic})
    writer = PenstockDataSource(options).writer(schema_of(schema), False)  # noqa: FBT003
    assert isinstance(writer, BatchWriter)
    return writer


def write(address: str, schema: str, *tasks: Rows, topic: str | None = "t") -> None:
    """A batch write as Spark does it: each task has a copy of the writer, and so has the end."""
    pickled = pickle.dumps(batch_writer(address, schema, topic))
    done = [pickle.loads(pickled).write(iter([batch_of(schema, rows)])) for rows in tasks]
    pickle.loads(pickled).commit(pickle.loads(pickle.dumps(done)))


@pytest.fixture
def epoch(served: Served, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[WriterCommitMessage]]:
    """Runs the tasks of an epoch; what they tell the driver."""

    def run(*tasks: list[str], query: str | None = "q") -> list[WriterCommitMessage]:
        done = []
        for place, values in enumerate(tasks):
            monkeypatch.setattr(TaskContext, "get", lambda place=place: Context(query, place))
            rows = [(value,) for value in values]
            done.append(stream_writer(served).write(iter([batch_of(VALUES, rows)] if rows else [])))
        return done

    return run


def stream_writer(served: Served) -> StreamWriter:
    source = PenstockDataSource({"servers": served.address, "topic": "t"})
    writer = source.streamWriter(schema_of(VALUES), False)  # noqa: FBT003
    assert isinstance(writer, StreamWriter)
    return writer


# Epochs.


def test_S5_an_epoch_that_comes_again_is_written_once(
    served: Served, epoch: Callable[..., list[WriterCommitMessage]]
) -> None:
    writer = stream_writer(served)
    done = epoch(["a", "b"], ["c"])
    assert not served.client.topics(), "nothing is seen before the commit, not even the topic"
    writer.commit(done, 0)
    once = served.values("t")
    assert sorted(once) == [b"a", b"b", b"c"]
    writer.commit(done, 0)  # the same stages, which are gone
    writer.commit(epoch(["a", "b"], ["c"]), 0)  # other stages
    writer.commit(epoch(["c", "b", "a"]), 0)  # fewer tasks, another order
    writer.commit(epoch([], []), 0)
    assert served.values("t") == once
    assert served.staged() == []
    writer.commit(epoch(["d"]), 1)
    writer.commit(epoch(["never seen"]), 0)  # an epoch from before
    writer.commit(epoch([], []), 2)
    writer.commit(epoch(["not in an empty epoch"]), 2)
    writer.commit(epoch(["another query"], query="r"), 0)
    assert served.values("t") == [*once, b"d", b"another query"]
    assert served.staged() == []


def test_S5_of_the_attempts_of_a_task_only_the_one_that_counts_is_written(
    served: Served, epoch: Callable[..., list[WriterCommitMessage]]
) -> None:
    (first,), (second,) = epoch(["a"]), epoch(["a"])
    stream_writer(served).commit([second], 0)
    assert served.values("t") == [b"a"]
    stream_writer(served).abort([first, None], 0)
    stream_writer(served).abort([second], 0)
    assert served.values("t") == [b"a"]
    assert served.staged() == []


def test_S5_an_epoch_of_no_known_query_is_refused(
    served: Served, epoch: Callable[..., list[WriterCommitMessage]]
) -> None:
    with pytest.raises(InvalidArgument, match="does not know of which query"):
        stream_writer(served).commit(epoch(["a"], query=None), 0)
    with pytest.raises(InvalidArgument, match="does not know of which query"):
        stream_writer(served).commit([*epoch(["a"]), *epoch(["a"], query="other")], 0)
    stream_writer(served).commit([], 0)
    assert not served.client.topics()


def test_S5_an_epoch_whose_stages_are_not_there_any_more_is_not_taken_for_written(
    served: Served, epoch: Callable[..., list[WriterCommitMessage]]
) -> None:
    done = epoch(["a"], ["b"])
    assert isinstance(done[1], Staged)
    served.client.drop_staged([done[1].stage])
    with pytest.raises(StageNotFound, match="nothing was published"):
        stream_writer(served).commit(done, 0)
    assert not served.client.topics()
    stream_writer(served).commit(epoch(["a"], ["b"]), 0)
    assert sorted(served.values("t")) == [b"a", b"b"]


def test_S5_a_task_that_fails_leaves_nothing_behind(
    served: Served, epoch: Callable[..., list[WriterCommitMessage]]
) -> None:
    def half() -> Iterator[pa.RecordBatch]:
        yield batch_of(VALUES, [("a",)])
        assert served.staged()
        raise RuntimeError("the task fails")

    writer = stream_writer(served)
    with pytest.raises(RuntimeError, match="the task fails"):
        writer.write(half())
    assert served.staged() == []
    writer.abort([*epoch(["b"]), None], 0)
    assert served.staged() == []
    assert not served.client.topics()
    writer.commit(epoch(["a", "b"]), 0)
    assert served.values("t") == [b"a", b"b"]


def test_S5_an_abort_that_reaches_no_broker_does_not_hide_why_the_write_failed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "TASK_PATIENCE_S", 0.5)
    source = PenstockDataSource({"servers": "127.0.0.1:1", "topic": "t"})
    staged: list[WriterCommitMessage | None] = [Staged("spark-q-0-x", 1, "q"), None]
    writer = source.streamWriter(schema_of(VALUES), False)  # noqa: FBT003
    writer.abort(staged, 0)
    source.writer(schema_of(VALUES), False).abort(staged)  # noqa: FBT003
    assert caplog.text.count("could not be dropped") == 2
    with pytest.raises(ConnectionLost):
        writer.commit(staged, 0)


# Rows.

ALL = (
    "value BINARY, key STRING, headers MAP<STRING, STRING>, priority INT, deliver_at TIMESTAMP, "
    "partition INT, dedupe_id STRING, expires_in STRING"
)


def test_every_column_is_written_and_null_is_nothing(served: Served) -> None:
    served.client.create_topic("t", partitions=3)
    due = datetime(2026, 11, 20, 12, tzinfo=UTC)
    rows: Rows = [
        (b"\x00\xff", "k", [("a", "1"), ("b", None)], 0, due, 2, "id", "1h"),
        (b"", None, None, None, None, None, None, None),
        (b"x", None, [], 255, None, 2, "id", None),
    ]
    write(served.address, ALL, rows)
    found = {message.value: message for message in served.client.read("t")}
    assert set(found) == {b"\x00\xff", b""}, "the second of a dedupe id is dropped"
    full, empty = found[b"\x00\xff"], found[b""]
    assert (full.key, full.headers, full.priority, full.deliver_at) == (b"k", {"a": "1", "b": ""}, 0, due)
    assert (full.partition, full.dedupe_id) == (2, "id")
    assert full.expires_at is not None
    assert abs(full.expires_at - full.timestamp - timedelta(hours=1)) < timedelta(seconds=30)
    assert (empty.key, empty.headers, empty.priority, empty.deliver_at) == (None, None, 128, None)
    assert (empty.dedupe_id, empty.expires_at) == (None, None)


@pytest.mark.parametrize("kind", ["INT", "BIGINT", "DOUBLE", "FLOAT", "STRING"])
def test_delays_are_seconds_or_text(served: Served, kind: str) -> None:
    delay: Any = "90s" if kind == "STRING" else 90
    write(served.address, f"value STRING, delay {kind}, expires_in {kind}", [("a", delay, delay), ("b", None, None)])
    a, b = served.client.read("t")
    assert a.deliver_at is not None
    assert a.expires_at is not None
    assert abs(a.deliver_at - a.timestamp - timedelta(seconds=90)) < timedelta(seconds=30)
    assert abs(a.expires_at - a.timestamp - timedelta(seconds=90)) < timedelta(seconds=30)
    assert (b.deliver_at, b.expires_at) == (None, None)


def test_headers_may_be_what_kafkas_connector_has(served: Served) -> None:
    kafka = "value STRING, key BINARY, headers ARRAY<STRUCT<key STRING, value BINARY>>"
    pairs = [{"key": "a", "value": "é".encode()}, {"key": "b", "value": None}]
    write(served.address, kafka, [("x", b"k", pairs), ("y", None, None), ("z", b"", [])])
    assert [(m.key, m.headers) for m in served.client.read("t")] == [
        (b"k", {"a": "é", "b": ""}),
        (None, None),
        (b"", None),
    ]
    write(served.address, "value STRING, headers MAP<STRING, BINARY>", [("x", [("n", b"1")])], topic="u")
    assert [m.headers for m in served.client.read("u")] == [{"n": "1"}]
    with pytest.raises(InvalidArgument, match="header 'a' is not text"):
        write(served.address, kafka, [("x", None, [{"key": "a", "value": b"\xff"}])])


def test_rows_go_to_the_topics_of_their_column_in_the_order_of_each_task(served: Served) -> None:
    schema = "topic STRING, value STRING"
    tasks = [[(f"t{n % 3}", f"{task}.{n}") for n in range(300)] for task in range(2)]
    write(served.address, schema, *tasks, topic=None)
    for number in range(3):
        expected = [f"{task}.{n}".encode() for task in range(2) for n in range(300) if n % 3 == number]
        assert served.values(f"t{number}") == expected
    write(served.address, schema, [("left aside", "x")], topic="t0")
    assert served.values("t0")[-1] == b"x"
    with pytest.raises(InvalidArgument, match="a topic is NULL"):
        write(served.address, schema, [("t0", "a"), (None, "b")], topic=None)
    assert served.staged() == []


def test_a_write_of_nothing_writes_nothing(served: Served) -> None:
    write(served.address, VALUES)
    write(served.address, VALUES, [], [])
    batch_writer(served.address).abort([None])
    assert not served.client.topics()
    assert served.staged() == []


def test_large_values_are_written_whole_and_too_large_ones_not_at_all(served: Served) -> None:
    large = bytes(range(256)) * 40_000  # 10 MB
    write(served.address, "value BINARY", [(large,), (b"a",), (large,)], [(large + b".",)])
    assert served.values("t") == [large, b"a", large, large + b"."]
    with pytest.raises(LimitExceeded, match="max_value_bytes"):
        write(served.address, "value BINARY", [(b"fits",)], [(b"fits",), (large + large,)])
    assert len(served.values("t")) == 4


@pytest.mark.parametrize(
    ("schema", "row", "wrong"),
    [
        ("value STRING", (None,), "a value is NULL"),
        ("value STRING, priority INT", ("a", 256), "256 is not a priority"),
        ("value STRING, partition INT", ("a", 7), "7"),
        ("value STRING, delay DOUBLE", ("a", float("nan")), "nan"),
        ("value STRING, delay DOUBLE", ("a", -1.0), "-1"),
        ("value STRING, delay STRING", ("a", "soon"), "soon"),
        ("value STRING, expires_in INT", ("a", -5), "-5"),
        ("value STRING, dedupe_id STRING", ("a", ""), "dedupe"),
        ("value STRING, delay INT, deliver_at TIMESTAMP", ("a", 1, datetime(2027, 1, 1, tzinfo=UTC)), "delay"),
    ],
)
def test_a_row_that_cannot_be_a_message_fails_the_write_and_nothing_is_left(
    served: Served, schema: str, row: tuple[Any, ...], wrong: str
) -> None:
    served.client.create_topic("t", partitions=2)
    good = ("fine", *[None] * (len(row) - 1))
    with pytest.raises(PenstockError, match=wrong):
        write(served.address, schema, [good, row])
    assert served.values("t") == []
    assert served.staged() == []


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        ("key STRING", "there is no column value"),
        ("value INT", "value is BINARY or STRING, not INT"),
        ("value STRING, valve INT", "there is no column 'valve'"),
        ("value STRING, headers ARRAY<STRING>", "headers is MAP"),
        ("value STRING, headers MAP<STRING, INT>", "headers is MAP"),
        ("value STRING, headers ARRAY<STRUCT<name STRING, value BINARY>>", "headers is MAP"),
        ("value STRING, deliver_at STRING", "deliver_at is TIMESTAMP, not STRING"),
        ("value STRING, value STRING", "two columns value"),
    ],
)
def test_columns_that_cannot_be_written_are_told_before_anything_runs(schema: str, wrong: str) -> None:
    for make in (PenstockDataSource({"servers": "x:1", "topic": "t"}).writer, _stream_writer_of):
        with pytest.raises(InvalidArgument, match=wrong):
            make(schema_of(schema), False)  # noqa: FBT003
    with pytest.raises(InvalidArgument, match="no column topic, and no option topic"):
        batch_writer("x:1", topic=None)


def _stream_writer_of(schema: StructType, overwrite: bool) -> object:
    return PenstockDataSource({"servers": "x:1", "topic": "t"}).streamWriter(schema, overwrite)


def test_a_topic_is_not_overwritten() -> None:
    source = PenstockDataSource({"servers": "x:1", "topic": "t"})
    for make in (source.writer, source.streamWriter):
        with pytest.raises(InvalidArgument, match="a topic is a log"):
            make(schema_of(VALUES), True)  # noqa: FBT003


# On a real Spark.


def test_S5_a_frame_is_written_as_a_whole_and_in_order(spark: SparkSession, served: Served) -> None:
    served.client.create_topic("t", partitions=3, max_delay="9999d")
    rows = [(str(n), f"k{n % 5}", {"n": str(n)}, n % 3, datetime(2027, 1, 1, tzinfo=UTC)) for n in range(2000)]
    schema = "value STRING, key STRING, headers MAP<STRING, STRING>, partition INT, deliver_at TIMESTAMP"
    frame = (
        spark.createDataFrame(rows, schema).repartition(4, "partition").sortWithinPartitions(f.col("value").cast("INT"))
    )
    to_t = frame.write.format("penstock").mode("append").option("servers", served.address).option("topic", "t")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        to_t.save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    for number in range(3):
        found = list(served.client.read("t", number))
        assert [int(m.value) for m in found] == list(range(number, 2000, 3)), "the order of the task"
        assert {m.deliver_at for m in found} == {datetime(2027, 1, 1, tzinfo=UTC)}
        assert all(m.headers == {"n": m.value.decode()} for m in found)
    spark.createDataFrame([], schema).write.format("penstock").mode("append").options(
        servers=served.address, topic="nothing"
    ).save()
    assert [topic.name for topic in served.client.topics()] == ["t"]
    with pytest.raises(PySparkException, match="it takes more"):
        frame.write.format("penstock").mode("overwrite").options(servers=served.address, topic="t").save()
    with pytest.raises(PySparkException, match="there is no column 'valve'"):
        frame.withColumn("valve", f.lit(1)).write.format("penstock").mode("append").options(
            servers=served.address, topic="t"
        ).save()
    assert len(served.values("t")) == 2000


@pytest.mark.parametrize("fails", ["in the writer", "before it"])
def test_S5_a_frame_of_which_a_task_fails_leaves_nothing(spark: SparkSession, served: Served, fails: str) -> None:
    value = "IF(id = 1777, NULL, id)" if fails == "in the writer" else "IF(id = 1777, raise_error('no'), id)"
    frame = spark.range(0, 2000, numPartitions=1).selectExpr(f"CAST({value} AS STRING) AS value")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        with pytest.raises(PySparkException, match="a value is NULL" if fails == "in the writer" else "no"):
            frame.write.format("penstock").mode("append").options(servers=served.address, topic="t").save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert not served.client.topics()
    until(lambda: served.staged() == [], "the end of all stages")
