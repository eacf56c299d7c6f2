"""audit: what is whole is found whole, and everything that is not, with its place."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import penstock
from penstock.cluster.snapshots import Snapshots
from penstock.model.errors import ConnectionLost, InvalidArgument, TopicNotFound
from penstock.model.events import Event, EventKind
from penstock.segments.schema import events_to_arrow
from penstock.segments.writer import write_segment
from penstock.spark.jobs import Outcome, Place, archive, audit, compact
from penstock.spark.jobs.auditing import frames
from tests.cli.harness import PENSTOCK
from tests.jobs.lives import Lives, full_life
from tests.sharding import home_of
from tests.spark.conftest import QUICK
from tests.spark.harness import ALL, Served

NULLABLE = ["key", "headers", "deliver_at", "expires_at", "dedupe_id"]
HASHED = ["offset", "timestamp", "key", "value", "headers", "priority", *NULLABLE[2:], "partition"]


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which everything happened, partly settled."""
    path = tmp_path_factory.mktemp("life") / "data"
    with Lives(path, seed=11) as lives:
        full_life(lives)
    return path


@pytest.fixture
def copy(life: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return shutil.copytree(life, tmp_path / "copy")


def _problems(outcome: Outcome) -> list[str]:
    return [note.removeprefix("problem at ") for note in outcome.notes if note.startswith("problem at ")]


def _row(outcome: Outcome, topic: str, partition: int = 0) -> dict[str, Any]:
    rows: list[dict[str, Any]] = outcome.as_dict()["rows"]
    return next(row for row in rows if (row["topic"], row["partition"]) == (topic, partition))


def _segments(path: Path, topic: str = "orders", table: str = "messages", partition: int = 0) -> list[Path]:
    return sorted((home_of(path, topic) / "topics" / topic / table / str(partition)).glob("*.parquet"))


def _hash_of(spark: SparkSession, path: Path, topic: str, partition: int) -> tuple[int, str]:
    """Count and hash of a partition, row by row in Python: the hash function is Spark's, the sum is not."""
    table = spark.read.format("penstock").schema(ALL).options(path=str(path), assign=json.dumps({topic: [partition]}))
    columns = [f.sort_array(f.map_entries(name)) if name == "headers" else f.col(name) for name in HASHED]
    nulls = [f.when(f.col(name).isNull(), 1 << bit).otherwise(0) for bit, name in enumerate(NULLABLE)]
    rows = table.load().select(f.xxhash64(*columns, sum(nulls, f.lit(0)))).collect()
    return len(rows), f"{sum(row[0] for row in rows) % (1 << 64):016x}"


def test_Q1_a_directory_in_which_everything_happened_is_whole_and_its_sums_are_those_of_every_row(
    spark: SparkSession, life: Path
) -> None:
    outcome = audit(spark, Place(path=str(life)))
    assert outcome.whole, outcome.notes
    assert outcome.summary["problems"] == 0 and outcome.summary["groups"] == 6
    row = _row(outcome, "orders", 1)
    assert (row["messages"], row["hash"]) == _hash_of(spark, life, "orders", 1)
    assert (row["first"], row["gaps"], row["groups"], row["verdict"]) == (0, 0, 6, "whole")
    assert outcome.summary["messages"] == sum(each["messages"] for each in outcome.as_dict()["rows"])
    with penstock.open(life, min_free_bytes=0) as broker:
        assert row["end"] == next(info for info in broker.topics() if info.name == "orders").partitions[1].end_offset


def test_L9_whatever_is_damaged_is_told_with_its_file_and_place_and_the_rest_is_looked_at(
    spark: SparkSession, copy: Path
) -> None:
    flipped, cut = _segments(copy)[:2]
    data = bytearray(flipped.read_bytes())
    data[len(data) // 3] ^= 4
    flipped.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:-7])
    gone = _segments(copy, partition=1)[0]
    gone.unlink()
    events = _segments(copy, table="events")[0]
    footer = bytearray(events.read_bytes())
    footer[-12] ^= 1
    events.write_bytes(footer)
    outcome = audit(spark, Place(path=str(copy)))
    problems = _problems(outcome)
    assert not outcome.whole and outcome.summary["problems"] == 4, problems
    assert f"{flipped}: at byte" in problems[1] and "row group 0 does not match its checksum" in problems[1]
    assert f"{cut}: at byte 0: it has" in problems[2] and problems[2].startswith(f"orders/0/{int(cut.stem)}: ")
    assert problems[3] == f"orders/1/{int(gone.stem)}: {gone}: the file is missing"
    assert problems[0].startswith(f"orders/0: {events}: at byte") and "(events " in problems[0]
    assert _row(outcome, "orders.dlq")["verdict"] == "whole"
    assert _row(outcome, "orders", 0)["verdict"] == "3 problems"


def test_a_relative_archive_is_whole_wherever_the_audit_runs(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "here" / "there").mkdir(parents=True)
    (tmp_path / "here" / "link").symlink_to(tmp_path / "disk")  # `link/../cold` is not `here/cold`
    with penstock.open(tmp_path / "here" / "link" / "data", min_free_bytes=0) as broker:
        broker.create_topic("orders", archive="../../cold", retention_bytes=0)
        broker.publish_many("orders", [f"old {number}" for number in range(10)])
        with broker.consumer("orders", "kitchen") as consumer:
            consumer.ack(consumer.receive(5))
        broker.settle()
        assert broker.retain() == 2
        broker.publish("orders", "new")
    assert [*(tmp_path / "cold").rglob("*.parquet")]
    outcome = audit(spark, Place(path=f"{tmp_path}/here/there/../link/data"))
    assert outcome.whole, outcome.notes
    assert _row(outcome, "orders")["messages"] == 11 and outcome.summary["files"] == 2


def test_Q1_a_replay_that_ends_before_the_log_is_whole_at_a_server_and_in_its_directory(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    server.client.publish_many("orders", [f"order {number}" for number in range(100)])
    assert server.client.replay("orders", "again", from_offset=10, to_offset=20) == 10
    with server.client.consumer("orders", "again") as consumer:
        consumer.ack(consumer.receive(4, wait=5))
    assert server.client.group("orders", "again").published == 10
    outcome = audit(spark, Place(servers=server.address))
    assert outcome.whole and outcome.summary["groups"] == 1, outcome.notes
    copy = shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with Snapshots(copy) as snapshots:
        assert snapshots.groups()[0].published == 10
    outcome = audit(spark, Place(path=str(copy)))
    assert outcome.whole, outcome.notes


def test_L3_a_hole_that_no_event_explains_is_a_problem_and_one_of_retention_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    with Lives(path) as lives:
        lives.broker.create_topic("kept", retention_age="1h")
        for _ in range(4):
            lives.publish("kept", 10, delay=None)
            lives.settle()
            lives.clock.advance(1000)
        lives.broker.publish("kept", "delayed", delay="2h")
        lives.broker.create_group("kept", "slow")
        lives.clock.advance(1500)
        assert lives.broker.retain() == 2
    whole = audit(spark, Place(path=str(path)), ["kept"])
    assert whole.whole and _row(whole, "kept")["first"] == 20 and _row(whole, "kept")["messages"] == 21
    parts = _segments(path, "kept")
    archived = tmp_path / "archive"  # the same files, of which one is not there
    for part in (parts[0], parts[1]):
        target = archived / "kept" / "messages" / "0" / part.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(part, target)
    assert audit(spark, Place(path=str(archived))).whole
    with Lives(path) as lives:
        lives.clock.advance(20_000)
        lives.publish("kept", 3, delay=None)
        lives.settle()
    last = _segments(path, "kept")[-1]
    (archived / "kept" / "messages" / "0" / parts[1].name).unlink()
    shutil.copy(last, archived / "kept" / "messages" / "0" / last.name)
    (problem,) = _problems(audit(spark, Place(path=str(archived))))
    assert problem.startswith("kept/0/30: ") and "messages are missing, from here to" in problem


def test_L13_live_and_lake_are_put_together_once_and_agree_with_what_was_published(
    spark: SparkSession, server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "_OWN_ROWS", 0)  # as large topics are read
    lake, place = str(tmp_path / "lake"), Place(servers=server.address)
    client = server.client
    client.create_topic("orders", partitions=2)
    client.publish_many("orders", [penstock.Message(f"{n}", key=f"{n % 5}", headers={"n": str(n)}) for n in range(500)])
    with client.consumer("orders", "g") as consumer:
        consumer.ack(consumer.receive(200)[::3])
    server.broker.settle()
    before = audit(spark, place, ["orders"])
    expected = tmp_path / "before.json"
    expected.write_text(json.dumps(before.as_dict()))
    assert before.whole, before.notes
    archive(spark, place, ["orders"], lake, move=True)
    client.publish_many("orders", [f"later {n}" for n in range(100)])
    live = audit(spark, place, ["orders"])
    assert live.whole and live.summary["messages"] == 100, live.notes
    together = audit(spark, place, ["orders"], lake=lake, expect=str(expected))
    assert together.whole, together.notes
    assert together.summary["messages"] == 600
    alone = audit(spark, Place(path=lake), ["orders"])
    sums = [int(each.summary["hash"], 16) for each in (alone, live, together)]
    assert (sums[0] + sums[1]) % (1 << 64) == sums[2] and alone.summary["hash"] == before.summary["hash"]

    wrong = json.loads(expected.read_text())
    wrong["rows"][0]["hash"] = "0" * 16
    expected.write_text(json.dumps(wrong))
    (problem,) = _problems(audit(spark, place, ["orders"], lake=lake, expect=str(expected)))
    assert problem.startswith("orders/0/0: from here to ") and "now there are" in problem


def test_L14_a_topic_that_an_earlier_audit_saw_has_to_be_there_unless_others_are_named(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    place, expected = Place(servers=server.address), tmp_path / "before.json"
    for topic in ("kept", "gone"):
        server.client.publish(topic, "x")
    expected.write_text(json.dumps(audit(spark, place).as_dict()))
    server.client.delete_topic("gone")
    assert audit(spark, place, ["kept"], expect=str(expected)).whole
    outcome = audit(spark, place, expect=str(expected))
    assert not outcome.whole
    assert _problems(outcome) == ["gone/0: the earlier audit saw this partition, and it is not there"]


def test_L2_where_live_and_lake_differ_the_offsets_are_told(spark: SparkSession, tmp_path: Path) -> None:
    path, lake = tmp_path / "data", str(tmp_path / "lake")
    with penstock.open(path, min_free_bytes=0) as broker:
        broker.publish_many("t", [f"{n}" for n in range(100)])
        broker.settle()
    other = shutil.copytree(path, tmp_path / "other")
    with penstock.open(path, min_free_bytes=0) as broker:
        broker.publish_many("t", ["a", "b", "c"])
    with penstock.open(other, min_free_bytes=0) as broker:
        broker.publish_many("t", ["a", "B", "c", "d"])
    archive(spark, Place(path=str(other)), None, lake)
    outcome = audit(spark, Place(path=str(path)), lake=lake)
    (problem,) = _problems(outcome)
    assert problem.startswith("t/0/100: 3 messages from here to 102 are not the same in the lake")  # other times, too
    assert _row(outcome, "t")["in lake"] == 104 and _row(outcome, "t")["messages"] == 104


def test_L13_what_compaction_left_out_is_no_problem_of_a_lake_beside_its_topic_or_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, lake = tmp_path / "data", str(tmp_path / "lake")
    with penstock.open(path, min_free_bytes=0) as broker:
        broker.publish_many("t", [penstock.Message(f"{n}", key=f"{n % 4}") for n in range(40)])
    archive(spark, Place(path=str(path)), None, lake)
    compact(spark, lake, ["t"], keep="latest")
    alone = audit(spark, Place(path=lake), duplicates="key")
    assert alone.whole, alone.notes
    assert (alone.summary["messages"], _row(alone, "t")["gaps"]) == (4, 36)
    both = audit(spark, Place(path=str(path)), lake=lake)
    assert both.whole and _row(both, "t")["messages"] == 40 and _row(both, "t")["in lake"] == 4, both.notes


def test_L7_duplicates_are_found_by_key_and_by_dedupe_id_within_its_window(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with Lives(path) as lives:
        lives.broker.create_topic("t", partitions=2, dedupe_window="1m")
        for number in range(6):
            lives.broker.publish("t", f"{number}", key=f"k{number % 4}", dedupe_id="same" if number in (1, 5) else None)
            lives.clock.advance(30)
    kinds = {way: audit(spark, Place(path=str(path)), ["t"], duplicates=way) for way in ("key", "dedupe-id")}
    assert kinds["dedupe-id"].whole and kinds["dedupe-id"].summary["duplicates"] == 0  # the window was over
    assert kinds["key"].summary["duplicates"] == 2 and not kinds["key"].whole
    with penstock.open(path, min_free_bytes=0) as broker:
        keys = pd.Series([message.key for message in broker.read("t")])
    told = sorted(text.split("'")[1] for text in _problems(kinds["key"]))
    assert told == sorted(key.decode() for key, count in keys.value_counts().items() if count > 1)
    with Lives(path) as lives:  # without its settings, any two are duplicates
        lives.settle()
    archived = shutil.copytree(home_of(path, "t") / "topics", tmp_path / "archive")
    lone = audit(spark, Place(path=str(archived)), duplicates="dedupe-id")
    assert [text.split(": ")[1] for text in _problems(lone)] == ["dedupe-id 'same' is there again"]


def test_Q1_a_broker_whose_figures_are_not_those_of_its_events_is_told(spark: SparkSession, server: Served) -> None:
    server.client.publish_many("t", [f"{n}" for n in range(50)])
    with server.client.consumer("t", "g") as consumer:
        consumer.ack(consumer.receive(20))
    for partition in server.broker.shard.catalog.by_name["t"].partitions:
        assert partition.state is not None
        partition.state.groups["g"].tally.acked += 1
    outcome = audit(spark, Place(servers=server.address))
    assert _problems(outcome) == ["t: group g: its events add up to 20 acked (the broker: 21)"]
    assert not outcome.whole


def test_events_that_cannot_be_are_told(spark: SparkSession, tmp_path: Path) -> None:
    path, archived = tmp_path / "data", tmp_path / "archive" / "t"
    with penstock.open(path, min_free_bytes=0) as broker:
        broker.publish_many("t", [f"{n}" for n in range(10)])
        broker.settle()
    events = [
        Event(EventKind.CREATED, 1, 0, 0, "g"),
        Event(EventKind.DELIVERED, 2, 3, 3, "g", "kim", attempt=1),
        Event(EventKind.ACKED, 3, 3, 4, "g", "kim"),
        Event(EventKind.ACKED, 4, 1, 2, "g", "kim", offsets=[1, 8]),
        Event(EventKind.DELIVERED, 5, 8, 1, "g", "kim", attempt=1),
        Event(EventKind.RELEASED, 6, 12, 1, "g", "kim"),
    ]
    chunks, _ = write_segment("events", "t", 0, [events_to_arrow(0, events, 0)])
    for table in ("messages", "events"):
        (archived / table / "0").mkdir(parents=True)
    shutil.copy(_segments(path, "t")[0], archived / "messages" / "0")
    (archived / "events" / "0" / f"{0:020}.parquet").write_bytes(b"".join(chunks))
    outcome = audit(spark, Place(path=str(archived.parent)))
    assert _problems(outcome) == [
        "t/0/1: group g: 3 messages were acked that were never delivered to it before, this is the first",
        "t/0/12: an event speaks of it, but the messages end with 9",
    ]


def test_what_is_wrong_with_the_words_is_said_at_once(spark: SparkSession, life: Path, tmp_path: Path) -> None:
    place = Place(path=str(life))
    with pytest.raises(InvalidArgument, match="none of none, key, dedupe-id"):
        audit(spark, place, duplicates="value")
    with pytest.raises(InvalidArgument, match="there is no file"):
        audit(spark, place, expect=str(tmp_path / "nothing.json"))
    (tmp_path / "wrong.json").write_text('{"job": "load"}')
    with pytest.raises(InvalidArgument, match="has no partition in it: it is of another job"):
        audit(spark, place, expect=str(tmp_path / "wrong.json"))
    with pytest.raises(InvalidArgument, match="is no lake"):
        audit(spark, place, lake=str(life))
    with pytest.raises(TopicNotFound, match="no topic 'a', 'b'"):
        audit(spark, place, ["a", "orders", "b"])
    with pytest.raises(ConnectionLost):
        audit(spark, Place(servers="127.0.0.1:1"))
    plan = audit(spark, place, ["orders"], dry_run=True)
    assert plan.dry_run and plan.summary["messages"] > 100 and plan.summary["files"] > 4


def test_the_command_ends_with_1_if_anything_is_wrong(copy: Path) -> None:
    (gone,) = _segments(copy, "orders.dlq")[:1]
    gone.unlink()
    quick = [text for name, value in QUICK.items() for text in ("--conf", f"{name}={value}")]
    words = [PENSTOCK, "job", "audit", "orders.dlq", "--dir", str(copy), "-o", "json", *quick]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["whole"] is False and told["problems"] == 1
    assert told["notes"] == [f"problem at orders.dlq/0/0: {gone}: the file is missing"]
