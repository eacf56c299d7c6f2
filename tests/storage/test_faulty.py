"""The disk that fails: it keeps every promise of a real one after a power cut, and not one more."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage import put_file, read_file
from penstock.testing import FaultyStorage

SEEDS = st.integers(0, 2**32)
SECTOR = 512
OLD, NEW = b"o" * 4 * SECTOR, b"n" * 4 * SECTOR


def synced(storage: FaultyStorage, name: str, data: bytes) -> None:
    """A file whose bytes and name are surely on disk."""
    file = storage.create(name)
    file.write(0, [data])
    file.sync()
    storage.sync_directory("")


def outcomes(prepare: Callable[[FaultyStorage], None], name: str = "file") -> set[bytes | None]:
    """What a file may hold after a power cut, by many seeds; None: it is not there."""
    found: set[bytes | None] = set()
    for seed in range(60):
        storage = FaultyStorage(seed)
        prepare(storage)
        after = storage.crash()
        found.add(read_file(after, name) if name in after.list("") else None)
    return found


# What is promised.


@given(SEEDS, st.lists(st.tuples(st.integers(0, 3000), st.binary(min_size=1, max_size=2000)), max_size=6))
def test_synced_bytes_under_a_synced_name_survive_every_crash(seed: int, writes: list[tuple[int, bytes]]) -> None:
    storage = FaultyStorage(seed)
    file = storage.create("file")
    storage.sync_directory("")
    for position, data in writes:
        file.write(position, [data])
    file.sync()
    before = read_file(storage, "file")
    after = storage.crash()
    assert read_file(after, "file") == before
    assert read_file(after.crash(), "file") == before


@given(SEEDS, st.lists(st.sampled_from(["create", "rename", "remove"]), max_size=8), st.data())
def test_synced_names_survive_every_crash(seed: int, steps: list[str], data: st.DataObject) -> None:
    storage = FaultyStorage(seed)
    for number, step in enumerate(steps):
        names = storage.list("")
        if step == "create" or not names:
            file = storage.create(f"file {number}")
            file.write(0, [b"%d" % number])
            file.sync()
        elif step == "rename":
            storage.rename(data.draw(st.sampled_from(names)), data.draw(st.sampled_from([*names, "new"])))
        else:
            storage.remove(data.draw(st.sampled_from(names)))
    storage.sync_directory("")
    before = {name: read_file(storage, name) for name in storage.list("")}
    after = storage.crash()
    assert {name: read_file(after, name) for name in after.list("")} == before


@given(SEEDS, st.integers(0, 2500), st.binary(min_size=1, max_size=2000))
def test_bytes_that_no_later_write_touched_stay_as_they_were_synced(seed: int, position: int, data: bytes) -> None:
    storage = FaultyStorage(seed)
    synced(storage, "file", OLD)
    storage.open("file").write(position, [data])
    found = read_file(storage.crash(), "file")
    assert found[: min(position, len(OLD))] == OLD[:position]
    assert found[position + len(data) : len(OLD)] == OLD[position + len(data) :]


@given(SEEDS)
def test_a_put_file_is_the_old_or_the_new_one_after_a_crash_at_any_step(seed: int) -> None:
    for operation in ("create", "write", "sync", "rename", "sync_directory"):
        storage = FaultyStorage(seed)
        put_file(storage, "file", [OLD])
        storage.fail(operation, errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            put_file(storage, "file", [NEW])
        assert read_file(storage.crash(), "file") in (OLD, NEW)


@given(SEEDS)
def test_a_finished_put_file_survives_every_crash(seed: int) -> None:
    storage = FaultyStorage(seed)
    put_file(storage, "file", [OLD])
    put_file(storage, "file", [NEW])
    assert read_file(storage.crash(), "file") == NEW


# What is not promised, and does happen.


def test_an_unsynced_write_may_be_kept_lost_or_torn() -> None:
    def write(storage: FaultyStorage) -> None:
        synced(storage, "file", OLD)
        storage.open("file").write(0, [NEW])

    found = outcomes(write)
    assert {OLD, NEW} < found
    torn = {data for data in found if data not in (OLD, NEW)}
    assert len(torn) > 2
    for data in torn:  # torn between sectors, never inside of one
        assert data is not None
        assert {data[start : start + SECTOR] for start in range(0, len(data), SECTOR)} == {OLD[:SECTOR], NEW[:SECTOR]}


def test_unsynced_writes_may_reach_the_disk_in_another_order() -> None:
    def write_twice(storage: FaultyStorage) -> None:
        synced(storage, "file", b"..")
        file = storage.open("file")
        file.write(0, [b"1"])
        file.write(1, [b"2"])

    assert outcomes(write_twice) == {b"..", b"1.", b".2", b"12"}


def test_an_unsynced_cut_may_be_lost() -> None:
    def cut(storage: FaultyStorage) -> None:
        synced(storage, "file", b"0123456789")
        storage.open("file").truncate(4)

    assert outcomes(cut) == {b"0123456789", b"0123"}


def test_a_synced_file_whose_name_was_not_synced_may_be_lost() -> None:
    def create(storage: FaultyStorage) -> None:
        file = storage.create("file")
        file.write(0, [b"bytes"])
        file.sync()

    assert outcomes(create) == {None, b"bytes"}


def test_a_rename_without_a_sync_of_the_directory_may_be_lost() -> None:
    def rename(storage: FaultyStorage) -> None:
        synced(storage, "file", b"old")
        synced(storage, "file.tmp", b"new")
        storage.rename("file.tmp", "file")

    assert outcomes(rename) == {b"old", b"new"}


def test_a_remove_without_a_sync_of_the_directory_may_be_lost() -> None:
    def remove(storage: FaultyStorage) -> None:
        synced(storage, "file", b"bytes")
        storage.remove("file")

    assert outcomes(remove) == {None, b"bytes"}


def test_syncing_one_directory_says_nothing_of_another() -> None:
    lost = 0
    for seed in range(40):
        storage = FaultyStorage(seed)
        for name in ("a/file", "b/file"):
            put_file(storage, "d/" + name, [b"bytes"])
            storage.create(name).sync()
        storage.sync_directory("a")
        after = storage.crash()
        assert after.list("a") == ["file"]
        lost += after.list("b") == []
    assert 0 < lost < 40


# Crashes.


@given(SEEDS)
def test_the_same_seed_and_the_same_steps_have_the_same_outcome(seed: int) -> None:
    def run() -> list[dict[str, bytes]]:
        storage = FaultyStorage(seed)
        found = []
        for round_number in range(3):
            for name in "abc":
                storage.create(f"{name}{round_number}").write(0, [bytes([round_number]) * 3000])
            storage = storage.crash()
            found.append({name: read_file(storage, name) for name in storage.list("")})
        return found

    assert run() == run()


def test_different_seeds_have_different_outcomes() -> None:
    def write(storage: FaultyStorage) -> None:
        storage.create("file").write(0, [NEW])

    assert len(outcomes(write)) > 3


def test_after_the_crash_every_operation_of_the_dead_process_fails() -> None:
    storage = FaultyStorage()
    synced(storage, "file", b"bytes")
    file = storage.open("file")
    storage.crash()
    operations: list[Callable[[], object]] = [
        lambda: file.write(0, [b"x"]),
        lambda: file.read(0, 1),
        lambda: file.truncate(0),
        file.sync,
        lambda: storage.create("other"),
        lambda: storage.open("file"),
        lambda: storage.rename("file", "other"),
        lambda: storage.remove("file"),
        lambda: storage.sync_directory(""),
    ]
    for operation in operations:
        with pytest.raises(OSError, match="the power is cut"):
            operation()


@given(SEEDS)
def test_what_the_dead_process_tries_after_the_crash_changes_nothing_for_the_next_one(seed: int) -> None:
    storage = FaultyStorage(seed)
    synced(storage, "file", b"old")
    zombie = storage.open("file")
    after = storage.crash()
    file = after.open("file")
    file.write(0, [b"new"])
    for attempt in (lambda: zombie.write(0, [b"zombie"]), zombie.sync, lambda: zombie.truncate(0)):
        with pytest.raises(OSError, match="the power is cut"):
            attempt()
    file.sync()
    assert read_file(after, "file") == read_file(after.crash(), "file") == b"new"


@given(SEEDS)
def test_a_put_file_is_the_old_or_the_new_one_when_the_power_is_cut_after_any_number_of_changes(seed: int) -> None:
    for changes in range(5):  # create, write, sync, rename, sync_directory
        storage = FaultyStorage(seed)
        put_file(storage, "file", [OLD])
        storage.cut_power_after(changes)
        with pytest.raises(OSError, match="the power is cut"):
            put_file(storage, "file", [NEW])
        with pytest.raises(OSError, match="the power is cut"):
            storage.open("file")
        assert read_file(storage.crash(), "file") in (OLD, NEW)
    storage = FaultyStorage(seed)
    storage.cut_power_after(5)
    put_file(storage, "file", [NEW])
    assert read_file(storage.crash(), "file") == NEW


def test_a_write_whose_sync_was_cut_short_may_be_kept_lost_or_torn() -> None:
    def write(storage: FaultyStorage) -> None:
        synced(storage, "file", OLD)
        file = storage.open("file")
        storage.cut_power_after(1)
        file.write(0, [NEW])
        with pytest.raises(OSError, match="the power is cut"):
            file.sync()

    found = outcomes(write)
    assert {OLD, NEW} < found


def test_the_lock_of_a_dead_process_is_free() -> None:
    storage = FaultyStorage()
    storage.lock()
    storage.crash().lock()


def test_the_archive_of_a_crashed_storage_crashes_with_it() -> None:
    storage = FaultyStorage()
    put_file(storage.elsewhere("/archive"), "file", [b"kept"])
    after = storage.crash()
    assert read_file(after.elsewhere("/archive"), "file") == b"kept"
    with pytest.raises(OSError, match="the power is cut"):
        storage.elsewhere("/archive").open("file")


def test_the_parts_of_a_storage_have_one_power_and_are_found_again_after_a_crash() -> None:
    storage = FaultyStorage()
    for name in ("a", "b"):
        put_file(storage.part(name), "file", [name.encode()])
    storage.cut_power_after(1)
    storage.part("a").create("new")
    with pytest.raises(OSError, match="the power is cut"):
        storage.part("b").create("new")
    assert storage.crashed
    assert storage.part("a").crashed
    after = storage.crash()
    assert [read_file(after.part(name), "file") for name in ("a", "b")] == [b"a", b"b"]


def test_a_part_crashes_alone() -> None:
    storage = FaultyStorage()
    parts = {name: storage.part(name) for name in ("a", "b")}
    for name, part in parts.items():
        put_file(part, "file", [name.encode()])
        part.lock()
    storage.crash_part("a")
    with pytest.raises(OSError, match="the power is cut"):
        parts["a"].open("file")
    assert read_file(storage.part("a"), "file") == b"a"
    storage.part("a").lock()
    assert storage.part("b") is parts["b"]
    assert read_file(parts["b"], "file") == b"b"
    assert not storage.crashed


# Failures on request.


@pytest.mark.parametrize("seed", range(5))
def test_a_failed_sync_forgets_what_was_written_and_a_later_one_says_nothing_of_it(seed: int) -> None:
    storage = FaultyStorage(seed)
    synced(storage, "file", b"old ")
    file = storage.open("file")
    file.write(0, [b"lost"])
    storage.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.write(4, [b"kept"])
    file.sync()
    assert file.read(0, 8) == b"lostkept"  # the page cache still shows it
    assert read_file(storage.crash(), "file") == b"old kept"


def test_a_failure_requested_of_the_whole_comes_in_the_part_that_is_named() -> None:
    storage = FaultyStorage()
    storage.fail("create", errno.ENOSPC, name_contains="b/")
    storage.part("a").create("file")
    with pytest.raises(OSError, match="No space left"):
        storage.part("b").create("file")
    storage.part("b").create("file")


def test_a_requested_failure_comes_once_or_always_and_for_the_named_files_alone() -> None:
    storage = FaultyStorage()
    one, two = storage.create("one"), storage.create("two")
    storage.fail("write", errno.EIO, name_contains="two")
    assert one.write(0, [b"x"]) == 1
    with pytest.raises(OSError, match="two"):
        two.write(0, [b"x"])
    assert two.write(0, [b"x"]) == 1
    storage.fail("write", errno.EROFS, always=True)
    for file in (one, two, one):
        with pytest.raises(OSError, match="Read-only file system"):
            file.write(0, [b"x"])
    storage.heal()
    assert one.write(0, [b"x"]) == 1


@pytest.mark.parametrize(
    "operation", ["write", "sync", "read", "truncate", "create", "open", "rename", "remove", "sync_directory"]
)
def test_every_operation_can_be_made_to_fail(operation: str) -> None:
    storage = FaultyStorage()
    file = storage.create("file")
    storage.fail(operation, errno.ENOSPC)
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: file.write(0, [b"x"]),
        "sync": file.sync,
        "read": lambda: file.read(0, 1),
        "truncate": lambda: file.truncate(0),
        "create": lambda: storage.create("other"),
        "open": lambda: storage.open("file"),
        "rename": lambda: storage.rename("file", "other"),
        "remove": lambda: storage.remove("file"),
        "sync_directory": lambda: storage.sync_directory(""),
    }
    with pytest.raises(OSError, match="No space left") as failed:
        calls[operation]()
    assert failed.value.errno == errno.ENOSPC
    calls[operation]()


def test_a_full_disk_takes_what_fits_and_then_gives_the_error() -> None:
    storage = FaultyStorage(capacity_bytes=1000)
    file = storage.create("file")
    file.write(0, [bytes(900)])
    with pytest.raises(OSError, match="No space left on device") as full:
        file.write(900, [b"x" * 60, b"y" * 60])
    assert full.value.errno == errno.ENOSPC
    assert (file.size(), storage.free_bytes()) == (1000, 0)
    assert file.read(900, 200) == b"x" * 60 + b"y" * 40
    assert file.write(0, [b"z" * 1000]) == 1000  # over what is there, there is room


def test_a_full_disk_has_room_again_when_something_is_removed() -> None:
    storage = FaultyStorage(capacity_bytes=1000)
    put_file(storage, "old", [bytes(1000)])
    with pytest.raises(OSError, match="No space left"):
        put_file(storage, "new", [b"x"])
    storage.remove("old")
    put_file(storage, "new", [b"x"])
    assert read_file(storage.crash(), "new") == b"x"


@given(st.integers(0, 99), st.integers(0, 7))
def test_a_flipped_bit_is_that_one_bit_and_stays_flipped_after_a_crash(position: int, bit: int) -> None:
    storage = FaultyStorage()
    synced(storage, "file", bytes(100))
    storage.flip_bit("file", position, bit)
    expected = bytearray(100)
    expected[position] = 1 << bit
    assert read_file(storage, "file") == expected
    assert read_file(storage.crash(), "file") == expected
