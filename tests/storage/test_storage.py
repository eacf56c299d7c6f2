"""What every storage promises: the same tests on real files, in memory, and on the disk that can fail."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import DirectoryLocked, InvalidArgument
from penstock.model.stored import archived_name, segment_name
from penstock.storage import File, FileStorage, Storage, put_file, read_file
from penstock.storage.interface import Buffer
from penstock.storage.read_only import ReadOnlyStorage
from penstock.testing import FaultyStorage, MemoryStorage


@pytest.fixture(params=["files", "memory", "faulty"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    made: dict[str, Storage] = {
        "files": FileStorage(tmp_path / "data"),
        "memory": MemoryStorage(),
        "faulty": FaultyStorage(seed=1),
    }
    yield made[request.param]
    for each in made.values():
        each.close()


@pytest.fixture
def file(storage: Storage) -> Iterator[File]:
    made = storage.create("file")
    yield made
    made.close()


def content(file: File) -> bytes:
    return file.read(0, file.size())


# Names.


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/tmp/out", "..", "a/..", "a\0b"])
def test_H4_a_name_that_leads_out_of_its_directory_is_refused(tmp_path: Path, name: str) -> None:
    files, memory = FileStorage(tmp_path / "data"), MemoryStorage()
    read_only, archive = ReadOnlyStorage(tmp_path / "data"), FileStorage(tmp_path).elsewhere("data")
    for storage in (files, memory):
        storage.create("inside").close()
    acts: list[Callable[[str], object]] = [
        *(files.create, files.open, files.remove, files.list, files.sync_directory, archive.create),
        *(lambda name: files.rename("inside", name), lambda name: files.rename(name, "inside")),
        *(memory.create, lambda name: memory.rename("inside", name), read_only.open, read_only.list),
    ]
    for act in acts:
        with pytest.raises(PermissionError, match="leads out"):
            act(name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


@pytest.mark.parametrize("name", [".", "..", "", "a/b", "../../t", "a\0", "x" * 201])
def test_H4_a_segment_has_no_path_below_a_topic_that_is_none(name: str) -> None:
    for make in (segment_name, archived_name):
        with pytest.raises(InvalidArgument, match="not a topic name"):
            make(name, "messages", 0, 0)


# Files.


def test_a_new_file_is_empty(file: File) -> None:
    assert (file.size(), file.read(0, 10)) == (0, b"")


def test_what_is_written_at_a_position_is_read_from_there(file: File) -> None:
    assert file.write(0, [b"hello ", b"world"]) == 11
    assert file.write(6, [b"there"]) == 11
    assert (file.read(0, 11), file.read(6, 5), file.read(4, 3)) == (b"hello there", b"there", b"o t")


def test_a_read_gives_fewer_bytes_only_at_the_end_of_the_file(file: File) -> None:
    file.write(0, [b"0123456789"])
    assert (file.read(8, 100), file.read(10, 1), file.read(1000, 1), file.read(3, 0)) == (b"89", b"", b"", b"")


def test_a_write_behind_the_end_leaves_zeros_in_between(file: File) -> None:
    assert file.write(5, [b"x"]) == 6
    assert content(file) == b"\0\0\0\0\0x"


def test_writing_nothing_changes_nothing(file: File) -> None:
    file.write(0, [b"abc"])
    for buffers in ([], [b""], [b"", b""]):
        assert file.write(10, buffers) == 10
        assert content(file) == b"abc"


def test_a_cut_file_ends_where_it_was_cut_and_can_grow_again(file: File) -> None:
    file.write(0, [b"0123456789"])
    file.truncate(4)
    assert (file.size(), content(file)) == (4, b"0123")
    file.write(6, [b"x"])
    assert content(file) == b"0123\0\0x"
    file.truncate(0)
    assert content(file) == b""


@pytest.mark.parametrize("count", [1023, 1024, 1025, 5000])
@pytest.mark.parametrize("size", [1, 100])
def test_many_small_buffers_are_written_one_after_the_other(file: File, count: int, size: int) -> None:
    buffers = [bytes([number % 251]) * size for number in range(count)]
    assert file.write(7, buffers) == 7 + count * size
    assert file.read(7, count * size) == b"".join(buffers)


def test_large_buffers_are_written_whole_among_small_ones(file: File) -> None:
    large = bytes(range(256)) * (3 << 12)  # 3 MiB
    buffers: list[Buffer] = [b"head", large, memoryview(large)[1:-1], *[b"x"] * 2000, large]
    assert file.write(0, buffers) == file.size()
    assert content(file) == b"".join(buffers)


def test_a_slice_of_memory_is_written_like_bytes(file: File) -> None:
    file.write(0, [memoryview(b"0123456789")[2:5], memoryview(b"abc")])
    assert content(file) == b"234abc"


def test_two_handles_of_a_file_see_the_same_bytes(storage: Storage, file: File) -> None:
    file.write(0, [b"one"])
    other = storage.open("file")
    other.write(1, [b"N"])
    file.write(3, [b"!"])
    assert content(file) == content(other) == b"oNe!"
    other.close()


def test_a_closed_file_keeps_its_bytes_and_closing_twice_is_harmless(storage: Storage, file: File) -> None:
    file.write(0, [b"kept"])
    file.sync()
    file.close()
    file.close()
    assert read_file(storage, "file") == b"kept"


WRITES = st.lists(
    st.tuples(st.integers(0, 60), st.lists(st.binary(min_size=1, max_size=12), min_size=1, max_size=4))
    | st.tuples(st.integers(0, 60), st.none()),
    max_size=12,
)


@given(steps=WRITES)
def test_any_writes_and_cuts_leave_the_same_bytes_in_every_storage(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, list[bytes] | None]]
) -> None:
    files: list[File] = [
        FileStorage(tmp_path_factory.getbasetemp() / "same").create("file"),
        MemoryStorage().create("file"),
        FaultyStorage().create("file"),
    ]
    expected = b""
    for position, buffers in steps:
        if buffers is None:
            expected = expected[:position]
        else:
            data = b"".join(buffers)
            expected = expected[:position].ljust(position, b"\0") + data + expected[position + len(data) :]
        for file in files:
            if buffers is not None:
                file.write(position, buffers)
            elif position <= file.size():
                file.truncate(position)
    assert [content(file) for file in files] == [expected] * 3
    for file in files:
        file.close()


# Names.


def test_a_file_that_is_not_there_cannot_be_opened(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        storage.open("nowhere/file")
    assert "nowhere/file" in str(missing.value)


def test_creating_a_file_makes_its_directories(storage: Storage) -> None:
    storage.create("topics/orders/messages/0/a.parquet").close()
    assert storage.list("topics/orders/messages/0") == ["a.parquet"]
    assert (storage.list("topics"), storage.list("")) == (["orders"], ["topics"])


def test_creating_a_file_that_is_there_empties_it(storage: Storage, file: File) -> None:
    file.write(0, [b"old"])
    storage.create("file").close()
    assert read_file(storage, "file") == b""


def test_a_walk_finds_all_files_below_a_directory(storage: Storage) -> None:
    names = ["topics/a/events/0/2", "topics/a/messages/0/1", "topics/a/messages/10/1", "topics/b/messages/0/1"]
    for name in [*names, "other", "topicsb/1"]:
        storage.create(name).close()
    assert storage.walk("topics") == names
    assert storage.walk("topics/a/messages") == names[1:3]
    assert storage.walk("nothing") == []


def test_names_are_listed_in_order_and_only_those_of_the_directory(storage: Storage) -> None:
    for name in ("d/b", "d/a", "d/sub/x", "d/10", "d/9", "dd/z", "d.txt"):
        storage.create(name).close()
    assert storage.list("d") == ["10", "9", "a", "b", "sub"]


def test_a_directory_that_is_not_there_has_no_names(storage: Storage) -> None:
    assert storage.list("nowhere") == storage.list("no/where") == []


def test_a_renamed_file_has_its_new_name_alone(storage: Storage, file: File) -> None:
    file.write(0, [b"bytes"])
    storage.rename("file", "other")
    assert storage.list("") == ["other"]
    assert read_file(storage, "other") == b"bytes"
    with pytest.raises(FileNotFoundError):
        storage.open("file")


def test_a_file_renamed_over_another_takes_its_place(storage: Storage, file: File) -> None:
    file.write(0, [b"new"])
    put_file(storage, "other", [b"old and longer"])
    reader = storage.open("other")
    storage.rename("file", "other")
    assert (storage.list(""), read_file(storage, "other")) == (["other"], b"new")
    assert content(reader) == b"old and longer"  # who has the old one open reads on
    reader.close()


def test_a_file_that_is_not_there_cannot_be_renamed(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.rename("missing", "other")
    assert storage.list("") == []


def test_a_removed_file_is_gone_and_removing_it_again_is_no_error(storage: Storage, file: File) -> None:
    file.write(0, [b"bytes"])
    storage.remove("file")
    storage.remove("file")
    storage.remove("nowhere/file")
    assert storage.list("") == []
    assert content(file) == b"bytes"  # who has it open reads on


def test_syncing_files_and_directories_changes_nothing_that_is_seen(storage: Storage) -> None:
    file = storage.create("d/file")
    file.write(0, [b"bytes"])
    file.sync()
    storage.sync_directory("d")
    storage.sync_directory("")
    file.close()
    assert (storage.list("d"), read_file(storage, "d/file")) == (["file"], b"bytes")


# Whole files.


def test_a_put_file_replaces_the_whole_old_one_and_leaves_nothing_else(storage: Storage) -> None:
    put_file(storage, "d/file", [b"a long first ", b"version"])
    put_file(storage, "d/file", [b"second"])
    assert read_file(storage, "d/file") == b"second"
    assert storage.list("d") == ["file"]


def test_a_put_file_may_be_empty_or_of_thousands_of_pieces(storage: Storage) -> None:
    put_file(storage, "empty", [])
    put_file(storage, "pieces", [b"ab"] * 3000)
    assert (read_file(storage, "empty"), read_file(storage, "pieces")) == (b"", b"ab" * 3000)


# The disk and its owner.


def test_there_is_room_and_writing_takes_some_of_it(storage: Storage) -> None:
    before = storage.free_bytes()
    assert before > 0
    if not isinstance(storage, FileStorage):  # others write to the real disk too
        put_file(storage, "file", [bytes(1000)])
        assert storage.free_bytes() == before - 1000


def test_another_directory_is_another_storage_and_the_same_each_time(storage: Storage, tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    put_file(storage.elsewhere(place), "old/file", [b"kept"])
    assert read_file(storage.elsewhere(place), "old/file") == b"kept"
    assert storage.list("old") == []


def test_a_storage_that_is_in_use_cannot_be_locked_again_until_it_is_let_go(storage: Storage, tmp_path: Path) -> None:
    other = FileStorage(tmp_path / "data") if isinstance(storage, FileStorage) else storage
    storage.lock()
    for _ in range(2):
        with pytest.raises(DirectoryLocked, match="in use by another broker"):
            other.lock()
    storage.close()
    other.lock()
    other.close()
    storage.close()  # closing twice is harmless


# Real files alone.

HOLD_THE_LOCK = """
import sys
from penstock.storage import FileStorage
storage = FileStorage(sys.argv[1])
storage.lock()
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_lock_held_by_another_process_is_refused_with_its_directory_and_pid(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        storage = FileStorage(tmp_path)
        with pytest.raises(DirectoryLocked) as refused:
            storage.lock()
        assert f"{tmp_path} is in use by another broker (process {holder.pid})" in str(refused.value)
        assert "close that broker" in str(refused.value)
        holder.kill()
        holder.wait()
        storage.lock()  # the death of the owner lets the directory go
        storage.close()


def test_files_of_a_directory_are_plain_files_below_it(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "made" / "when missing")
    put_file(storage, "d/file", [b"bytes"])
    assert (tmp_path / "made" / "when missing" / "d" / "file").read_bytes() == b"bytes"
    assert read_file(FileStorage(str(tmp_path / "made" / "when missing")), "d/file") == b"bytes"


# Files of another directory.


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_of_another_directory_is_linked_or_copied(
    has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    source, storage = tmp_path / "source", FileStorage(tmp_path / "data")
    source.write_bytes(b"content")
    storage.adopt(source, "a/b/c")
    made = tmp_path / "data/a/b/c"
    assert made.read_bytes() == b"content"
    assert made.samefile(source) == has_links
    monkeypatch.undo()
    storage.adopt(source, "a/b/c")  # it is there already
    made.unlink()
    made.write_bytes(b"another")
    with pytest.raises(FileExistsError):
        storage.adopt(source, "a/b/c")
    assert made.read_bytes() == b"another"


def test_a_directory_does_not_take_the_address_of_a_bucket_for_a_path(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="to directories"):
        FileStorage(tmp_path / "data").elsewhere("s3://bucket/cold")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
