"""The lake itself: files that depend on the rows alone, commits that count, and what happens when some are damaged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pandas as pd
import pyarrow as pa
import pytest

from penstock.model.errors import CorruptData, DirectoryLocked, TopicNotFound
from penstock.segments.schema import EVENTS, MESSAGES
from penstock.spark.errors import JobFailed
from penstock.spark.finding import origin_at
from penstock.spark.jobs.auditing.sides import joined
from penstock.spark.lake import cutting
from penstock.spark.lake.layout import DAY_US, LakeFile, Limits, date_of
from penstock.spark.lake.log import LakeWriter, lake_topics, read_state
from penstock.spark.lake.origin import LakeOrigin
from penstock.spark.lake.writing import LogPlace, read_back, rows_of, write_files
from penstock.spark.options import Secrets
from tests.spark.harness import Planned

BEGIN_US = 20_000 * DAY_US - 3_000_000
SMALL = Limits(16, 1 << 20)


def messages(count: int, *, start: int = 0, step_us: int = 100_000, seed: int = 1, large: int = 0) -> pa.Table:
    """Messages of every kind, of which some are after midnight."""
    chance = random.Random(seed)
    places = range(start, start + count)
    return pa.table(
        [
            pa.array(places, pa.int64()),
            pa.array([BEGIN_US + place * step_us for place in places], MESSAGES.field("timestamp").type),
            pa.array([None if chance.random() < 0.3 else b"%d" % chance.randrange(9) for _ in places], pa.binary()),
            pa.array([chance.randbytes(chance.randrange(large + 20)) for _ in places], pa.binary()),
            pa.array(
                [None if chance.random() < 0.5 else [("é", "x" * chance.randrange(30))] for _ in places],
                MESSAGES.field("headers").type,
            ),
            pa.array([chance.randrange(256) for _ in places], pa.int16()),
            pa.array([None] * count, MESSAGES.field("deliver_at").type),
            pa.array([None] * count, MESSAGES.field("expires_at").type),
            pa.array([None if n % 2 else f"id {n}" for n in places], pa.string()),
            pa.array([2] * count, pa.int32()),
        ],
        schema=MESSAGES,
    )


def events(count: int) -> pa.Table:
    """Events, of which some speak of scattered offsets."""
    time = EVENTS.field("time").type
    return pa.table(
        [
            pa.array(range(count), pa.int64()),
            pa.array([BEGIN_US + n * 100_000 for n in range(count)], time),
            pa.array(["acked"] * count),
            pa.array(range(count), pa.int64()),
            pa.array([1] * count, pa.int64()),
            pa.array(range(count), pa.int64()),
            pa.array(["g"] * count),
            pa.array([None] * count, pa.string()),
            pa.array([0] * count, pa.int32()),
            pa.array([None if n % 3 else "why" * n for n in range(count)], pa.string()),
            pa.array([None] * count, time),
            pa.array([[n, n + 2] if n % 2 else None for n in range(count)], EVENTS.field("offsets").type),
            pa.array([2] * count, pa.int32()),
        ],
        schema=EVENTS,
    )


def batches(table: pa.Table, seed: int) -> Iterator[pa.RecordBatch]:
    """The rows in pieces of any size, some of which share their buffers."""
    chance = random.Random(seed)
    at = 0
    while at < len(table):
        part = table.slice(at, chance.choice([1, 2, 7, 31, 200]))
        at += len(part)
        whole = part.combine_chunks() if chance.random() < 0.5 else pa.concat_tables([part, part]).slice(0, len(part))
        yield from whole.to_batches()


def place(root: Path, table: str = "messages") -> LogPlace:
    return LogPlace(str(root), "t", table, 2)


def contents(root: Path) -> dict[str, bytes]:
    """Every file of a lake but its log, byte by byte."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "_log" not in path.parts
    }


def made(root: Path, count: int = 100, **options: Any) -> list[LakeFile]:
    """A lake with messages and events of one partition."""
    with LakeWriter(root, "t") as writer:
        files = write_files(place(root), messages(count, **options).to_batches(), SMALL)
        files += write_files(place(root, "events"), events(20).to_batches(), SMALL)
        writer.commit("archive", files, [], partitions=3)
    return files


@pytest.mark.parametrize("large", [0, 20_000])
def test_which_files_there_are_depends_on_the_rows_alone(
    tmp_path: Path, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "ROW_GROUP_ROWS", 10)
    monkeypatch.setattr(cutting, "ROW_GROUP_BYTES", {"messages": 60_000, "events": 500})
    limit = Limits(64, 400_000)
    for table, rows in (("messages", messages(300, large=large)), ("events", events(150))):
        for seed in range(5):
            write_files(place(tmp_path / str(seed), table), batches(rows, seed), limit)
    expected = contents(tmp_path / "0")
    assert len(expected) > 8
    for seed in range(1, 5):
        assert contents(tmp_path / str(seed)) == expected


@pytest.mark.parametrize("large", [0, 20_000])
def test_files_that_go_on_where_an_open_one_ended_are_those_of_one_run(
    tmp_path: Path, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "ROW_GROUP_ROWS", 10)
    monkeypatch.setattr(cutting, "ROW_GROUP_BYTES", {"messages": 60_000})
    limit, rows, at_once = Limits(64, 400_000), messages(300, large=large), place(tmp_path / "once")
    expected = write_files(at_once, rows.to_batches(), limit)
    for seed in range(4):
        chance, log = random.Random(seed), place(tmp_path / str(seed))
        files: list[LakeFile] = []
        at = 0
        while at < len(rows):
            new = rows.slice(at, chance.randrange(1, 100))
            at += len(new)
            tail = files.pop() if files and files[-1].is_open(limit) else None
            old = [] if tail is None else [*rows_of(log, tail)]
            files += write_files(log, [*old, *new.to_batches()], limit)
        assert files == expected
        assert {file.name: (log.topic_root / file.name).read_bytes() for file in files} == {
            name.removeprefix("t/"): data for name, data in contents(tmp_path / "once").items()
        }


def test_a_file_is_a_run_of_offsets_of_one_date(tmp_path: Path) -> None:
    table = pa.concat_tables([messages(100), messages(10, start=105)])
    files = write_files(place(tmp_path), table.to_batches(), SMALL)
    assert [(file.base, file.end) for file in files] == [
        *[(0, 16), (16, 30), (30, 32), (32, 48), (48, 64), (64, 80), (80, 96), (96, 100), (105, 112), (112, 115)]
    ]
    for file in files:
        rows = pa.Table.from_batches(rows_of(place(tmp_path), file))
        assert rows.column("offset").to_pylist() == list(range(file.base, file.end))
        assert {date_of(time.value) for time in rows.column("timestamp")} == {file.date}
        assert read_back((place(tmp_path), file)) == file.rows
    assert joined((file.base, file.end) for file in files) == [(0, 100), (105, 115)]


def test_what_is_in_the_lake_is_what_the_commits_say(tmp_path: Path) -> None:
    files = made(tmp_path)
    leftover = tmp_path / "t" / files[0].name.replace("/2-", "/1-")
    shutil.copy(tmp_path / "t" / files[0].name, leftover)
    (tmp_path / "t/_new").mkdir()
    (tmp_path / "t/_new/half").write_bytes(b"x")
    state = read_state(tmp_path, "t")
    assert sorted(state.files) == sorted(file.name for file in files)
    layout = LakeOrigin(str(tmp_path)).layout("t")
    assert [(log.first, log.end) for log in layout.messages] == [(0, 0), (0, 0), (0, 100)]
    assert [(log.first, log.end) for log in layout.events] == [(0, 0), (0, 0), (0, 20)]
    with LakeWriter(tmp_path, "t"):
        pass
    assert not leftover.exists()
    assert not (tmp_path / "t/_new").exists()
    assert len(contents(tmp_path)) == len(files)


def test_a_commit_replaces_files_and_then_they_go(tmp_path: Path) -> None:
    files = made(tmp_path)
    old = [file for file in files if file.table == "messages"][:2]
    with LakeWriter(tmp_path, "t") as writer:
        new = write_files(place(tmp_path), messages(16, seed=2).to_batches(), SMALL)
        assert all((tmp_path / "t" / file.name).exists() for file in old)
        writer.commit("merge", new, old[:1], partitions=3)
    assert not (tmp_path / "t" / old[0].name).exists()
    state = read_state(tmp_path, "t")
    assert (state.commits, state.logs()["messages", 2][0]) == (2, new[0])


def test_two_writers_cannot_both_win(tmp_path: Path) -> None:
    made(tmp_path)
    first, second = LakeWriter(tmp_path, "t"), LakeWriter(tmp_path, "t")
    with first:
        with pytest.raises(DirectoryLocked, match="another job is writing"), second:
            pass
        # Where locks do not reach, as between machines without them, the commits decide.
        second.state = read_state(tmp_path, "t")
        first.commit("archive", [], [], partitions=4)
        with pytest.raises(JobFailed, match="another job has written"):
            second.commit("archive", [], [], partitions=5)
        second.state = read_state(tmp_path, "t")
        with pytest.raises(JobFailed, match="another job has written"):
            second._put("_log/00000000000000000001.json", b"x")
    assert read_state(tmp_path, "t").partitions == 4


def test_a_commit_that_names_what_is_not_there_is_not_made(tmp_path: Path) -> None:
    made(tmp_path)
    with LakeWriter(tmp_path, "t") as writer:
        gone = msgspec.structs.replace(next(iter(writer.state.files.values())), partition=1)
        with pytest.raises(CorruptData, match="missing"):
            writer.commit("archive", [gone], [], partitions=3)
    assert read_state(tmp_path, "t").commits == 1


def test_a_damaged_commit_is_told(tmp_path: Path) -> None:
    made(tmp_path)
    commit = tmp_path / "t/_log/00000000000000000000.json"
    good = commit.read_bytes()
    for position in range(0, len(good) - 1, 29):
        commit.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        if commit.read_bytes().split() != good.split():
            with pytest.raises(CorruptData, match=r"00000000000000000000\.json"):
                read_state(tmp_path, "t")
    commit.write_bytes(good[:-10])
    with pytest.raises(CorruptData, match="not a commit"):
        LakeOrigin(str(tmp_path)).layout("t")


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_commit_is_told(tmp_path: Path, number: int) -> None:
    made(tmp_path)
    with LakeWriter(tmp_path, "t") as writer:
        for partitions in (4, 5):
            writer.commit("archive", [], [], partitions=partitions)
    (tmp_path / f"t/_log/{number:020d}.json").unlink()
    with pytest.raises(CorruptData, match=rf"{number:020d}\.json.*the commit is missing"):
        LakeOrigin(str(tmp_path)).layout("t")
    (tmp_path / "t/_log" / f"{2:020d}.json").rename(tmp_path / f"t/_log/{number:020d}.json")
    with pytest.raises(CorruptData, match="does not follow"):
        LakeOrigin(str(tmp_path)).layout("t")


def test_damaged_and_missing_files_are_told(tmp_path: Path) -> None:
    files = made(tmp_path)
    lost = tmp_path / "t" / files[3].name
    good = lost.read_bytes()
    lost.unlink()
    with pytest.raises(CorruptData, match=f"{lost.name}.*missing"):
        Planned(path=tmp_path, subscribe="t")
    lost.write_bytes(good[:-1])
    with pytest.raises(CorruptData, match=f"{lost.name}.*bytes instead of"):
        Planned(path=tmp_path, subscribe="t")
    for position in (10, len(good) - 20):
        lost.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with pytest.raises(CorruptData, match=lost.name):
            Planned(path=tmp_path, subscribe="t").rows()


def test_a_lake_is_found_by_its_log_and_names_its_topics(tmp_path: Path) -> None:
    made(tmp_path)
    origin = origin_at(None, str(tmp_path), Secrets())
    assert isinstance(origin, LakeOrigin)
    assert origin.topic_names() == lake_topics(tmp_path) == ["t"]
    with pytest.raises(TopicNotFound, match="no topic 'u' in the lake"):
        origin.layout("u")


def test_L12_times_are_found_as_by_a_scan(tmp_path: Path) -> None:
    made(tmp_path)
    origin = LakeOrigin(str(tmp_path))
    for n in (0, 1, 15, 16, 29, 30, 99):
        time_us = BEGIN_US + n * 100_000
        assert origin.offset_at("t", 2, time_us, include_deleted=False) == n
        assert origin.offset_at("t", 2, time_us + 1, include_deleted=False) == n + 1
    from_time = Planned(path=tmp_path, subscribe="t", startingTimestamp=datetime.fromtimestamp(20_000 * 86400, UTC))
    assert from_time.places() == [("t", 2, n) for n in range(30, 100)]


def query(sql: str) -> list[tuple[Any, ...]]:
    """What DuckDB answers."""
    with duckdb.connect() as connection:
        return connection.execute(sql).fetchall()


def test_L13_duckdb_and_pandas_read_a_lake_as_a_hive_table(tmp_path: Path) -> None:
    made(tmp_path)
    expected = messages(100)
    table = f"read_parquet('{tmp_path}/t/messages/*/*.parquet', hive_partitioning=true)"
    assert [row[0] for row in query(f"DESCRIBE SELECT * FROM {table}")] == [*MESSAGES.names, "date"]
    by_duckdb = query(f'SELECT "offset", value, partition, date FROM {table} ORDER BY "offset"')
    days = [date_of(time.value) for time in expected.column("timestamp")]
    values = expected.column("value").to_pylist()
    assert [(offset, value, number, str(day)) for offset, value, number, day in by_duckdb] == [
        *zip(range(100), values, [2] * 100, days, strict=True)
    ]

    by_pandas = pd.read_parquet(tmp_path / "t/messages").sort_values("offset")
    assert by_pandas["offset"].tolist() == list(range(100))
    assert by_pandas["value"].tolist() == values
    assert by_pandas["date"].astype(str).tolist() == days
    assert set(by_pandas["partition"]) == {2}
    assert len(pd.read_parquet(tmp_path / "t/events")) == 20
    events = f"read_parquet('{tmp_path}/t/events/*/*.parquet', hive_partitioning=true)"
    assert query(f"SELECT kind, count(*) FROM {events} GROUP BY kind") == [("acked", 20)]


def test_a_file_that_is_read_back_must_have_its_rows(tmp_path: Path) -> None:
    files = made(tmp_path)
    with pytest.raises(CorruptData, match="16 rows instead of 15"):
        read_back((place(tmp_path), msgspec.structs.replace(files[0], rows=15)))


def test_thinned_files_stand_for_all_places_and_nothing_is_missing(tmp_path: Path) -> None:
    rows = messages(100).filter(pa.compute.equal(pa.compute.bit_wise_and(messages(100).column("offset"), 7), 3))
    with LakeWriter(tmp_path, "t") as writer:
        files = write_files(place(tmp_path), rows.to_batches(), SMALL, cover=(0, 100))
        writer.commit("latest", files, [], partitions=3)
    assert [(file.base, file.end, file.rows) for file in files] == [(0, 28, 4), (28, 100, 9)]
    planned = Planned(path=tmp_path, subscribe="t")
    assert [offset for _, _, offset in planned.places()] == list(range(3, 100, 8))
    some = Planned(path=tmp_path, assign='{"t": [2]}', startingOffsets='{"t": {"2": 12}}')
    assert [offset for _, _, offset in some.places()] == list(range(19, 100, 8))
    assert [file.is_open(SMALL) for file in files] == [False, False]
