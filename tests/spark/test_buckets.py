"""Spark reads a bucket with no server, while owners go on and follow one another."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock.spark
from penstock.embedded.broker import Broker
from penstock.model.errors import InvalidArgument, NotOwner
from penstock.spark.batch import LogReader
from penstock.spark.errors import DataLoss
from penstock.spark.options import read_options
from penstock.spark.tables import schema_of
from penstock.storage.buckets import open_objects
from penstock.storage.object_directory import DirectoryObjects
from penstock.testing.seaweed import BUCKET
from tests.buckets.conftest import bucket, store  # noqa: F401 - fixtures
from tests.buckets.test_reading import owner_of
from tests.patience import until
from tests.spark.streams import Recorder, finish, start


def fill(broker: Broker, first: int, count: int) -> None:
    """Publish numbers to two partitions, partly one by one."""
    if "t" not in {info.name for info in broker.topics()}:
        broker.create_topic("t", partitions=2)
    numbers = range(first, first + count)
    broker.publish_many("t", [penstock.Message(f"{number}", partition=number % 2) for number in numbers[:-3]])
    for number in numbers[-3:]:
        broker.publish("t", f"{number}", partition=number % 2)


def expected(count: int) -> Counter[tuple[str, str]]:
    return Counter((f"{number}", f"t/{number % 2}") for number in range(count))


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place of its own in a real bucket."""
    request.getfixturevalue("bucket")
    return f"s3://{BUCKET}/{tmp_path.name}"


def test_C6_batches_read_what_owners_have_before_and_after_a_takeover(spark: SparkSession, address: str) -> None:
    def read() -> Counter[tuple[str, str]]:
        frame = penstock.spark.read_topic(spark, "t", path=address)
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in frame._jdf.queryExecution().toString(), "no plan shows it"
        rows = frame.selectExpr("decode(value, 'utf-8')", "topic || '/' || partition").collect()
        return Counter((row[0], row[1]) for row in rows)

    objects = open_objects(address)
    first = owner_of(objects)
    fill(first, 0, 500)
    first.settle()
    fill(first, 500, 100)
    with first.consumer("t", "g") as consumer:
        consumer.kill(consumer.receive(1), "bad")
    assert read() == expected(600)
    second = owner_of(objects)
    fill(second, 600, 50)
    with pytest.raises(NotOwner):
        first.publish("t", "lost")
    assert read() == expected(650)
    table = spark.read.format("penstock").options(path=address, table="dead_letters", subscribe="t")
    assert [row.group for row in table.load().collect()] == ["g"]


def test_segments_of_a_bucket_are_copied_once_for_sparks_own_reader(
    spark: SparkSession, address: str, tmp_path: Path
) -> None:
    def read() -> Counter[tuple[str, str]]:
        frame = penstock.spark.read_topic(spark, "t", path=address, copies=str(tmp_path / "copies"))
        assert {Path(name.removeprefix("file://")) for name in frame.inputFiles()} == set(copied())
        rows = frame.selectExpr("decode(value, 'utf-8')", "topic || '/' || partition").collect()
        return Counter((row[0], row[1]) for row in rows)

    def copied() -> list[Path]:
        return [path for path in (tmp_path / "copies").rglob("*") if path.is_file()]

    objects = open_objects(address)
    owner = owner_of(objects)
    fill(owner, 0, 500)
    owner.settle()
    fill(owner, 500, 100)
    assert read() == expected(600)
    [one, other] = copied()
    kept, content = one.stat().st_mtime_ns, other.read_bytes()
    other.write_bytes(content[:-1])
    assert read() == expected(600)
    assert one.stat().st_mtime_ns == kept, "it was not copied again"
    assert other.read_bytes() == content, "this one was"
    with pytest.raises(InvalidArgument, match="give a directory"):
        penstock.spark.read_topic(spark, "t", path=address, copies="s3://elsewhere")


def test_S3_C21_a_running_stream_goes_on_across_a_takeover_and_reads_each_message_once(
    spark: SparkSession, address: str, tmp_path: Path
) -> None:
    objects = open_objects(address)
    first = owner_of(objects)
    fill(first, 0, 300)
    penstock.spark.register(spark)
    options = {"path": address, "subscribe": "t", "startingOffsets": "earliest", "maxMessagesPerTrigger": "200"}
    frame = spark.readStream.format("penstock").options(**options).load()
    sink, checkpoint = Recorder(), tmp_path / "checkpoint"
    query = start(frame, checkpoint, sink, processingTime="50 milliseconds")
    try:
        until(lambda: sum(sink.total().values()) == 300, "the batches of the first owner")
        second = owner_of(objects)
        with pytest.raises(NotOwner):
            first.publish("t", "lost")
        fill(second, 300, 100)
        second.settle()
        until(lambda: sum(sink.total().values()) == 400, "those of the second")
    finally:
        query.stop()
    fill(second, 400, 100)
    finish(start(frame, checkpoint, sink))
    assert sink.total() == Counter(("t", part, offset) for part in range(2) for offset in range(250))


def test_C21_what_was_planned_is_read_although_it_was_replaced_and_later_told_to_be_gone(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path / "bucket")
    broker = owner_of(objects)
    fill(broker, 0, 400)
    broker.settle()
    fill(broker, 400, 100)
    options = read_options({"path": objects.address, "subscribe": "t"}, streaming=False)
    reader = LogReader(options, schema_of("messages"))
    planned = reader.partitions()
    broker.settle()  # what was in the journal is in segments now, and its pieces go in a while
    broker.shard.checkpoint()

    def rows() -> int:
        return sum(len(batch) for part in planned for batch in reader.read(part))

    assert rows() == 500
    pieces = objects.list("shards/0/journal/")
    objects.delete(pieces)
    with pytest.raises(DataLoss, match="planned so long ago that a bucket does not keep"):
        rows()
