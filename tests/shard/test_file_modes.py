"""Who may read the files of a broker."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.server.access.tokens import TokenFile
from tests.shard.harness import settling

OPTIONS: dict[str, Any] = {"topic_defaults": {"retention_bytes": 0, "archive": "../archive"}, "segment_min_bytes": 0}


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(*roots: Path) -> dict[str, int]:
    """The modes of everything there, by what it is."""
    found = {path: stat.S_IMODE(path.stat().st_mode) for root in roots for path in [root, *root.rglob("*")]}
    return {str(path): mode | (path.is_dir() << 12) for path, mode in found.items()}


def live(path: Path, readable_by: str | None) -> None:
    """Make files of every kind."""
    options: dict[str, Any] = {} if readable_by is None else {"readable_by": readable_by}
    with settling(path, **OPTIONS, **options) as opened:
        opened.publish("one", "two")
        opened.broker.settle()
        opened.broker.retain()
        opened.publish("three", topic="other")
        opened.broker.settle()
        opened.broker.stage_many("a", "t", ["staged"])
        opened.broker.stage_many("b", "t", ["staged"])
        opened.broker.seal_stage("b")
        opened.publish("four")
        assert opened.child is not None


def test_nobody_but_the_owner_reads_data_unless_that_is_wanted(tmp_path: Path) -> None:
    path, archive = tmp_path / "new" / "data", tmp_path / "new" / "archive"
    live(path, None)
    TokenFile(path).create("admin", ["admin"])
    kinds = [file.suffix or file.name for root in (path, archive) for file in root.rglob("*") if file.is_file()]
    for kind in ("LOCK", ".journal", "checkpoint-a", ".parquet", ".open", ".sealed", ".json"):
        assert kind in kinds
    assert any(archive.rglob("*.parquet"))
    assert set(modes(path.parent).values()) == {0o600, 0o700 | 1 << 12}


@pytest.mark.parametrize(("readable_by", "file", "directory"), [("group", 0o640, 0o750), ("all", 0o644, 0o755)])
def test_others_read_data_where_that_is_configured_but_not_tokens(
    tmp_path: Path, readable_by: str, file: int, directory: int
) -> None:
    path, archive = tmp_path / "data", tmp_path / "archive"
    live(path, readable_by)
    assert set(modes(path, archive).values()) == {file, directory | 1 << 12}
    TokenFile(path).create("admin", ["admin"])
    assert stat.S_IMODE((path / "tokens.json").stat().st_mode) == 0o600


@pytest.mark.one_shard("it names the files of the one shard")
def test_what_is_there_already_keeps_its_mode(tmp_path: Path) -> None:
    live(tmp_path / "data", "all")
    kept = ["data", "data/LOCK", "data/topics", "data/topics/other/messages", "archive"]
    with penstock.open(tmp_path / "data") as broker:
        broker.publish("other", "five")
        broker.settle()
    now = modes(tmp_path / "data", tmp_path / "archive")
    assert [now[str(tmp_path / name)] & 0o777 for name in kept] == [0o755, 0o644, 0o755, 0o755, 0o755]
    newest = max((tmp_path / "data/topics/other/messages/0").iterdir())
    assert [now[str(path)] for path in (newest, tmp_path / "data/checkpoint-a")] == [0o600, 0o600]


def test_a_directory_that_tokens_are_made_in_first_is_for_its_owner(tmp_path: Path) -> None:
    TokenFile(tmp_path / "data").create("admin", ["admin"])
    assert modes(tmp_path / "data")[str(tmp_path / "data")] & 0o777 == 0o700


def test_a_word_that_is_no_reader_is_refused(tmp_path: Path) -> None:
    with pytest.raises(penstock.InvalidArgument, match="readable_by"):
        penstock.open(tmp_path / "data", readable_by="0644")
