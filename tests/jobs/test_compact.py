"""`compact`: fewer files with the same rows, or the latest of each key; the old files go last."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.model.errors import CorruptData, InvalidArgument, TopicNotFound
from penstock.spark import read_topic
from penstock.spark.errors import DataLoss
from penstock.spark.jobs.archiving import archive
from penstock.spark.jobs.compacting import compact
from penstock.spark.jobs.place import Place
from penstock.spark.lake import layout
from penstock.spark.lake.log import LakeWriter, read_state
from penstock.testing import VirtualClock
from tests.jobs.test_lake import contents, query
from tests.spark.harness import ALL, Planned, of_all_kinds

COLUMNS = 'partition, "offset", key, value, priority, epoch_us(timestamp)'


class Data:
    """A data directory that gets messages of many keys over some days, and lakes of it."""

    def __init__(self, path: Path) -> None:
        self.path, self._clock = path, VirtualClock()
        with penstock.open(path / "data", clock=self._clock) as broker:
            broker.create_topic("t", partitions=2)

    def publish(self, count: int, first: int) -> None:
        with penstock.open(self.path / "data", clock=self._clock) as broker:
            for start in range(first, first + count, 50):
                broker.publish_many("t", of_all_kinds(min(50, first + count - start), start, delayed=False))
                self._clock.advance(20_000)
            with broker.consumer("t", "g") as consumer:
                consumer.ack(consumer.receive(10))

    def archive(self, spark: SparkSession, lake: str = "lake") -> Path:
        archive(spark, Place(path=str(self.path / "data")), ["t"], str(self.path / lake))
        return self.path / lake


@pytest.fixture
def data(tmp_path: Path) -> Data:
    return Data(tmp_path)


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setattr(layout, "FILE_ROWS", 16)
    yield monkeypatch


def rows(lake: Path) -> list[tuple[Any, ...]]:
    """Messages by the log of the lake."""
    return Planned(ALL, path=lake, subscribe="t").rows()


def by_duckdb(lake: Path) -> list[tuple[Any, ...]]:
    """The messages of all files that lie there."""
    return query(f"SELECT {COLUMNS} FROM read_parquet('{lake}/t/messages/*/*.parquet') ORDER BY ALL")


def test_L13_small_files_become_those_of_a_lake_that_never_had_any(
    spark: SparkSession, data: Data, small_files: pytest.MonkeyPatch
) -> None:
    data.publish(300, 0)
    lake = data.archive(spark)
    before, seen = contents(lake), rows(lake)
    small_files.setattr(layout, "FILE_ROWS", 64)
    expected = contents(data.archive(spark, "larger"))
    planned = compact(spark, str(lake), dry_run=True)
    assert contents(lake) == before
    outcome = compact(spark, str(lake))
    assert contents(lake) == expected
    assert rows(lake) == seen
    assert outcome.summary["rows_left_out"] == 0
    assert outcome.summary["to_files"] == planned.summary["to_files"] == len(expected) < len(before)
    assert [row[:8] for row in planned.rows] == [row[:8] for row in outcome.rows]
    state = read_state(lake, "t")
    assert state.commits == 2

    again = compact(spark, str(lake))
    assert (again.summary["files"], again.summary["to_files"]) == (len(expected), len(expected))
    assert read_state(lake, "t").commits == 2, "there was nothing to do"
    data.publish(100, 1000)
    assert contents(data.archive(spark)) == contents(data.archive(spark, "larger"))


def test_the_latest_message_of_each_key_stays_with_its_offset(spark: SparkSession, data: Data) -> None:
    data.publish(300, 0)
    lake = data.archive(spark)
    everything = pd.DataFrame(by_duckdb(lake), columns=["partition", "offset", "key", "value", "priority", "time"])
    keyed = everything[everything["key"].notna()]
    latest = keyed.loc[keyed.groupby(["partition", "key"])["offset"].idxmax()]
    expected = pd.concat([latest, everything[everything["key"].isna()]]).sort_values(["partition", "offset"])
    events = {name for name in contents(lake) if "/events/" in name}
    all_events = Planned(columns("event"), path=lake, subscribe="t", table="events").count

    planned = compact(spark, str(lake), ["t"], keep="latest", dry_run=True)
    outcome = compact(spark, str(lake), ["t"], keep="latest")
    places = [*zip(expected["partition"], expected["offset"], strict=True)]
    assert [row[:2] for row in by_duckdb(lake)] == places
    assert [row[3] for row in by_duckdb(lake)] == expected["value"].tolist()
    assert [row[1:3] for row in rows(lake)] == places
    found = read_topic(spark, "t", path=str(lake)).select("partition", "offset").collect()
    assert sorted(map(tuple, found)) == places
    left_out = len(everything) - len(expected)
    assert outcome.summary["rows_left_out"] == planned.summary["rows_left_out"] == left_out > 100
    assert Planned(columns("event"), path=lake, subscribe="t", table="events").count == all_events
    assert events

    state = read_state(lake, "t")
    for number in range(2):
        files = state.logs().get(("messages", number), [])
        assert (files[0].base, files[-1].end) == (0, everything[everything["partition"] == number]["offset"].max() + 1)
        assert all(one.end == other.base for one, other in pairwise(files))
        assert any(file.thinned for file in files)
    some = Planned(
        ALL, path=lake, assign='{"t": [0]}', startingOffsets='{"t": {"0": 50}}', endingOffsets='{"t": {"0": 90}}'
    )
    assert [row[2] for row in some.rows()] == [offset for number, offset in places if number == 0 and 50 <= offset < 90]

    commits = state.commits
    assert compact(spark, str(lake), keep="latest").summary["rows_left_out"] == 0
    assert read_state(lake, "t").commits == commits, "there was nothing to do"


def test_what_is_archived_after_a_compaction_is_added_and_compacted_with_the_rest(
    spark: SparkSession, data: Data, small_files: pytest.MonkeyPatch
) -> None:
    small_files.setattr(layout, "FILE_ROWS", 1024)
    data.publish(100, 0)
    lake = data.archive(spark)
    compact(spark, str(lake), keep="latest")
    few = rows(lake)
    data.publish(70, 1000)
    data.archive(spark)
    assert len(rows(lake)) == len(few) + 70
    everything = rows(lake)
    before = len(contents(lake))
    compact(spark, str(lake))
    assert rows(lake) == everything
    assert len(contents(lake)) <= before
    compact(spark, str(lake), keep="latest")
    keys: dict[tuple[int, bytes], int] = {}
    for row in everything:
        if row[4] is not None:
            keys[row[1], row[4]] = row[2]
    assert rows(lake) == [row for row in everything if row[4] is None or keys[row[1], row[4]] == row[2]]


def test_a_job_that_is_killed_at_its_commit_and_run_again_gives_the_same_lake(
    spark: SparkSession, data: Data, tmp_path: Path, small_files: pytest.MonkeyPatch
) -> None:
    data.publish(200, 0)
    lake = data.archive(spark)
    old, planned = contents(lake), Planned(ALL, path=lake, subscribe="t")
    put = LakeWriter._put

    def put_and_look(writer: LakeWriter, name: str, commit: bytes) -> None:
        shutil.copytree(lake, tmp_path / "before")
        put(writer, name, commit)
        shutil.copytree(lake, tmp_path / "after")

    small_files.setattr(LakeWriter, "_put", put_and_look)
    compact(spark, str(lake), keep="latest")
    small_files.undo()
    small_files.setattr(layout, "FILE_ROWS", 16)
    new = contents(lake)
    for moment, commits in (("before", 1), ("after", 2)):
        left = tmp_path / moment
        assert {*old, *new} <= {*contents(left)}, "all files are there, and only a commit decides"
        assert read_state(left, "t").commits == commits
        assert {f"t/{name}" for name in read_state(left, "t").files} == {*(old if commits == 1 else new)}
        compact(spark, str(left), keep="latest")
        assert contents(left) == new
    with pytest.raises(DataLoss):
        planned.rows()  # of what was there before: an error, never a part of it


def test_a_lake_with_a_damaged_file_stays_as_it_is(spark: SparkSession, data: Data) -> None:
    data.publish(100, 0)
    lake = data.archive(spark)
    name = next(name for name in contents(lake) if "/messages/" in name)
    damaged = bytearray((lake / name).read_bytes())
    damaged[40] ^= 1
    (lake / name).write_bytes(damaged)
    before = contents(lake)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "FILE_ROWS", 64)
        with pytest.raises(penstock.PenstockError, match="does not match its checksum"):
            compact(spark, str(lake))
    assert contents(lake) == before
    (lake / name).unlink()
    with pytest.raises(CorruptData, match=f"{Path(name).name}.*missing"):
        compact(spark, str(lake))


def test_what_is_no_lake_is_refused(spark: SparkSession, data: Data, tmp_path: Path) -> None:
    (tmp_path / "cold/t/messages/0").mkdir(parents=True)
    for place in ("cold", "data"):
        with pytest.raises(InvalidArgument, match="archive the topics into a lake first"):
            compact(spark, str(tmp_path / place))
    with pytest.raises(InvalidArgument, match="is no lake: it has no"):
        compact(spark, str(tmp_path / "nothing"))
    lake = data.archive(spark)
    with pytest.raises(TopicNotFound, match="no topic 'x' in the lake"):
        compact(spark, str(lake), ["t", "x"])
    with pytest.raises(InvalidArgument, match="'newest' is none of all, latest"):
        compact(spark, str(lake), keep="newest")


def columns(names: str) -> Any:
    from tests.spark.harness import columns_of

    return columns_of(names, "events")
