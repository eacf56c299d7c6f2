"""How a directory is divided: once, for good, and told clearly."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

import penstock
from penstock.cluster.directory import divide
from penstock.model.errors import CorruptData, DirectoryLocked, InvalidArgument
from penstock.model.placement import shard_of
from penstock.storage import FileStorage
from penstock.testing import FaultyStorage, MemoryStorage


def test_a_new_directory_is_one_shard_as_it_always_was(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    if pytestconfig.option.shards > 1:
        pytest.skip("here it is divided")
    with penstock.open(tmp_path) as broker:
        broker.publish("t", "v")
    assert not (tmp_path / "penstock.json").exists()
    assert {"journal", "checkpoint-a"} <= {path.name for path in tmp_path.iterdir()}
    with penstock.open(tmp_path, shards=1) as broker:
        assert [message.value for message in broker.read("t")] == [b"v"]


def test_a_divided_directory_says_so_and_has_a_directory_for_each_shard(tmp_path: Path) -> None:
    with penstock.open(tmp_path, shards=3) as broker:
        broker.publish("t", "v")
    assert json.loads((tmp_path / "penstock.json").read_text()) == {"version": 1, "shards": 3}
    assert sorted(path.name for path in (tmp_path / "shards").iterdir()) == ["0", "1", "2"]
    for number in range(3):
        assert (tmp_path / f"shards/{number}/checkpoint-a").exists()
    (home,) = (tmp_path / "shards").glob("*/journal")
    assert home.parent.name == str(shard_of("t", 3))
    with penstock.open(tmp_path) as broker:  # nobody has to say it again
        assert len(broker.shards) == 3
        assert [message.value for message in broker.read("t")] == [b"v"]


@pytest.mark.parametrize(("made", "asked"), [(None, 2), (1, 4), (2, 3), (3, 1)])
def test_the_number_of_shards_is_fixed(made: int | None, asked: int, tmp_path: Path) -> None:
    with penstock.open(tmp_path, shards=made) as broker:
        broker.publish("t", "v")
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    with pytest.raises(InvalidArgument, match=f"not with {asked}: their number is fixed"):
        penstock.open(tmp_path, shards=asked)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before
    with penstock.open(tmp_path) as broker:  # and it is not locked
        assert len(list(broker.read("t"))) == 1


@pytest.mark.parametrize("shards", [0, -1, 1025, True, 2.0, "2"])
def test_a_number_of_shards_that_is_none_is_refused(shards: object, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="is not a whole number from 1 to 1024"):
        penstock.open(tmp_path / "new", shards=shards)  # type: ignore[arg-type]
    assert not list((tmp_path / "new").iterdir())


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "does not say how"),
        (b"[]", "does not say how"),
        (b'{"version": 1}', "does not say how"),
        (b'{"version": 2, "shards": 4}', "newer Penstock"),
        (b'{"version": 1, "shards": 0}', "not a number of shards"),
        (b'{"version": 1, "shards": 99999}', "not a number of shards"),
        (b"\xff" * 100, "does not say how"),
    ],
)
def test_what_cannot_be_understood_is_not_guessed(data: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "penstock.json").write_bytes(data)
    with pytest.raises(CorruptData, match=problem):
        penstock.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["penstock.json"]


def test_a_divided_directory_has_one_owner_as_a_whole(tmp_path: Path) -> None:
    with penstock.open(tmp_path, shards=2):
        with pytest.raises(DirectoryLocked, match="in use by another broker"):
            penstock.open(tmp_path)
        with pytest.raises(DirectoryLocked):
            penstock.open(tmp_path / "shards/1")
    with penstock.open(tmp_path):
        pass


def test_a_shard_that_cannot_be_opened_leaves_the_others_closed(tmp_path: Path) -> None:
    penstock.open(tmp_path, shards=3).close()
    other = FileStorage(tmp_path / "shards/2")
    other.lock()
    with pytest.raises(DirectoryLocked):
        penstock.open(tmp_path)
    other.close()
    with penstock.open(tmp_path) as broker:
        broker.publish("t", "v")


def test_a_power_cut_while_it_is_divided_leaves_it_divided_or_new() -> None:
    """What stands on disk after any number of operations is either nothing, or all that is needed."""
    found = set()
    for seed in range(60):
        storage = FaultyStorage(seed)
        storage.cut_power_after(seed % 6)
        with contextlib.suppress(OSError):
            divide(storage, 4)
        again = storage.crash()
        places = divide(again, None)
        found.add(len(places))
        again.close()
    assert found == {1, 4}


def test_a_storage_in_memory_can_be_divided_too() -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, shards=4) as broker:
        for number in range(20):
            broker.publish(f"t{number}", "v")
    with penstock.open(storage=storage) as broker:
        assert len(broker.topics()) == 20
