"""Changes over a storage that is only read stay in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.storage import put_file, read_file
from penstock.storage.read_only import ReadOnlyStorage
from penstock.storage.scratch import ScratchStorage


@pytest.fixture
def below(tmp_path: Path) -> Path:
    for name, content in (("a", b"aaaa"), ("b", b"bbbb"), ("inner/c", b"cccc")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture
def scratch(below: Path) -> ScratchStorage:
    return ScratchStorage(ReadOnlyStorage(below))


def test_what_is_changed_is_seen_here_and_nowhere_else(below: Path, scratch: ScratchStorage) -> None:
    file = scratch.open("a")
    assert file.read(0, 4) == b"aaaa"
    file.write(4, [b"!"])
    file.truncate(5)
    assert read_file(scratch, "a") == b"aaaa!" and file.size() == 5
    put_file(scratch, "new", [b"n"])
    put_file(scratch, "inner/c", [b"other"])
    scratch.remove("b")
    scratch.rename("a", "inner/d")
    assert scratch.list("") == ["inner", "new"]
    assert scratch.list("inner") == ["c", "d"]
    assert read_file(scratch, "inner/c") == b"other" and read_file(scratch, "inner/d") == b"aaaa!"
    for gone in ("a", "b"):
        with pytest.raises(FileNotFoundError):
            scratch.open(gone)
    assert {name: (below / name).read_bytes() for name in ("a", "b", "inner/c")} == {
        "a": b"aaaa",
        "b": b"bbbb",
        "inner/c": b"cccc",
    }
    assert not (below / "new").exists()


def test_parts_and_other_directories_are_scratch_too(below: Path, scratch: ScratchStorage) -> None:
    for other in (scratch.part("inner"), scratch.elsewhere("inner")):
        put_file(other, "c", [b"changed"])
        assert read_file(other, "c") == b"changed"
    assert read_file(scratch.elsewhere("inner"), "c") == b"changed", "it is the same each time"
    assert (below / "inner/c").read_bytes() == b"cccc"


def test_H4_no_name_leads_out_of_it(scratch: ScratchStorage) -> None:
    with pytest.raises(PermissionError):
        scratch.create("../a")
