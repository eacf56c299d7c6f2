"""`archive`: everything is in the lake once, however often it runs and whatever kills it."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.model.errors import DirectoryLocked, InvalidArgument, TopicNotFound
from penstock.spark import read_events, read_topic, topics
from penstock.spark.errors import DataLoss
from penstock.spark.jobs.archiving import archive
from penstock.spark.jobs.outcome import Outcome
from penstock.spark.jobs.place import Place
from penstock.spark.lake import layout
from penstock.spark.lake.log import LakeWriter, read_state
from penstock.testing import VirtualClock
from tests.cli.harness import PENSTOCK, check_snapshots, on_directory, publish_on_three_days
from tests.jobs.test_lake import contents, query
from tests.server.harness import until
from tests.sharding import home_of
from tests.spark.harness import ALL, FULL, Planned, Served, of_all_kinds, rows_of, stored


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FILE_ROWS", 64)


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = outcome.as_dict()["rows"]
    return found


def event_rows(events: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in events.drop("offsets").collect())


def test_L13_L14_archived_settled_and_unsettled_messages_and_events_are_in_the_lake(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    client, lake, place = server.client, str(tmp_path / "lake"), Place(servers=server.address)
    client.create_topic("t", partitions=2, archive=str(tmp_path / "cold"))
    client.publish_many("t", of_all_kinds(100, delayed=False))
    server.broker.settle()
    topic = server.broker.shard.topic("t")
    topic.config = replace(topic.config, retention_bytes=1)
    assert server.broker.retain() == 2, "they are in the archive of the broker now"
    topic.config = replace(topic.config, retention_bytes=None)
    client.publish_many("t", of_all_kinds(100, 100))
    with client.consumer("t", "g") as consumer:
        consumer.ack(consumer.receive(30))
        consumer.fail(consumer.receive(5), "no milk")
    server.broker.settle()
    client.publish_many("t", of_all_kinds(30, 200))
    with client.consumer("t", "g") as consumer:
        consumer.ack(consumer.receive(3))

    expected = stored(client.read("t", include_deleted=True))
    assert len(expected) == 230
    planned = archive(spark, place, ["t"], lake, dry_run=True)
    assert not Path(lake).exists()
    outcome = archive(spark, place, ["t"], lake)
    for told in (planned, outcome):
        assert told.summary["messages"] == 230
        assert told.summary["events"] == sum(1 for _ in client.events("t"))
    assert [row["to"] - row["from"] for row in rows(planned)] == [row["messages"] for row in rows(outcome)]
    assert outcome.summary["files"] == len(contents(Path(lake))) == sum(row["files"] for row in rows(outcome))
    assert outcome.summary["bytes"] == sum(map(len, contents(Path(lake)).values()))

    assert Planned(ALL, path=lake, subscribe="t").rows() == expected
    assert rows_of(read_topic(spark, "t", path=lake).select(FULL.fieldNames())) == [row[:10] for row in expected]
    live = read_events(spark, "t", servers=server.address, includeDeleted=True)
    assert event_rows(read_events(spark, "t", path=lake)) == event_rows(live)
    assert [tuple(row)[:4] for row in topics(spark, path=lake).collect()] == [
        ("t", number, 0, info.end_offset) for number, info in enumerate(client.topics()[0].partitions)
    ]
    table = f"read_parquet('{lake}/t/messages/*/*.parquet')"
    by_duckdb = query(f'SELECT partition, "offset", key, value, priority FROM {table}')
    assert sorted(by_duckdb) == sorted((row[1], row[2], row[4], row[5], row[7]) for row in expected)

    before = contents(Path(lake))
    again = archive(spark, place, ["t"], lake)
    assert (again.summary["messages"], again.summary["files"]) == (0, 0)
    assert contents(Path(lake)) == before
    assert read_state(Path(lake), "t").commits == 1


def test_runs_one_after_the_other_make_the_lake_of_one_run_byte_by_byte(spark: SparkSession, tmp_path: Path) -> None:
    clock, data = VirtualClock(), tmp_path / "data"
    steps = [(70, True), (3, False), (40, True), (1, False), (90, False)]
    for number, (count, settle) in enumerate(steps):
        with penstock.open(data, clock=clock) as broker:
            if number == 0:
                broker.create_topic("t", partitions=2)
            broker.publish_many("t", of_all_kinds(count, number * 1000))
            with broker.consumer("t", "g") as consumer:
                consumer.ack(consumer.receive(count // 2 + 1))
            clock.advance(40_000)  # so that some days have two of them
            broker.publish_many("t", of_all_kinds(count, number * 1000 + 500))
            if settle:
                broker.settle()
        outcome = archive(spark, Place(path=str(data)), None, str(tmp_path / "often"))
        assert outcome.summary["messages"] == 2 * count
    archive(spark, Place(path=str(data)), ["t"], str(tmp_path / "once"))
    assert contents(tmp_path / "often") == contents(tmp_path / "once")
    assert len({Path(name).parent for name in contents(tmp_path / "once") if "messages" in name}) > 2
    often, once = (read_state(tmp_path / name, "t") for name in ("often", "once"))
    assert often.logs() == once.logs()
    assert (often.commits, once.commits) == (len(steps), 1)

    with penstock.open(data, clock=clock) as broker:
        broker.settle()
    cold = tmp_path / "cold/t"
    cold.parent.mkdir()
    (home_of(data, "t") / "topics/t").rename(cold)
    archive(spark, Place(path=str(cold.parent)), ["t"], str(tmp_path / "of an archive"))
    assert contents(tmp_path / "of an archive") == contents(tmp_path / "once"), "an archive of a broker is a place too"


@pytest.mark.crash
def test_a_job_that_is_killed_and_run_again_copies_everything_once(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    names, lake = [f"topic-{number:02d}" for number in range(12)], tmp_path / "lake"
    for name in names:
        server.client.publish_many(name, of_all_kinds(50))
    arguments = [PENSTOCK, "job", "archive", str(lake), *names, "--server", server.address, "--output", "json"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        first = lake / names[0] / "_log/00000000000000000000.json"
        until(lambda: first.exists() or process.poll() is not None, "the first commit", 120)
        process.send_signal(signal.SIGKILL)
        _, told = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, told
    done = [name for name in names if read_state(lake, name).commits]
    assert 0 < len(done) < len(names)

    left = lake / names[-1] / "messages/date=2026-01-01/0-00000000000000000000-00000000.parquet"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"half a file")
    (lake / names[-1] / "_new").mkdir(parents=True, exist_ok=True)
    (lake / names[-1] / "_new/more").write_bytes(b"x")
    place = Place(servers=server.address)
    outcome = archive(spark, place, names, str(lake))
    assert outcome.summary["messages"] == 50 * (len(names) - len(done))
    archive(spark, place, names, str(tmp_path / "once"))
    assert contents(lake) == contents(tmp_path / "once")
    assert not left.parent.exists()


def test_what_is_gone_before_it_was_copied_is_told(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    client, lake, place = server.client, str(tmp_path / "lake"), Place(servers=server.address)
    client.publish_many("t", [f"{n}" for n in range(10)])
    server.broker.settle()
    archive(spark, place, ["t"], lake)
    for _ in range(2):
        client.publish_many("t", [f"{n}" for n in range(10)])
        server.broker.settle()
    assert client.trim("t", {0: 20}) == 2
    before = contents(Path(lake))
    for dry_run in (True, False):
        with pytest.raises(DataLoss, match=r"messages t/0 from 10 to 19\. Retention"):
            archive(spark, place, ["t"], lake, dry_run=dry_run)
    assert contents(Path(lake)) == before
    outcome = archive(spark, place, ["t"], lake, allow_gaps=True)
    assert outcome.notes == ["t/0: messages from 10 to 19 are gone, and not in the lake"]
    assert [(gap.start, gap.end) for gap in read_state(Path(lake), "t").gaps] == [(10, 20)]
    with pytest.raises(DataLoss, match="10 of the 30 messages"):
        Planned(path=lake, subscribe="t").rows()
    left = Planned(path=lake, subscribe="t", failOnDataLoss="false")
    assert [offset for _, _, offset in left.places()] == [*range(10), *range(20, 30)]
    assert archive(spark, place, ["t"], lake).notes == [], "a gap is told once"


def test_L11_L13_L14_what_is_moved_is_in_the_lake_or_still_in_the_topic(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    client, lake, place = server.client, str(tmp_path / "lake"), Place(servers=server.address)
    client.create_topic("t", partitions=2)
    for number in range(3):
        client.publish_many("t", of_all_kinds(100, number * 100, delayed=False))
        server.broker.settle()
    client.publish_many("t", of_all_kinds(20, 300, delayed=False))
    expected = stored(client.read("t"))
    planned = archive(spark, place, ["t"], lake, move=True, dry_run=True)
    assert planned.summary["moved_segments"] == 6
    with client.consumer("t", "g") as consumer:
        held = consumer.receive(1)
        outcome = archive(spark, place, ["t"], lake, move=True)
        assert sorted(row["moved"] for row in rows(outcome)) == [2, 3], "that with the lease stays"
        (lost,) = outcome.notes
        assert "messages that the group g had not finished with have gone" in lost
        live = stored(client.read("t"))
        assert 0 < len(live) < len(expected)
        assert rows_of(read_topic(spark, "t", path=lake).select(FULL.fieldNames())) == [row[:10] for row in expected]
        assert sorted({*live, *stored_in(lake)}) == sorted({*expected})
        consumer.ack(held)
    client.publish_many("t", of_all_kinds(10, 400, delayed=False))
    expected += stored(message for message in client.read("t") if row_is_new(message, expected))
    server.broker.settle()
    again = archive(spark, place, ["t"], lake, move=True)
    assert again.summary["messages"] == 10
    assert list(client.read("t")) == []
    assert sorted(stored_in(lake)) == sorted(expected)
    removed = [tuple(row) for row in read_events(spark, "t", path=lake).where("kind = 'removed'").collect()]
    assert removed, "what the first move did is in the lake too"
    archive(spark, place, ["t"], lake)
    assert client.publish("t", "goes on").offset > 100


def stored_in(lake: str) -> list[tuple[Any, ...]]:
    return Planned(ALL, path=lake, subscribe="t").rows()


def row_is_new(message: penstock.StoredMessage, known: list[tuple[Any, ...]]) -> bool:
    return (message.partition, message.offset) not in {(row[1], row[2]) for row in known}


def test_a_file_that_is_damaged_in_the_lake_keeps_the_topic_as_it_is(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    client, lake, place = server.client, tmp_path / "lake", Place(servers=server.address)
    client.publish_many("t", of_all_kinds(64, delayed=False))
    server.broker.settle()
    archive(spark, place, ["t"], str(lake))
    (name,) = [name for name in contents(lake) if "/messages/" in name]
    data = bytearray((lake / name).read_bytes())
    data[50] ^= 1
    (lake / name).write_bytes(data)
    with pytest.raises(penstock.PenstockError, match="does not match its checksum"):
        archive(spark, place, ["t"], str(lake), move=True)
    assert len(list(client.read("t"))) == 64


def test_what_cannot_be_is_refused_and_leaves_nothing(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    server.client.publish_many("t", ["a", "b"])
    place, lake = Place(servers=server.address), str(tmp_path / "lake")
    with pytest.raises(TopicNotFound, match="'x', 'y'"):
        archive(spark, place, ["t", "x", "y"], lake)
    for path, text in ((tmp_path / "data", "is a data directory"), ("gs://bucket/lake", "or s3://bucket/place")):
        with pytest.raises(InvalidArgument, match=text):
            archive(spark, place, ["t"], str(path))
    (tmp_path / "cold/t/messages/0").mkdir(parents=True)
    with pytest.raises(InvalidArgument, match="is an archive of a broker"):
        archive(spark, place, ["t"], str(tmp_path / "cold"))
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match="is a file"):
        archive(spark, place, ["t"], str(tmp_path / "file"))
    with pytest.raises(InvalidArgument, match="needs a server"):
        archive(spark, Place(path=str(tmp_path / "cold")), ["t"], lake, move=True)
    assert not Path(lake).exists()

    with LakeWriter(Path(lake), "t"), pytest.raises(DirectoryLocked, match="another job is writing"):
        archive(spark, place, ["t"], lake)
    assert contents(Path(lake)) == {}
    archive(spark, place, ["t"], lake)
    with pytest.raises(InvalidArgument, match="is a lake itself"):
        archive(spark, Place(path=lake), ["t"], str(tmp_path / "other"))


def test_the_lake_of_another_broker_is_not_gone_on_with(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    server.client.publish_many("t", ["a", "b", "c"])
    archive(spark, Place(servers=server.address), ["t"], lake)
    for count, text in ((2, "ends at 2 .*, and the lake has it up to 3"), (3, "has others"), (5, "has others at 2")):
        data = tmp_path / str(count)
        with penstock.open(data) as broker:
            broker.publish_many("t", ["x"] * count)
        with pytest.raises(InvalidArgument, match=text):
            archive(spark, Place(path=str(data)), ["t"], lake)
    assert read_state(Path(lake), "t").commits == 1


def test_topics_may_be_called_as_files_of_a_broker_are(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    lake, names = str(tmp_path / "lake"), ["checkpoint-a", "journal"]
    for _ in range(2):
        for name in names:
            server.client.publish(name, "x")
        archive(spark, Place(servers=server.address), names, lake)
    assert [read_topic(spark, name, path=lake).count() for name in names] == [2, 2]


def test_a_topic_without_messages_is_in_the_lake_too(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    server.client.create_topic("t", partitions=3)
    lake = str(tmp_path / "lake")
    archive(spark, Place(servers=server.address), ["t"], lake)
    assert topics(spark, path=lake).count() == 3
    assert Planned(path=lake, subscribe="t").rows() == []


def test_the_command_line_prints_a_lake_as_it_was_at_the_end_of_a_day(spark: SparkSession, tmp_path: Path) -> None:
    publish_on_three_days(tmp_path / "data")
    archive(spark, Place(path=str(tmp_path / "data")), None, str(tmp_path / "lake"))
    with on_directory(tmp_path / "lake") as command:
        check_snapshots(command)
