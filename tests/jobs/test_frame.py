"""What all jobs share: work that is spread, and errors that say what went wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.model.errors import DiskFull, InvalidArgument, TopicNotFound
from penstock.spark.errors import JobFailed
from penstock.spark.jobs.failing import told_clearly
from penstock.spark.jobs.place import Place
from penstock.spark.spreading import spread
from tests.spark.harness import Served


def _fail(kind: str) -> int:
    if kind == "topic":
        raise TopicNotFound("there is no topic 'x'")
    if kind == "space":
        raise OSError(28, os.strerror(28), "/lake/x")
    raise ZeroDivisionError("division by zero")


def test_work_is_done_once_for_every_item_and_the_results_are_in_order(spark: SparkSession) -> None:
    assert spread(spark, [3, 1, 2], lambda number: number * 10) == [30, 10, 20]
    assert spread(spark, [], _fail) == []


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        ("topic", TopicNotFound, "^there is no topic 'x'$"),
        ("space", DiskFull, "no space left"),
        ("bug", JobFailed, "ZeroDivisionError: division by zero"),
    ],
)
def test_what_fails_in_a_task_is_told_in_a_line(
    spark: SparkSession, kind: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as caught, told_clearly():
        spread(spark, [kind], _fail)
    assert "Traceback" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "text"),
    [("no_such_column > 1", "no_such_column"), ("value = (", "[Ss]yntax error"), ("nonsense(value)", "nonsense")],
)
def test_a_wrong_condition_is_told_with_what_is_wrong_in_it(spark: SparkSession, sql: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text) as caught, told_clearly():
        spark.createDataFrame([("x",)], "value STRING").where(sql).collect()
    assert "JVM" not in str(caught.value)
    assert len(str(caught.value).splitlines()) < 8


def test_a_place_is_a_server_or_a_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="one of the two"):
        Place()
    with pytest.raises(InvalidArgument, match="one of the two"):
        Place(servers="a:1", path="/b")
    with pytest.raises(InvalidArgument, match=r"loading needs a server: .* is a directory"):
        Place(path=str(tmp_path)).client("loading")


def test_a_batch_with_a_producer_and_a_sequence_is_published_once(spark: SparkSession, server: Served) -> None:
    frame = spark.createDataFrame([("a",), ("b",)], "value STRING")

    def write(sequence: int) -> None:
        options = {"servers": server.address, "topic": "t", "producer": "job-1", "sequence": str(sequence)}
        frame.write.format("penstock").options(**options).mode("append").save()

    assert server.client.staged_sequence("job-1") is None
    for sequence in (0, 0, 1, 0, 1):
        write(sequence)
    assert server.client.staged_sequence("job-1") == 1
    assert [message.value for message in server.client.read("t")] == [b"a", b"b"] * 2
    with pytest.raises(Exception, match="give `producer` and `sequence` together"):
        frame.write.format("penstock").options(servers=server.address, topic="t", producer="p").mode("append").save()
