"""`replay`: a window of the past into a topic or into files, each message once, in order, at a limited rate."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.client import Client
from penstock.model.errors import ConnectionLost, DiskFull, InvalidArgument, TopicNotFound
from penstock.spark.errors import DataLoss
from penstock.spark.jobs.archiving import archive
from penstock.spark.jobs.compacting import compact
from penstock.spark.jobs.parts import Part, rounds
from penstock.spark.jobs.place import Place
from penstock.spark.jobs.replay_files import Files
from penstock.spark.jobs.replaying import replay
from tests.cli.harness import PENSTOCK
from tests.server.harness import free_port, until
from tests.sharding import home_of
from tests.spark.harness import Served, of_all_kinds

Copy = tuple[int, bytes | None, bytes, dict[str, str], int]


@pytest.fixture
def place(server: Served) -> Place:
    return Place(servers=server.address)


def copies(client: Client, topic: str) -> list[Copy]:
    """What a topic holds, in order: partition, key, value, headers, priority."""
    return [(m.partition, m.key, m.value, dict(m.headers or {}), m.priority) for m in client.read(topic)]


def expected(messages: Iterable[penstock.StoredMessage]) -> list[Copy]:
    """What a replay with the defaults should make of messages."""
    return [
        (m.partition, m.key, m.value, {**(m.headers or {}), "penstock-origin": str(m.id)}, m.priority) for m in messages
    ]


def test_a_window_is_replayed_once_in_order_with_the_ids_of_the_originals(
    spark: SparkSession, server: Served, place: Place
) -> None:
    client = server.client
    client.create_topic("t", partitions=3)
    client.publish_many("t", of_all_kinds(400))
    server.broker.settle()
    for n in range(60):  # the tail in the journal, in more than one partition
        client.publish("t", f"late {n}", partition=n % 3)
    outcome = replay(spark, place, "t", to_topic="copy")
    assert copies(client, "copy") == expected(client.read("t"))
    assert outcome.summary == {"topic": "t", "to": "copy", "messages": 460, "chosen": 460}
    again = replay(spark, place, "t", to_topic="copy")
    assert (again.summary, again.rows) == (outcome.summary, outcome.rows)
    assert "replayed before" in again.notes[0]
    assert len(copies(client, "copy")) == 460
    client.publish_many("t", ["new 1", "new 2"])
    replay(spark, place, "t", to_topic="copy")  # without an end it brings what is new
    found, wanted = copies(client, "copy"), expected(client.read("t"))
    assert [[c for c in found if c[0] == p] for p in range(3)] == [[c for c in wanted if c[0] == p] for p in range(3)]
    replay(spark, place, "t", to_topic="copy", name="once more", to_offset=5)
    assert len(copies(client, "copy")) == 462 + 15


def test_sql_chooses_and_makes_what_is_published(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path
) -> None:
    client = server.client
    client.create_topic("t", partitions=2)
    client.create_topic("one", partitions=1)
    client.publish_many("t", [penstock.Message(f"{n}", key=f"k{n % 3}" if n % 2 else None) for n in range(100)])
    server.broker.settle()
    options: dict[str, Any] = {
        "to_topic": "one",
        "where": "CAST(CAST(value AS STRING) AS INT) % 5 = 0 AND offset >= 3",
        "select": ["concat('n', CAST(value AS STRING)) AS value", "key", "map('m', '1') AS headers", "7 AS priority"],
        "to_offset": 40,
    }
    dry = replay(spark, place, "t", dry_run=True, **options)
    assert copies(client, "one") == []
    outcome = replay(spark, place, "t", **options)
    segments = str(home_of(tmp_path / "data", "t") / "topics/t/messages/*/*.parquet")
    rows = duckdb.execute(
        f"""SELECT 0, key, encode('n' || decode(value)), 't/' || partition || '/' || "offset", 7
        FROM read_parquet('{segments}')
        WHERE decode(value)::INT % 5 = 0 AND "offset" >= 3 AND "offset" < 40 ORDER BY partition, "offset" """
    ).fetchall()
    assert copies(client, "one") == [
        (place, key, value, {"m": "1", "penstock-origin": origin}, lane) for place, key, value, origin, lane in rows
    ]
    assert outcome.summary["chosen"] == dry.summary["chosen"] == len(rows)
    assert outcome.rows == dry.rows and dry.dry_run
    assert outcome.summary["messages"] == sum(min(40, info.end_offset) for info in _partitions(client, "t"))


def _partitions(client: Client, topic: str) -> tuple[Any, ...]:
    return next(info for info in client.topics() if info.name == topic).partitions


def test_large_replays_go_through_sparks_own_writes_in_the_same_order(
    spark: SparkSession, server: Served, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.jobs.replaying._SMALL_ROWS", 0)
    monkeypatch.setattr("penstock.spark.jobs.replaying._PART_ROWS", 100)
    client = server.client
    client.create_topic("t", partitions=2)
    client.publish_many("t", of_all_kinds(200))
    server.broker.settle()
    client.publish_many("t", of_all_kinds(30, 200, delayed=False))
    replay(spark, place, "t", to_topic="copy", to_offset=150)
    assert copies(client, "copy") == expected(m for m in client.read("t") if m.offset < 150)


def test_what_retention_archived_is_replayed_and_what_it_removed_is_told(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path
) -> None:
    client = server.client
    client.create_topic("t", partitions=2, retention_age=0, archive=str(tmp_path / "archive"))
    for part in range(2):
        client.publish_many("t", of_all_kinds(50, 50 * part, delayed=False))
        server.broker.settle()
        server.broker.retain()
    client.publish_many("t", ["live 1", "live 2"])
    wanted = expected(client.read("t", include_deleted=True))
    assert len(list(client.read("t"))) == 2
    replay(spark, place, "t", to_topic="copy")
    assert copies(client, "copy") == wanted
    client.create_topic("u", retention_age=0)
    client.publish_many("u", ["gone"])
    server.broker.settle()
    server.broker.retain()
    client.publish("u", "here")
    with pytest.raises(DataLoss, match=r"u/0 from 0 to 0\. The first that is still there is u/0/1"):
        replay(spark, place, "u", to_topic="none", from_offset=0)
    assert "none" not in {info.name for info in client.topics()}


def test_a_replay_goes_on_if_only_what_it_had_done_is_gone_and_tells_if_more_is(
    spark: SparkSession, server: Served, place: Place
) -> None:
    client = server.client

    def publish_and_lose(count: int) -> None:
        client.publish_many("t", [f"{n}" for n in range(count)])
        server.broker.settle()
        server.broker.retain()

    client.create_topic("t", retention_age=0)
    client.publish_many("t", ["a", "b", "c"])
    for start in (None, 0):
        replay(spark, place, "t", to_topic=f"copy-{start}", from_offset=start)
    server.broker.settle()
    server.broker.retain()
    client.publish_many("t", ["d", "e"])
    for start in (None, 0):
        replay(spark, place, "t", to_topic=f"copy-{start}", from_offset=start)
        assert [message.value for message in client.read(f"copy-{start}")] == [b"a", b"b", b"c", b"d", b"e"]
    publish_and_lose(5)
    client.publish("t", "z")
    for start in (None, 0):
        with pytest.raises(DataLoss, match="t/0 from 5 to 9"):
            replay(spark, place, "t", to_topic=f"copy-{start}", from_offset=start)


def test_a_lake_has_what_is_gone_from_the_topic_and_nothing_is_there_twice(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path
) -> None:
    client, lake = server.client, str(tmp_path / "lake")
    client.create_topic("t", partitions=2, retention_age=0)
    client.publish_many("t", of_all_kinds(60, delayed=False))
    wanted = expected(client.read("t"))
    server.broker.settle()
    archive(spark, place, ["t"], lake)
    server.broker.retain()
    client.publish_many("t", of_all_kinds(30, 60, delayed=False))
    wanted += expected(client.read("t"))
    replay(spark, place, "t", to_topic="copy", lake=lake)
    found = copies(client, "copy")
    for number in (0, 1):
        assert [c for c in found if c[0] == number] == [c for c in wanted if c[0] == number]
    assert len(found) == 90
    compact(spark, lake, ["t"], keep="latest")
    client.delete_topic("t")
    outcome = replay(spark, place, "t", to_topic="latest", lake=lake)
    latest = {copy[1] or copy[3]["penstock-origin"]: copy for copy in wanted[:60]}
    assert sorted(copy[3]["penstock-origin"] for copy in copies(client, "latest")) == sorted(
        copy[3]["penstock-origin"] for copy in latest.values()
    )
    assert outcome.summary["chosen"] == len(latest)


def test_partitions_are_cut_side_by_side_and_whole() -> None:
    windows = [Part(0, 10, 20), Part(1, 0, 3), Part(2, 5, 5)]
    cut = list(rounds(windows, 4))
    for window in windows:
        mine = [part for some in cut for part in some if part.partition == window.partition]
        assert [o for part in mine for o in range(part.start, part.end)] == list(range(window.start, window.end))
    assert list(rounds(windows, 0)) == []


@pytest.mark.crash
def test_a_replay_that_is_killed_goes_on_where_it_was_and_nothing_is_there_twice(
    spark: SparkSession, server: Served, place: Place
) -> None:
    client = server.client
    client.create_topic("t", partitions=2)
    client.publish_many("t", of_all_kinds(300))
    words = ["job", "replay", "t", "--to-topic", "copy", "--where", "offset % 7 <> 1", "--rate", "40"]
    with subprocess.Popen([PENSTOCK, *words, "--server", server.address], start_new_session=True) as process:
        until(lambda: "copy" in {i.name for i in client.topics()} and copies(client, "copy"), "a first turn", 300)
        os.killpg(process.pid, signal.SIGKILL)
    first = copies(client, "copy")
    assert 0 < len(first) < 250
    replay(spark, place, "t", to_topic="copy", where="offset % 7 <> 1", rate=2000)
    assert copies(client, "copy") == expected(m for m in client.read("t") if m.offset % 7 != 1)


def _content(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.name != "_replay.json"}


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
def test_files_have_every_message_with_its_id_and_are_the_same_each_time(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.jobs.replay_files._FILE_ROWS", 12)
    client = server.client
    client.create_topic("t", partitions=2)
    client.publish_many("t", [m for m in of_all_kinds(100) if isinstance(m, penstock.Message) and m.value])
    options: dict[str, Any] = {"file_format": form, "where": "priority <> 3", "to_offset": 20}
    outcome = replay(spark, place, "t", to_files=str(tmp_path / "a"), **options)
    reader = {"parquet": "read_parquet", "jsonl": "read_json", "csv": "read_csv"}[form]
    found = duckdb.execute(f"SELECT * FROM {reader}('{tmp_path / 'a'}/*.{form}')").fetchall()
    wanted = [m for m in client.read("t") if m.priority != 3 and m.offset < 20]
    assert sorted(row[0] for row in found) == sorted(str(m.id) for m in wanted)
    by_id = {str(m.id): m for m in wanted}
    for identity, key, value, headers, priority in found:
        message = by_id[identity]
        assert _bytes(key) == message.key and _bytes(value) == message.value and priority == message.priority
        told = json.loads(headers) if isinstance(headers, str) else headers
        assert {n: t for n, t in (told or {}).items() if t is not None} == (message.headers or {}), form
    assert outcome.summary["chosen"] == len(wanted)
    client.publish("t", "later")
    again = replay(spark, place, "t", to_files=str(tmp_path / "a"), **options)
    assert (again.summary, list(again.rows)) == (outcome.summary, list(outcome.rows))
    if form == "parquet":
        server.broker.settle()
        replay(spark, place, "t", to_files=str(tmp_path / "b"), **options)
        assert _content(tmp_path / "a") == _content(tmp_path / "b")
        with pytest.raises(InvalidArgument, match="is there already, and is not of this replay"):
            replay(spark, place, "t", to_files=str(tmp_path / "a"), file_format=form)
    assert not [name for name in os.listdir(tmp_path) if "unfinished" in name]


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def test_files_go_on_after_an_interruption_for_the_window_that_they_began_with(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.jobs.replay_files._FILE_ROWS", 20)
    server.client.publish_many("t", [f"{n}" for n in range(60)])
    written: list[Path] = []
    whole = Files._write

    def fail_at_the_second(self: Files, rows: Any, target: Path) -> None:
        if len(written) == 1:
            raise OSError(28, "No space left on device", str(target))
        written.append(target)
        whole(self, rows, target)

    monkeypatch.setattr(Files, "_write", fail_at_the_second)
    with pytest.raises(DiskFull):
        replay(spark, place, "t", to_files=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(Files, "_write", whole)
    server.client.publish("t", "later")
    outcome = replay(spark, place, "t", to_files=str(tmp_path / "out"))
    assert outcome.summary["messages"] == 60
    assert duckdb.execute(f"SELECT count(*) FROM '{tmp_path}/out/*.parquet'").fetchall() == [(60,)]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"to_topic": "c", "where": "nothing = 1"}, InvalidArgument, "nothing"),
        ({"to_topic": "c", "where": "value = ("}, InvalidArgument, "yntax error"),
        ({"to_topic": "c", "where": "timestamp > now()"}, InvalidArgument, "the time at which it runs"),
        ({"to_topic": "c", "where": "rand() < 0.5"}, InvalidArgument, "chance"),
        ({"to_topic": "c", "select": ["row_number() OVER (ORDER BY offset) AS value"]}, InvalidArgument, "OVER"),
        ({"to_topic": "c", "select": ["key"]}, InvalidArgument, "no column value"),
        ({"to_topic": "c", "select": ["value", "array(1) AS headers"]}, InvalidArgument, "headers is MAP"),
        ({"to_topic": "c", "select": ["CAST(NULL AS STRING) AS value"]}, InvalidArgument, "value is NULL 1 times"),
        ({}, InvalidArgument, "one of the two"),
        ({"to_topic": "t"}, InvalidArgument, "into itself needs an end"),
        ({"to_files": "x", "rate": 5, "file_format": "xml"}, InvalidArgument, "(?s)rate: .*none of parquet"),
        ({"to_topic": "c", "from_time": "1h ago"}, InvalidArgument, "from_time"),
        ({"to_topic": "c", "partition": 7}, InvalidArgument, "no partition 7"),
        ({"to_topic": "c", "topic": "nobody"}, TopicNotFound, "nobody"),
        ({"to_topic": "c", "lake": "/nowhere"}, InvalidArgument, "/nowhere"),
        ({"to_topic": "c", "rate": -1}, InvalidArgument, "not a rate"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_published(
    spark: SparkSession, server: Served, place: Place, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    server.client.publish("t", "v")
    with pytest.raises(error, match=text):
        replay(spark, place, options.pop("topic", "t"), **options)
    assert [info.name for info in server.client.topics()] == ["t"]


def test_a_server_that_is_not_there_is_told(spark: SparkSession) -> None:
    with pytest.raises(ConnectionLost):
        replay(spark, Place(servers=f"127.0.0.1:{free_port()}"), "t", to_topic="c")
