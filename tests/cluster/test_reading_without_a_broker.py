"""Divided directories that no broker has open: checked, read as snapshots and by Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.cluster.snapshots import Snapshots
from penstock.model.errors import DirectoryLocked, InvalidArgument
from penstock.model.placement import shard_of
from penstock.segments.window import Window
from penstock.testing import VirtualClock

SHARDS = 3
TOPICS = [f"topic-{number}" for number in range(9)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with penstock.open(tmp_path / "data", shards=SHARDS, min_free_bytes=0) as broker:
        for number, name in enumerate(TOPICS):
            broker.create_topic(name, partitions=2, max_deliveries=1)
            broker.publish_many(name, [penstock.Message(f"{name}-{n}", key=f"{n}") for n in range(number + 2)])
            with broker.consumer(name, "g") as consumer:
                first, *others = consumer.receive(100)
                first.kill("never")
                consumer.ack(others)
        broker.settle()
        for name in TOPICS:
            broker.publish(name, "unsettled", partition=0)
    return tmp_path / "data"


def test_a_snapshot_shows_all_shards_as_one(directory: Path) -> None:
    with Snapshots(directory) as found:
        assert [info.name for info in found.topics()] == sorted([*TOPICS, *(f"{name}.dlq" for name in TOPICS)])
        assert [(group.topic, group.acked, group.dead) for group in found.groups()] == [
            (name, number + 1, 1) for number, name in enumerate(TOPICS)
        ]
        assert [group.topic for group in found.groups(TOPICS[4])] == [TOPICS[4]]
        for name in TOPICS:
            assert len(list(found.dead_letters(name))) == 1
            snapshot = found.of(name)
            values = [m.value for m in snapshot.reader(snapshot.log(name, 0)).messages(Window())]
            assert values[-1] == b"unsettled"


def test_the_files_of_a_topic_are_in_its_shard(directory: Path) -> None:
    for name in TOPICS:
        with Snapshots(directory) as found:
            place = Path(found.of(name).storage.path)
        assert place == directory / f"shards/{shard_of(name, SHARDS)}"
        assert list((place / "topics" / name / "messages").rglob("*.parquet"))


def test_a_divided_directory_that_is_open_is_not_read(directory: Path) -> None:
    with penstock.open(directory), pytest.raises(DirectoryLocked):
        Snapshots(directory)
    with pytest.raises(InvalidArgument, match="no data directory"):
        Snapshots(directory / "nothing")


def test_check_looks_at_every_shard_and_tells_the_worst(directory: Path) -> None:
    whole = CliRunner().invoke(app, ["check", str(directory)])
    assert whole.exit_code == 0
    assert [line for line in whole.stdout.splitlines() if line.startswith("shard ")] == [
        f"shard {number} of {SHARDS}" for number in range(SHARDS)
    ]
    assert whole.stdout.count("whole: every byte") == SHARDS
    victim = sorted((directory / "shards/1/topics").rglob("*.parquet"))[0]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0xFF
    victim.write_bytes(bytes(data))
    found = CliRunner().invoke(app, ["check", str(directory), "-o", "json"])
    assert found.exit_code == 1
    answer = json.loads(found.stdout)
    assert [shard["verdict"] for shard in answer["shards"]] == ["whole", "damaged", "whole"]
    assert sum(shard["found"]["topics"] for shard in answer["shards"]) == 2 * len(TOPICS)
    repaired = CliRunner().invoke(app, ["check", str(directory), "--repair", "--yes"])
    assert repaired.exit_code == 1
    assert "repaired with losses" in repaired.stdout
    assert CliRunner().invoke(app, ["check", str(directory)]).exit_code == 0


def test_commands_work_on_a_divided_directory(directory: Path) -> None:
    listed = CliRunner().invoke(app, ["topic", "list", "--dir", str(directory), "-o", "json"])
    assert listed.exit_code == 0, listed.output
    assert len(listed.stdout.strip().splitlines()) >= 1
    make = ["topic", "create", "clicks", "--partitions", "6", "--spread", "3", "--dir", str(directory)]
    assert CliRunner().invoke(app, make).exit_code == 0
    shown = CliRunner().invoke(app, ["topic", "show", "clicks", "--dir", str(directory), "-o", "json"])
    told = json.loads(shown.stdout)
    assert [part["number"] for part in told["partitions"]] == list(range(6))
    assert told["config"]["spread"] == 3
    refused = CliRunner().invoke(app, ["topic", "create", "x", "-p", "9", "--spread", "4", "--dir", str(directory)])
    assert (refused.exit_code, "there are 3 shards" in refused.output) == (2, True)
    read = CliRunner().invoke(app, ["dlq", "list", TOPICS[5], "--dir", str(directory), "-o", "json"])
    assert read.exit_code == 0, read.output
    assert TOPICS[5] in read.stdout


def test_a_relative_archive_lies_beside_the_whole_directory(tmp_path: Path) -> None:
    clock = VirtualClock()
    with penstock.open(tmp_path / "data", shards=SHARDS, clock=clock, min_free_bytes=0) as broker:
        for name in TOPICS:
            broker.create_topic(name, retention_age="1h", archive="../cold")
            broker.publish(name, "old")
        broker.settle()
        clock.advance(7200)
        assert broker.retain() == len(TOPICS)
        for name in TOPICS:
            assert list(broker.read(name)) == []
            assert [message.value for message in broker.read(name, include_deleted=True)] == [b"old"]
            (place,) = broker.layout(name).messages[0].segments
            assert Path(place.path).is_file()
            assert Path(place.path).is_relative_to(tmp_path / "cold")
    with Snapshots(tmp_path / "data") as found:
        snapshot = found.of(TOPICS[0])
        reader = snapshot.reader(snapshot.log(TOPICS[0], 0), include_deleted=True)
        assert [message.value for message in reader.messages(Window())] == [b"old"]
    assert CliRunner().invoke(app, ["check", str(tmp_path / "data")]).exit_code == 0


def _make_spread(directory: Path) -> list[bytes]:
    """A topic over all shards, half of it settled, with a dead letter in each slice; its values."""
    with penstock.open(directory, shards=SHARDS, min_free_bytes=0) as broker:
        broker.create_topic("orders", partitions=7, spread=SHARDS, max_deliveries=1)
        broker.publish_many("orders", [penstock.Message(f"settled-{n}", key=f"{n}") for n in range(30)])
        with broker.consumer("orders", "g") as consumer:
            dead, done = set(), []
            for message in consumer.receive(30):
                if message.partition % SHARDS in dead:
                    done.append(message)
                else:
                    dead.add(message.partition % SHARDS)
                    message.kill("never")
            consumer.ack(done)
        broker.settle()
        broker.publish_many("orders", [penstock.Message(f"new-{n}", key=f"{n}") for n in range(30)])
        return [message.value for message in broker.read("orders")]


def test_a_snapshot_shows_a_spread_topic_as_one(tmp_path: Path) -> None:
    values = _make_spread(tmp_path / "data")
    with Snapshots(tmp_path / "data") as found:
        assert [(info.name, len(info.partitions)) for info in found.topics()] == [("orders", 7), ("orders.dlq", 3)]
        (group,) = found.groups()
        assert (group.published, group.acked, group.dead, group.lag) == (60, 27, 3, 30)
        assert found.groups("orders") == [group]
        assert len(list(found.dead_letters("orders"))) == SHARDS
        layout = found.layout("orders")
        assert [log.partition for log in layout.messages] == list(range(7))
        read = []
        for log in layout.messages:
            snapshot = found.of("orders", log.partition)
            read += list(snapshot.reader(snapshot.log("orders", log.partition)).messages(Window()))
        assert [message.value for message in read] == values
    with penstock.open(tmp_path / "data", min_free_bytes=0) as broker:
        assert [message.value for message in broker.read("orders")] == values
        assert broker.layout("orders") == layout


def test_check_finds_a_spread_topic_whole(tmp_path: Path) -> None:
    _make_spread(tmp_path / "data")
    found = CliRunner().invoke(app, ["check", str(tmp_path / "data")])
    assert found.exit_code == 0, found.output
    assert found.stdout.count("whole: every byte") == SHARDS
