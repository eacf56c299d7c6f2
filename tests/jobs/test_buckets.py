"""Jobs on a bucket: topics are read from it with no server, and lakes, exports and reports are written to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
import penstock.spark
from penstock.model.errors import InvalidArgument
from penstock.spark.errors import JobFailed
from penstock.spark.jobs import Place, archive, audit, compact, dlq_report, export, load, replay, trace_report
from penstock.spark.lake.log import LakeWriter, read_state
from penstock.spark.paths import BucketPath, path_of
from penstock.storage.buckets import open_objects
from penstock.testing.seaweed import BUCKET
from tests.buckets.conftest import bucket, store  # noqa: F401 - fixtures
from tests.buckets.test_reading import owner_of


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place of its own in a real bucket."""
    request.getfixturevalue("bucket")
    return f"s3://{BUCKET}/{tmp_path.name}"


def test_S4_topics_of_a_bucket_go_to_lakes_exports_and_reports_on_a_bucket(
    spark: SparkSession, address: str, tmp_path: Path
) -> None:
    penstock.spark.register(spark)
    broker = owner_of(open_objects(f"{address}/data"))
    broker.create_topic("t", partitions=2)
    broker.publish_many("t", [penstock.Message(f"{number}", partition=number % 2) for number in range(300)])
    with broker.consumer("t", "g") as consumer:
        consumer.ack(consumer.receive(100))
    broker.settle()
    broker.publish_many("t", [penstock.Message(f"{number}", partition=0) for number in range(300, 320)])
    place, lake = Place(path=f"{address}/data"), f"{address}/lake"

    archived = archive(spark, place, ["t"], lake)
    assert archived.summary["messages"] == 320
    broker.publish_many("t", ["late"] * 10)
    assert archive(spark, place, ["t"], lake).summary["messages"] == 10, "what is there is not copied again"
    assert penstock.spark.read_topic(spark, "t", path=lake).count() == 330
    assert compact(spark, lake).summary["to_files"] <= archived.summary["files"]

    found = audit(spark, place, ["t"], lake=lake)
    assert found.whole, found.notes
    assert found.summary["messages"] == 330

    out = f"{address}/out"
    exported = export(spark, place, "t", out)
    assert exported.summary["messages"] == 330
    assert export(spark, place, "t", out).summary == exported.summary, "the same words give the same files"
    lines = b"".join(file.read_bytes() for file in path_of(out).glob("*.jsonl")).splitlines()
    assert sorted(json.loads(line)["value"] for line in lines) == sorted([*map(str, range(320)), *["late"] * 10])
    with pytest.raises(InvalidArgument, match="holds another export"):
        export(spark, place, "t", out, format="csv")

    reported = trace_report(spark, place, ["t"], f"{address}/report")
    assert reported.summary["messages"] == 330
    assert b"<html" in path_of(f"{address}/report/report.html").read_bytes()
    assert len(list(path_of(f"{address}/report").glob("tables/*.parquet"))) > 3

    with pytest.raises(InvalidArgument, match="is neither a bucket of brokers"):
        archive(spark, Place(path=out), None, str(tmp_path / "lake"))


def test_what_needs_a_directory_says_so(spark: SparkSession) -> None:
    place, elsewhere = Place(servers="127.0.0.1:1"), "s3://bucket/place"
    jobs: list[Callable[[], object]] = [
        lambda: replay(spark, place, "t", to_files=elsewhere),
        lambda: dlq_report(spark, place, None, out=elsewhere),
        lambda: load(spark, place, [f"{elsewhere}/a.csv"], "t"),
        lambda: load(spark, place, ["a.csv"], "t", bad_rows=elsewhere),
        lambda: compact(spark, elsewhere, keep="latest"),
    ]
    for job in jobs:
        with pytest.raises(InvalidArgument, match="needs a directory, not an address: 's3://bucket/place"):
            job()


def test_of_two_jobs_that_write_to_a_lake_in_a_bucket_one_changes_nothing(tmp_path: Path) -> None:
    root = path_of(tmp_path.as_uri())
    with LakeWriter(root, "t") as first, LakeWriter(root, "t") as second:
        first.commit("archive", [], [], partitions=2)
        with pytest.raises(JobFailed, match="another job has written"):
            second.commit("archive", [], [], partitions=3)
    assert (read_state(root, "t").commits, read_state(root, "t").partitions) == (1, 2)


def test_a_place_in_a_bucket_is_used_as_a_path_is(tmp_path: Path) -> None:
    root = path_of(tmp_path.as_uri())
    assert isinstance(root, BucketPath)
    assert not root.exists()
    (root / "a/b" / "1.json").write_bytes(b"one")
    (root / "a/c/2.json").write_bytes(b"two")
    assert root.is_dir()
    assert (root / "a/b/1.json").is_file()
    assert not (root / "a/b").is_file()
    assert sorted(map(str, root.glob("a/*/*.json"))) == [f"{root}/a/b/1.json", f"{root}/a/c/2.json"]
    assert [(one.stem, one.parent.name) for one in root.glob("*/b/*")] == [("1", "b")]
    (root / "a/b/1.json").unlink(missing_ok=True)
    assert [one.name for one in root.glob("a/*/*")] == ["2.json"]
    with pytest.raises(FileNotFoundError, match="no such object"):
        (root / "a/b/1.json").read_bytes()
