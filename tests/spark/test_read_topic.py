"""`read_topic` gives what the data source gives, with Spark's own reader for what is settled; and the helpers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.model.errors import InvalidArgument
from penstock.spark import DataLoss, from_json, infer_schema, read_topic, topics
from tests.sharding import home_of
from tests.spark.harness import FULL, Served, of_all_kinds, rows_of, stored

COLUMNS = FULL.fieldNames()


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return rows_of(frame.select(*COLUMNS))


def _files(frame: DataFrame) -> int:
    """How many segments Spark reads by itself."""
    return len(frame.inputFiles())


def _fill(client: Any, archive: Path, topic: str = "t") -> None:
    client.create_topic(topic, partitions=3, archive=str(archive))
    client.publish_many(topic, of_all_kinds(300, delayed=False))
    client.settle()
    client.publish_many(topic, of_all_kinds(300, 300, delayed=False))
    client.settle()
    client.publish_many(topic, of_all_kinds(100, 600))


def test_S1_L2_read_topic_gives_what_the_data_source_gives(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "partition=7 data"  # a name that Spark would make a column of
    with Served(data) as server, penstock.connect(server.address) as client:
        _fill(client, tmp_path / "archive", "_u")
        _fill(client, tmp_path / "archive")
        client.create_topic("empty", partitions=2)
        middle = [*client.read("t", 1)][250]  # of the second segment
        cuts: list[dict[str, Any]] = [
            {},
            {"startingOffsets": '{"t": {"0": 20, "1": 130, "2": -1}}', "endingOffsets": '{"t": {"0": 70, "1": -1}}'},
            {"STARTINGTIMESTAMP": middle.timestamp.isoformat(), "minPartitions": 3},
            {"endingtimestamp": middle.timestamp.isoformat()},
            {"endingOffsets": '{"t": {"0": 0, "1": 0, "2": 1}}'},
        ]
        everything = stored(client.read("t"), 10)
        for options in cuts:
            frame = read_topic(spark, "t", servers=server.address, **options)
            direct = server.table(spark, subscribe="t", **options)
            assert frame.columns == direct.columns
            assert frame.dtypes == direct.dtypes
            found = _rows(frame)
            assert found == _rows(direct)
            assert (found == everything) == (not options)
        whole = read_topic(spark, "t", servers=server.address)
        assert _files(whole) == 6
        several = read_topic(spark, "t,_u,empty", servers=server.address)
        assert _rows(several) == stored([*client.read("t"), *client.read("_u")], 10)
        assert _rows(read_topic(spark, "empty", servers=server.address)) == []
        assert whole.where("key = 'key 1' AND offset < 50").count() == sum(
            row[4] == b"key 1" and row[2] < 50 for row in everything
        )
    assert _rows(read_topic(spark, "t", path=str(data))) == everything
    with penstock.open(data, min_free_bytes=0) as broker:
        broker.configure_topic("t", retention_bytes=0)
        assert broker.retain() == 6
    for include, count in ((True, 700), (False, 100)):
        frame = read_topic(spark, "t", path=str(data), includeDeleted=include)
        assert frame.count() == count
        assert _files(frame) == (6 if include else 0)
    assert read_topic(spark, "t", path=str(tmp_path / "archive")).count() == 600


def test_S4_read_topic_tells_what_is_gone(spark: SparkSession, server: Served) -> None:
    client = server.client
    client.create_topic("t")
    for turn in range(3):
        client.publish_many("t", [f"{turn}.{n}" for n in range(10)])
        client.settle()
    planned = read_topic(spark, "t", servers=server.address)
    resigned = read_topic(spark, "t", servers=server.address, failOnDataLoss=False)
    client.configure_topic("t", retention_bytes=1)
    assert client.retain() == 3
    client.publish("t", "after")
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
        planned.count()
    assert resigned.count() == 0
    start = '{"t": {"0": 5}}'
    with pytest.raises(DataLoss, match="t/0 from 5 to 29"):
        read_topic(spark, "t", servers=server.address, startingOffsets=start)
    assert read_topic(spark, "t", servers=server.address, startingOffsets=start, failOnDataLoss=False).count() == 1


@pytest.mark.parametrize("part", [0.1, 0.35, 0.7, 0.97])
def test_L9_read_topic_serves_no_damaged_segment(spark: SparkSession, tmp_path: Path, part: float) -> None:
    with penstock.open(tmp_path, min_free_bytes=0) as broker:
        broker.publish_many("t", [json.dumps({"number": n, "square": n * n}) for n in range(3000)])
        broker.settle()
    (file,) = home_of(tmp_path, "t").glob("topics/t/messages/0/*.parquet")
    damaged = bytearray(file.read_bytes())
    damaged[int(len(damaged) * part)] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(Exception, match=r"(?i)checksum|crc|corrupt|could not"):
        read_topic(spark, "t", path=str(tmp_path)).select("value", "offset", "timestamp").toArrow()


def test_a_directory_whose_name_looks_like_a_pattern_is_read(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data[1]*{a}", min_free_bytes=0) as broker:
        broker.publish_many("t", of_all_kinds(50))
        broker.settle()
        expected = stored(broker.read("t"), 10)
    assert _rows(read_topic(spark, "t", path=str(tmp_path / "data[1]*{a}"))) == expected


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"table": "events"}, "read_topic reads messages, not events"),
        ({"subscribe": "u"}, "the topic is given already"),
        ({"subscribePattern": "u"}, "give one of `subscribe`"),
        ({"maxMessagesPerTrigger": 5}, "it is for streams"),
        ({"startingoffset": "earliest"}, "did you mean startingOffsets?"),
        ({"startingOffsets": "latest"}, "leaves nothing"),
    ],
)
def test_wrong_options_are_told(spark: SparkSession, tmp_path: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        read_topic(spark, "t", path=str(tmp_path), **options)
    assert told in str(raised.value)


def test_topics_are_listed_with_their_partitions(spark: SparkSession, tmp_path: Path) -> None:
    with Served(tmp_path / "data") as server, penstock.connect(server.address) as client:
        assert topics(spark, servers=server.address).count() == 0
        _fill(client, tmp_path / "archive")
        client.create_topic("empty")
        expected = [
            (topic, log.partition, log.first, log.end, log.settled_end, len(log.segments))
            for topic in ("empty", "t")
            for log in client.layout(topic).messages
        ]
        assert rows_of(topics(spark, servers=server.address).drop("segment_bytes")) == expected
        assert topics(spark, servers=server.address).where("segment_bytes > 0").count() == 3
    assert rows_of(topics(spark, path=str(tmp_path / "data")).drop("segment_bytes")) == expected


def test_json_becomes_columns(spark: SparkSession, server: Served) -> None:
    client = server.client
    client.publish_many("t", [json.dumps({"n": n, "name": f"x{n}", "tags": ["a"]}) for n in range(10)])
    client.publish("t", "no json")
    client.publish("plain", "no json")
    client.publish("plain", "neither")
    frame = read_topic(spark, "t", servers=server.address)
    schema = infer_schema(frame.where("offset < 10"))
    assert schema.simpleString() == "struct<n:bigint,name:string,tags:array<string>>"
    assert from_json(frame, schema).selectExpr("sum(data.n)").collect()[0][0] == 45
    given = from_json(frame, "n INT", into="parsed")
    assert given.where("parsed.n = 7").count() == 1
    assert given.where("parsed.n IS NULL").count() == 1
    assert "data" in from_json(frame.where("offset < 10")).columns
    with pytest.raises(InvalidArgument, match="holds no JSON objects"):
        from_json(read_topic(spark, "plain", servers=server.address))
    with pytest.raises(InvalidArgument, match="nothing in column key"):
        infer_schema(frame, column="key")
    stream = spark.readStream.format("penstock").options(servers=server.address, subscribe="t").load()
    with pytest.raises(InvalidArgument, match="schema of a stream cannot be inferred"):
        from_json(stream)
