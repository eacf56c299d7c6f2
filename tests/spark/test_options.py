"""Every wrong option is told, all of them at once; and the data source is found."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.model.errors import InvalidArgument
from penstock.spark.options import read_options
from penstock.spark.source import PenstockDataSource
from tests.server.harness import free_port
from tests.spark.harness import FULL, Planned, Served, columns_of

GOOD = {"servers": "localhost:9000", "subscribe": "t"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "give `servers`"),
        ({"path": "/x"}, "one of the two"),
        ({"subscribe": None}, "give one of `subscribe`, `subscribePattern` and `assign`"),
        ({"assign": '{"t": [0]}'}, "give one of `subscribe`, `subscribePattern` and `assign`"),
        ({"subscribe": " , "}, "there is no topic in it"),
        ({"subscribe": None, "subscribePattern": "a("}, "not a regular expression"),
        ({"subscribe": None, "assign": "t"}, "assign: 't' is"),
        ({"subscribe": None, "assign": "[1]"}, "not a JSON object"),
        ({"subscribe": None, "assign": '{"t": []}'}, "the partitions of 't' are a list"),
        ({"subscribe": None, "assign": '{"t": [true]}'}, "the partitions of 't' are a list"),
        ({"subscribe": None, "assign": '{"t": [-1]}'}, "the partitions of 't' are a list"),
        ({"table": "message"}, "'message' is none of messages, events, dead_letters, groups"),
        ({"startingOffsets": "soon"}, "neither earliest, latest nor JSON"),
        ({"startingOffsets": "latest"}, "leaves nothing for a batch read"),
        ({"endingOffsets": "earliest"}, "endingOffsets: earliest leaves nothing"),
        ({"startingOffsets": '{"t": 5}'}, "give offsets by partition"),
        ({"startingOffsets": '{"t": {"x": 5}}'}, "give offsets by partition"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "give offsets by partition"),
        ({"startingOffsets": '{"t": {"0": 1.5}}'}, "give offsets by partition"),
        ({"startingOffsets": '{"t": {"²": 1}}'}, "give offsets by partition"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp: 'yesterday' is not a point in time"),
        ({"startingTimestamp": "2026-01-01T00:00:00"}, "is not a point in time"),
        ({"endingTimestamp": "-5"}, "endingTimestamp: '-5' is not a point in time"),
        ({"endingTimestamp": "99999999999999999"}, "after the year 9999"),
        ({"endingTimestamp": "²"}, "is not a point in time"),
        ({"minPartitions": "0"}, "minPartitions: '0' is not a whole number from 1"),
        ({"minPartitions": "many"}, "minPartitions: 'many' is not a whole number"),
        ({"minPartitions": "²"}, "minPartitions: '²' is not a whole number"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: 'maybe' is none of true, false"),
        ({"includeDeleted": ""}, None),
        ({"pushFilters": "1"}, "pushFilters: '1' is none of true, false"),
        ({"maxMessagesPerTrigger": "5"}, "maxMessagesPerTrigger: it is for streams"),
        ({"group": "g"}, "group: it is for streams"),
        ({"table": "events", "startingTimestamp": "5"}, "events go by their numbers"),
        ({"startingOffset": "earliest"}, "there is no option 'startingoffset', did you mean startingOffsets?"),
        ({"server": "x"}, "there is no option 'server', did you mean servers?"),
        ({"zzz": "x"}, "there is no option 'zzz'; there are servers, path, token, tls, ca, subscribe"),
    ],
)
def test_a_wrong_option_is_told(options: dict[str, Any], told: str | None) -> None:
    given = {name: value for name, value in {**GOOD, **options}.items() if value is not None}
    if not options:
        given = {}
    if told is None:
        read_options(given, streaming=False)
        return
    with pytest.raises(InvalidArgument) as raised:
        read_options(given, streaming=False)
    assert told in str(raised.value)


def test_all_that_is_wrong_is_told_at_once_and_names_are_taken_in_any_case() -> None:
    wrong = {"minpartitions": "x", "FAILONDATALOSS": "y", "startingoffsets": "z", "subscibe": "t"}
    with pytest.raises(InvalidArgument) as raised:
        read_options(wrong, streaming=False)
    lines = str(raised.value).splitlines()
    assert len(lines) == 7
    for told in ("minPartitions: 'x'", "failOnDataLoss: 'y'", "startingOffsets: 'z'", "mean subscribe?", "`servers`"):
        assert any(told in line for line in lines), told
    found = read_options({"SERVERS": "h:1", "SubScribe": "a,b", "MINPARTITIONS": "7"}, streaming=False)
    assert (found.servers, found.topics, found.min_partitions) == ("h:1", ("a", "b"), 7)


def test_what_a_stream_cannot_have_is_told() -> None:
    given = {**GOOD, "endingOffsets": "latest", "endingTimestamp": "5", "table": "groups", "pushFilters": "true"}
    with pytest.raises(InvalidArgument) as raised:
        read_options(given, streaming=True)
    for told in ("endingOffsets: a stream", "endingTimestamp: a stream", "table: groups cannot", "pushFilters: Spark"):
        assert told in str(raised.value)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("colour STRING", "there is no column colour"),
        ("offset STRING", "offset is BIGINT, not STRING"),
        ("Offset BIGINT, value BINARY", "there is no column Offset"),
        ("offset BIGINT, key STRING, x INT", "key is BINARY, not STRING; there is no column x"),
    ],
)
def test_a_wrong_schema_is_told(spark: SparkSession, tmp_path: Path, schema: str, told: str) -> None:
    given = spark.createDataFrame([], schema).schema
    with pytest.raises(InvalidArgument) as raised:
        PenstockDataSource({"path": str(tmp_path), "subscribe": "t"}).reader(given)
    assert told in str(raised.value)
    assert "The columns are key BINARY, value BINARY" in str(raised.value)


def test_the_errors_reach_whoever_asks_spark(spark: SparkSession, server: Served) -> None:
    def fails(told: str, **options: Any) -> None:
        with pytest.raises(Exception, match=told):
            spark.read.format("penstock").options(**options).load().collect()

    fails("there is no topic 'nowhere'", servers=server.address, subscribe="nowhere")
    fails("did you mean subscribe", servers=server.address, subscribed="t")
    fails("none of messages, events", servers=server.address, subscribe="t", table="x")
    fails("there is no directory '/nowhere'", path="/nowhere", subscribe="t")
    started_s = time.monotonic()
    fails("no Penstock server answers at 127.0.0.1", servers=f"127.0.0.1:{free_port()}", subscribe="t")
    assert time.monotonic() - started_s < 15


def test_a_directory_that_is_none_is_told(tmp_path: Path, server: Served) -> None:
    with pytest.raises(InvalidArgument, match=r"neither a data directory .* nor an archive"):
        Planned(FULL, (), path=tmp_path, subscribe="t")
    with pytest.raises(penstock.DirectoryLocked, match="servers="):
        Planned(FULL, (), path=tmp_path / "data", subscribe="t")


def test_a_session_finds_the_source_without_registration(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish("t", "x")
    fresh = spark.newSession()  # which knows nothing of what was registered in others
    rows = fresh.read.format("penstock").options(path=str(tmp_path), subscribe="t").load().collect()
    assert [bytes(row.value) for row in rows] == [b"x"]


def test_planning_again_and_again_keeps_no_file_open(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish("t", "x")
    options = {"path": str(tmp_path), "subscribe": "t"}
    descriptors = Path("/proc/self/fd")
    before = len([*descriptors.iterdir()])
    for _ in range(20):
        Planned(columns_of("offset"), (), **options)
    assert len([*descriptors.iterdir()]) <= before + 1
