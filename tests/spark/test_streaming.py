"""Queries of a real Spark: stopped and started again from their checkpoints, they read every offset once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app
from tests.server.harness import until
from tests.spark.streams import Recorder, Served, finish, serving, start, stream_of


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data") as server:
        yield server


def test_S3_a_query_goes_on_where_it_was_with_other_limits_settled_files_and_new_topics(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    served.client.create_topic("t-a", partitions=3)
    served.fill("t-a", 50, 7, 0)
    sink, checkpoint = Recorder(), tmp_path / "checkpoint"
    options = {"subscribePattern": "t-.*", "startingOffsets": "earliest"}
    first = stream_of(spark, served.address, **options, maxMessagesPerTrigger=20)
    finish(start(first, checkpoint, sink))
    assert [len(batch) for batch in sink.batches.values()] == [20, 20, 17]

    served.fill("t-a", 30, 0, 4)
    sink.fails_in = 4
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        finish(start(first, checkpoint, sink))
    assert max(sink.batches) == 3
    before = sink.total()
    served.client.settle()  # what the failed batch was to read from the journal is in files now
    served.client.create_topic("t-b", partitions=2)
    served.fill("t-b", 5, 6)
    served.fill("t-a", 1, 1, 1)
    sink.fails_in = None
    second = stream_of(spark, served.address, **options, maxMessagesPerTrigger=1000)
    progress = finish(start(second, checkpoint, sink)).lastProgress
    assert len(sink.batches[4]) == 14, "the batch that had failed is the same, whatever the limits are now"
    assert sum((Counter(sink.batches[n]) for n in sink.batches if n > 3), before) == served.places("t-a", "t-b")
    assert sink.total() == served.places("t-a", "t-b")

    assert progress is not None
    ends = {"t-a": {"0": 81, "1": 8, "2": 5}, "t-b": {"0": 5, "1": 6}}
    assert json.loads(progress.sources[0].endOffset) == json.loads(progress.sources[0].latestOffset) == ends
    assert progress.sources[0].startOffset is not None


def test_S3_S6_a_running_query_reads_what_comes_and_its_lag_is_seen(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    served.client.create_topic("orders", partitions=2)
    served.fill("orders", 10, 10)
    sink, checkpoint = Recorder(), tmp_path / "checkpoint"
    frame = stream_of(spark, served.address, subscribe="orders", startingOffsets="earliest")
    query = start(frame, checkpoint, sink, processingTime="50 milliseconds")
    try:
        for _ in range(3):
            until(lambda: sink.total() == served.places("orders"), "the batch")
            served.fill("orders", 5)
        until(lambda: sum(sink.total().values()) == 35)
        until(lambda: served.lag("orders", "spark-orders") == 0, "the lag of 0")
    finally:
        query.stop()
    served.fill("orders", 8)
    group = served.client.group("orders", "spark-orders")
    assert (group.lag, group.kind) == (8, "checkpoint")
    listed = CliRunner().invoke(app, ["group", "list", "--server", served.address])
    assert "spark-orders" in listed.output, listed.output
    named = stream_of(spark, served.address, subscribe="orders", group="etl:orders")
    finish(start(named, checkpoint, sink))
    assert sink.total() == served.places("orders")
    assert served.lag("orders", "etl:orders") == 0
    assert served.lag("orders", "spark-orders") == 8


def test_a_query_of_what_is_there_ends_although_the_topic_grows(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    served.client.create_topic("t")
    served.fill("t", 10)
    there = served.places("t")
    sink = Recorder()
    sink.may_go_on.clear()
    frame = stream_of(spark, served.address, subscribe="t", startingOffsets="earliest", maxMessagesPerTrigger=4)
    query = start(frame, tmp_path / "checkpoint", sink)
    assert sink.began.wait(60)
    served.fill("t", 10)
    sink.may_go_on.set()
    finish(query)
    assert sink.total() == there
    sink = Recorder()
    finish(start(frame, tmp_path / "once", sink, once=True))
    assert [len(batch) for batch in sink.batches.values()] == [20], "all at once, whatever the limit is"


def test_S4_a_query_whose_messages_were_removed_fails_and_says_which(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    served.client.create_topic("t")
    served.fill("t", 10)
    sink, checkpoint = Recorder(), tmp_path / "checkpoint"
    frame = stream_of(spark, served.address, subscribe="t", startingOffsets="earliest")
    finish(start(frame, checkpoint, sink))
    served.fill("t", 10)
    served.expire("t")
    served.fill("t", 3)
    with pytest.raises(StreamingQueryException, match="t/0 from 10 to 19"):
        finish(start(frame, checkpoint, sink))
    finish(start(stream_of(spark, served.address, subscribe="t", failOnDataLoss="false"), checkpoint, sink))
    assert sink.total() == Counter(("t", 0, offset) for offset in [*range(10), 20, 21, 22])


def test_S3_a_query_of_events_reads_each_once(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    served.client.create_topic("t", partitions=2)
    served.fill("t", 5, 5)
    sink, checkpoint = Recorder(), tmp_path / "checkpoint"
    frame = stream_of(spark, served.address, subscribe="t", table="events", startingOffsets="earliest")
    for _ in range(2):
        with served.client.consumer("t", "g") as consumer:
            for delivery in consumer.receive(5):
                delivery.ack()
        finish(start(frame, checkpoint, sink))
        served.client.settle()
    events = served.client.layout("t").events
    assert sink.total() == Counter(("t", log.partition, n) for log in events for n in range(log.first, log.end))
    assert sum(log.end - log.first for log in events) > 10
