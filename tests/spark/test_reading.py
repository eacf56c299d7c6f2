"""Batch reads through Spark: exactly the rows of the range, the same on every path, or an error that says why not."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import penstock
from penstock.shard.reading.layouts import topic_layout
from penstock.storage.read_only import ReadOnlyStorage
from tests.sharding import home_of
from tests.spark.harness import ALL, FULL, Served, columns_of, of_all_kinds, rows_of, stored


def _read(spark: SparkSession, schema: StructType | str | None = ALL, **options: Any) -> DataFrame:
    reader = spark.read.format("penstock").options(**{name: str(value) for name, value in options.items()})
    return (reader if schema is None else reader.schema(schema)).load()


def _fill(server: Served, tmp_path: Path) -> list[penstock.StoredMessage]:
    """Topics in segments and journal, with an empty partition, and one with a single message."""
    client = server.client
    client.create_topic("a", partitions=3, archive=str(tmp_path / "archive"))
    client.create_topic("empty", partitions=2)
    client.publish_many("a", of_all_kinds(400, delayed=False))
    client.publish("one", b"\x00\xff", key=b"\xfe", headers={"": "x"}, priority="high")
    client.settle()
    client.publish_many("a", of_all_kinds(200, 400))
    client.publish_many("b", [penstock.Message(f"{n}", key="") for n in range(10)])
    return [message for topic in ("a", "b", "one", "empty") for message in client.read(topic)]


def test_a_topic_that_is_spread_over_shards_is_one_table(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data", shards=3, min_free_bytes=0) as broker:
        broker.create_topic("orders", partitions=7, spread=3, max_deliveries=1)
        broker.publish_many("orders", [penstock.Message(f"settled-{n}", key=f"{n}") for n in range(60)])
        broker.settle()
        broker.publish_many("orders", [penstock.Message(f"new-{n}", key=f"{n}") for n in range(60)])
        with broker.consumer("orders", "g") as consumer:
            for message in consumer.receive(5):
                message.kill("never")
        expected = stored(list(broker.read("orders")))
        letters = {str(letter.id) for letter in broker.dead_letters("orders")}
        (group, *_) = broker.groups("orders")
    assert len({row[FULL.fieldNames().index("partition")] for row in expected}) == 7
    assert rows_of(_read(spark, path=tmp_path / "data", subscribe="orders")) == expected
    where = {"path": tmp_path / "data", "subscribe": "orders"}
    found = _read(spark, None, **where, table="dead_letters").collect()
    assert {row.message_id for row in found} == letters
    (row,) = _read(spark, None, **where, table="groups").collect()
    assert (row.group, row.published, row.dead, row.positions) == ("g", 120, 5, list(group.positions))


def test_L2_every_column_of_every_row_is_what_the_broker_gives_on_every_path(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = "a,b,one,empty"
    with Served(tmp_path / "data") as server, penstock.connect(server.address) as client:
        server.client = client
        messages = _fill(server, tmp_path)
        expected = stored(messages)
        assert rows_of(_read(spark, servers=server.address, subscribe=topics)) == expected
        for row in rows_of(_read(spark, columns_of("message_id value"), servers=server.address, subscribe="a")):
            identity = penstock.MessageId.parse(row[0])
            assert identity in {m.id for m in messages if m.value == row[1]}
        default = _read(spark, None, servers=server.address, subscribe=topics)
        kafka = ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
        assert default.columns == [*kafka, "priority", "deliver_at", "message_id"]
        assert rows_of(default.select(*FULL.fieldNames())) == stored(messages, 10)
        with monkeypatch.context() as patched:  # as executors on another machine see it: no file is there
            elsewhere = ReadOnlyStorage("/nowhere")
            patched.setattr("penstock.cluster.topics.topic_layout", lambda topic, _: topic_layout(topic, elsewhere))
            assert "/nowhere/" in client.layout("a").messages[0].segments[0].path
            assert rows_of(_read(spark, servers=server.address, subscribe=topics)) == expected
    assert rows_of(_read(spark, path=tmp_path / "data", subscribe=topics)) == expected
    with penstock.open(tmp_path / "data", min_free_bytes=0) as broker:
        broker.settle()
        broker.configure_topic("a", retention_bytes=0)
        assert broker.retain() > 0
        archived = stored(m for m in broker.read("a", include_deleted=True) if m.offset < _first(broker, m.partition))
    assert len(archived) > 300
    assert rows_of(_read(spark, path=tmp_path / "archive", subscribe="a")) == archived
    deleted = _read(spark, path=tmp_path / "data", subscribe=topics, includeDeleted=True)
    assert rows_of(deleted) == expected


def _first(broker: penstock.Broker, partition: int) -> int:
    return broker.layout("a").messages[partition].first


def test_S1_ranges_of_several_topics_are_read_exactly(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    messages = _fill(server, tmp_path)
    start = {"a": {"0": 3, "2": -1}, "b": {"0": 2}}
    end = {"a": {"0": 60, "1": -1}, "b": {"0": 7}, "one": {"0": -2}}
    ends = {number: sum(m.topic == "a" and m.partition == number for m in messages) for number in range(3)}
    expected = stored(
        [
            m
            for m in messages
            if (m.topic == "a" and m.partition == 0 and 3 <= m.offset < 60)
            or (m.topic == "a" and m.partition == 1)
            or (m.topic == "b" and 2 <= m.offset < 7)
        ]
    )
    options = {"servers": server.address, "startingOffsets": json.dumps(start), "endingOffsets": json.dumps(end)}
    assert len(expected) == 57 + ends[1] + 5
    frame = _read(spark, subscribePattern="[a-z]*", minPartitions=1, **options)
    assert rows_of(frame) == expected
    assert frame.count() == len(expected)
    assert frame.rdd.getNumPartitions() == 1
    frame = _read(spark, subscribe="b", minPartitions=1000, servers=server.address)
    assert rows_of(frame) == stored(m for m in messages if m.topic == "b")
    assert frame.rdd.getNumPartitions() == 10
    assert _read(spark, servers=server.address, subscribe="empty").count() == 0
    assert _read(spark, servers=server.address, subscribe="one").count() == 1
    assert _read(spark, servers=server.address, assign='{"a": [1]}').count() == ends[1]


def test_S1_S2_a_topic_that_grows_while_spark_reads_it_gives_the_rows_of_one_instant(
    spark: SparkSession, server: Served
) -> None:
    server.client.create_topic("t", partitions=2)
    server.client.publish_many("t", of_all_kinds(1000))
    stopping = threading.Event()

    def grow() -> None:
        for turn in range(100_000):
            if stopping.is_set():
                break
            server.client.publish_many("t", [f"{turn}.{n}" for n in range(50)])
            if turn % 10 == 5:
                server.client.settle()

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        frame = _read(spark, servers=server.address, subscribe="t", minPartitions=4)
        rows = rows_of(frame)
        again = rows_of(frame)
    finally:
        stopping.set()
        thread.join()
    assert rows == again
    assert len(rows) >= 1000
    for number in (0, 1):
        offsets = [row[2] for row in rows if row[1] == number]
        assert offsets == [*range(len(offsets))]
    everything = {row[:3]: row for row in stored(server.client.read("t"))}
    assert all(everything[row[:3]] == row for row in rows)


def test_S1_a_thousand_topics_are_read_by_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    with Served(tmp_path, broker={"sync": "never"}) as server, penstock.connect(server.address) as client:
        for number in range(1000):
            client.publish_soon(f"t{number:03}", str(number))
        client.flush()
        started_s = time.monotonic()
        found = _read(spark, columns_of("topic value"), servers=server.address, subscribePattern=r"t\d+")
        assert rows_of(found) == sorted((f"t{n:03}", b"%d" % n) for n in range(1000))
        assert found.rdd.getNumPartitions() == 1
        assert time.monotonic() - started_s < 30
        assert _read(spark, None, servers=server.address, subscribePattern="t00.").count() == 10


def test_L2_values_of_ten_megabytes_are_read(spark: SparkSession, server: Served) -> None:
    values = [bytes([n]) * 10_000_000 for n in range(4)]
    server.client.publish_many("t", values[:2])
    server.client.settle()
    server.client.publish("t", values[2])
    server.client.publish("t", values[3])
    frame = _read(spark, "offset BIGINT, value BINARY", servers=server.address, subscribe="t")
    found = frame.selectExpr("offset", "length(value)", "md5(value)").collect()
    from hashlib import md5

    assert sorted(map(tuple, found)) == [(n, 10_000_000, md5(v).hexdigest()) for n, v in enumerate(values)]


def test_S4_what_retention_removed_fails_the_query_with_what_is_missing(spark: SparkSession, server: Served) -> None:
    client = server.client
    client.create_topic("t")
    for turn in range(3):
        client.publish_many("t", [f"{turn}.{n}" for n in range(10)])
        client.settle()
    frame = _read(spark, servers=server.address, subscribe="t")
    assert frame.count() == 30  # it is planned, and keeps its plan
    client.configure_topic("t", retention_bytes=1)
    assert client.retain() == 3
    client.publish("t", "after")
    with pytest.raises(Exception, match=r"30 of the 30 messages of t/0 from 0 to 29 are gone"):
        frame.count()
    explicit = {"servers": server.address, "subscribe": "t", "startingOffsets": '{"t": {"0": 7}}'}
    with pytest.raises(Exception, match=r"t/0 from 7 to 29"):
        _read(spark, **explicit).count()
    assert _read(spark, failOnDataLoss=False, **explicit).count() == 1
    assert _read(spark, servers=server.address, subscribe="t").count() == 1


@pytest.mark.parametrize("where", ["server", "directory", "archive"])
def test_L9_a_damaged_segment_is_never_served(spark: SparkSession, tmp_path: Path, where: str) -> None:
    with penstock.open(tmp_path / "data", min_free_bytes=0) as broker:
        broker.publish_many("t", of_all_kinds(300))
        broker.settle()
    topics = home_of(tmp_path / "data", "t") / "topics"
    (file,) = topics.glob("t/messages/0/*.parquet")
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 3] ^= 4
    file.write_bytes(damaged)
    if where == "archive":
        shutil.copytree(topics, tmp_path / "archive")
    told = "does not match its checksum"
    if where == "server":
        with Served(tmp_path / "data") as server, pytest.raises(Exception, match=told):
            _read(spark, servers=server.address, subscribe="t").collect()
        return
    path = tmp_path / ("data" if where == "directory" else "archive")
    with pytest.raises(Exception, match=told):
        _read(spark, path=path, subscribe="t").collect()
