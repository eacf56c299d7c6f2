"""Resharding that fails, or is killed: the original is as it was, and another run finishes it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cluster.directory import Step, read_division, shards_of, write_division
from penstock.cluster.resharding.comparison import CopyDiffers
from penstock.cluster.resharding.reshard import Resharded, reshard
from penstock.cluster.resharding.swap import BEFORE, COPY
from penstock.cluster.snapshots import Snapshots
from penstock.model.errors import (
    CorruptData,
    DirectoryLocked,
    DiskFull,
    InvalidArgument,
    PenstockError,
)
from penstock.shard.checkpoint_files import read_checkpoint, write_checkpoint
from penstock.storage import FileStorage
from penstock.storage.read_only import ReadOnlyStorage
from tests.cluster.resharding_harness import ONLY, contents, rich, to
from tests.cluster.rich_directory import open_at, portrait


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return rich(tmp_path / "data", 1)[0]


def killed_at(path: Path, shards: int, call: int) -> int:
    """Reshard in a process that is killed at a call that changes the disk; how many calls there were, if it was not."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child:
        os.close(write_end)
        os.waitpid(child, 0)
        with os.fdopen(read_end, "rb") as pipe:
            return int(pipe.read() or b"0")
    calls = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            nonlocal calls
            if calls == call:
                os.kill(os.getpid(), signal.SIGKILL)
            calls += 1
            return function(*args, **options)

        return run

    try:
        for name in ("rename", "link", "unlink", "rmdir", "mkdir", "fsync", "fdatasync", "pwritev", "open"):
            setattr(os, name, counted(getattr(os, name)))
        to(path, shards)
        os.write(write_end, str(calls).encode())
    finally:
        os._exit(0)


@pytest.mark.parametrize(("shards", "wanted"), [(1, 3), (3, 1), (2, 3)])
def test_killed_at_any_moment_it_finishes_when_it_is_run_again(shards: int, wanted: int, tmp_path: Path) -> None:
    data, clock = rich(tmp_path / "data", shards)
    with open_at(data, clock) as broker:
        expected = portrait(broker)
    before = contents(data)
    shutil.copytree(data, tmp_path / "whole")
    calls = killed_at(tmp_path / "whole", wanted, -1)
    assert calls > 100
    between = 0
    for call in sorted({*range(0, calls, calls // 10), *range(calls - 60, calls, 4)}):
        copy = tmp_path / str(call)
        shutil.copytree(data, copy)
        assert killed_at(copy, wanted, call) == 0
        division = read_division(FileStorage(copy))
        if division is not None and division.resharding is not None:
            between += 1
            with pytest.raises(InvalidArgument, match="run it again to finish it"):
                penstock.open(copy)
        elif not (copy / BEFORE).exists():  # it could be used as if nothing had been tried
            assert {name: known for name, known in contents(copy).items() if not name.startswith(COPY)} == before
        assert to(copy, wanted).shards == wanted
        assert not (copy / COPY).exists()
        assert contents(copy / BEFORE) == before
        with open_at(copy, clock) as broker:
            assert broker.shards.count == wanted
            assert portrait(broker) == expected, call
        shutil.rmtree(copy)
    assert between > 2


@pytest.mark.parametrize("failing", ["link", "pwritev", "rename"])
def test_an_error_of_the_disk_leaves_everything_as_it_was(
    failing: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(data)
    function, calls = getattr(os, failing), iter(range(5))

    def fail_later(*args: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return function(*args, **options)

    with monkeypatch.context() as patch, pytest.raises((OSError, PenstockError)) as raised:
        patch.setattr(os, failing, fail_later)
        to(data, 4)
    assert isinstance(raised.value, DiskFull) or "No space left" in str(raised.value)
    assert contents(data) == before
    assert to(data, 4).shards == 4


def test_ctrl_c_leaves_everything_as_it_was(data: Path) -> None:
    before = contents(data)

    def interrupt(what: str, done: int, total: int) -> None:
        if what.startswith("checking"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reshard(data, 4, interrupt)
    assert contents(data) == before


def test_a_copy_that_is_not_the_same_never_takes_the_place_of_the_original(data: Path) -> None:
    before = contents(data)

    def tamper(what: str, done: int, total: int) -> None:
        if what.startswith("checking"):
            for number in range(4):
                place = FileStorage(data / COPY / f"shards/{number}")
                checkpoint = read_checkpoint(place)
                for topic in checkpoint.topics if checkpoint is not None else ():
                    topic.producers = []
                assert checkpoint is not None
                write_checkpoint(place, checkpoint)

    with pytest.raises(CopyDiffers, match=r"topic-.*producers"):
        reshard(data, 4, tamper)
    assert contents(data) == before


def test_a_damaged_original_is_refused(data: Path) -> None:
    segment = next(data.glob("topics/*/messages/*/*.parquet"))
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 3] ^= 0xFF
    segment.write_bytes(damaged)
    before = contents(data)
    with pytest.raises(CorruptData, match=segment.name):
        to(data, 4)
    assert contents(data) == before


@pytest.mark.parametrize("shards", [1, 2])
def test_a_directory_that_a_broker_has_open_is_refused(shards: int, tmp_path: Path) -> None:
    with penstock.open(tmp_path, shards=shards, **ONLY) as broker:
        broker.publish("t", "v")
        with pytest.raises(DirectoryLocked):
            to(tmp_path, 3)
    place = FileStorage(tmp_path if shards == 1 else tmp_path / "shards/1")
    place.lock()  # as a process of several has it, though the one that started it is gone
    with pytest.raises(DirectoryLocked):
        to(tmp_path, 3)
    place.close()
    assert to(tmp_path, 3).shards == 3


def test_the_original_of_before_is_never_overwritten(data: Path) -> None:
    to(data, 4)
    before = contents(data)
    with pytest.raises(InvalidArgument, match="before-reshard is there"):
        to(data, 2)
    assert contents(data) == before


def test_the_number_that_it_has_is_nothing_to_do(data: Path) -> None:
    before = contents(data)
    assert to(data, 1) == Resharded(1, None, None)
    assert contents(data) == before


@pytest.mark.parametrize("shards", [0, 1025, True])
def test_a_number_that_is_none_is_refused(shards: int, data: Path) -> None:
    with pytest.raises(InvalidArgument, match="is not a whole number from 1 to 1024"):
        to(data, shards)


def test_a_directory_of_somebody_else_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(InvalidArgument, match="belongs to another user"):
        to(data, 2)


@pytest.mark.parametrize("step", list(Step))
def test_nobody_opens_a_directory_that_is_not_complete(step: Step, tmp_path: Path) -> None:
    with penstock.open(tmp_path, shards=2, **ONLY) as broker:
        broker.publish("t", "v")
    write_division(FileStorage(tmp_path), 3, step, 2)
    for opening in (penstock.open, Snapshots, lambda path: shards_of(ReadOnlyStorage(path))):
        with pytest.raises(InvalidArgument, match="`penstock reshard --shards 3` was interrupted"):
            opening(tmp_path)
