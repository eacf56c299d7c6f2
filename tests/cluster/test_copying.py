"""A copy is what the original is: from a directory to a bucket, from there to another, and back to a directory."""

from __future__ import annotations

import itertools
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.cluster.copying.bucket_target import BucketTarget
from penstock.cluster.copying.copying import Copied, copy, copy_root
from penstock.cluster.copying.directory_target import DirectoryTarget
from penstock.cluster.copying.verification import CopyDiffers
from penstock.embedded.broker import Broker
from penstock.journal.bucket_reading import ReadOnlyBucket
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import Chain
from penstock.model.clock import SystemClock
from penstock.model.errors import CorruptData, DirectoryLocked, InvalidArgument, LeaseLost
from penstock.storage.interface import File
from penstock.storage.objects import ObjectStore
from penstock.storage.persistent import PersistentObjects
from penstock.storage.read_only import ReadableStorage, ReadOnlyStorage
from penstock.testing import FaultyObjects, MemoryObjects, VirtualClock
from tests.cluster.resharding_harness import ONLY, contents, quietly
from tests.cluster.rich_directory import CONFIG, Workload, come_to_rest, go_on, open_at, portrait

STEPS = 60


class Interrupted(BaseException):
    """As Ctrl-C."""


class FewOpened(ReadOnlyStorage):
    """A directory of which so many files can be read until the command is interrupted."""

    def __init__(self, path: Path, left: Iterator[int], base: Path | None = None) -> None:
        super().__init__(path, base)
        self._left = left

    def open(self, name: str) -> File:  # type: ignore[override]
        if next(self._left) == 0:
            raise Interrupted
        return super().open(name)

    def part(self, name: str) -> FewOpened:
        return FewOpened(Path(self.path) / name, self._left, Path(self.base_path))


class FewPut(MemoryObjects):
    """A bucket to which so many objects can be put until the command is interrupted."""

    def __init__(self, objects: MemoryObjects, left: Iterator[int]) -> None:
        super().__init__()
        self.objects, self.prefix, self._left = objects.objects, objects.prefix, left

    def put(self, name: str, data: bytes) -> None:
        if next(self._left) == 0:
            raise Interrupted
        super().put(name, data)

    def part(self, prefix: str) -> FewPut:
        whole = MemoryObjects()
        whole.objects, whole.prefix = self.objects, self.prefix + prefix
        return FewPut(whole, self._left)


def filled(path: Path, seed: int, shards: int, steps: int = STEPS) -> Workload:
    """A directory with some of everything; its archive is inside."""
    workload = Workload(seed, "archive")
    with open_at(path, workload.clock, shards) as broker:
        workload.fill(broker, steps)
    return workload


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that is only read."""
    path = tmp_path_factory.mktemp("original") / "data"
    filled(path, 7, 2)
    return path


def to_bucket(source: ReadableStorage, objects: ObjectStore) -> Copied:
    return copy_root(source, BucketTarget(objects), quietly, SystemClock())


def to_directory(source: ReadableStorage, path: Path) -> Copied:
    target = DirectoryTarget(path)
    try:
        return copy_root(source, target, quietly, SystemClock())
    finally:
        target.close()


# The same.


@pytest.mark.parametrize(("seed", "shards"), [(1, 1), (2, 3)])
def test_C6_what_went_to_a_bucket_and_to_another_and_back_is_the_same(seed: int, shards: int, tmp_path: Path) -> None:
    workload = filled(tmp_path / "data", seed, shards)
    first, second = MemoryObjects(), MemoryObjects()
    counted = to_bucket(ReadOnlyStorage(tmp_path / "data"), first)
    assert to_bucket(ReadOnlyBucket(first), second) == counted
    assert to_directory(ReadOnlyBucket(second), tmp_path / "back") == counted
    clock = workload.clock
    with open_at(tmp_path / "data", clock) as before, open_at(tmp_path / "back", clock) as after:
        assert after.shards.count == shards
        expected, found = portrait(before), portrait(after)
        for face in expected:
            assert found[face] == expected[face], face
        assert counted.messages == sum(map(len, expected["messages"].values()))
        for answers in zip(go_on(before, workload), go_on(after, workload), strict=True):
            assert answers[0] == answers[1]
        clock.advance(20_000)  # delays, retries and schedules are due
        for broker in (before, after):
            come_to_rest(broker)
        for answers in zip(go_on(before, workload), go_on(after, workload), strict=True):
            assert answers[0] == answers[1]


def test_a_directory_is_copied_byte_for_byte(original: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    shutil.copytree(original, tmp_path / "data", dirs_exist_ok=True)
    (tmp_path / "data/tokens.json").write_text("{}")
    to_directory(ReadOnlyStorage(tmp_path / "data"), tmp_path / "copy")
    before, after = contents(tmp_path / "data"), contents(tmp_path / "copy")
    same = [
        name
        for name in before
        if not name.endswith((".spare", ".open")) and "checkpoint" not in name and "/journal/" not in name
    ]
    assert {name: after.get(name) for name in same} == {name: before[name] for name in same}
    assert any(name.startswith("archive/") for name in same) and "tokens.json" in same


@pytest.mark.one_shard("it opens the storage of the shard")
def test_C10_a_shard_goes_on_in_the_next_epoch_and_takes_no_receipt_of_before(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with open_at(tmp_path / "data", clock) as broker:
        broker.publish_many("t", ["a", "b", "c"])
    with open_at(tmp_path / "data", clock) as broker:
        held = broker.consumer("t", "g").receive(2)
        epoch = broker.status().epoch
        objects = MemoryObjects()
        to_bucket(ReadOnlyStorage(tmp_path / "data"), objects)
    for number in (1, 2):
        chain = Chain(0, bytes([number]) * 16, "somewhere:9000")
        storage = BucketStorage(objects.part("shards/0/"), chain, lambda _: None, clock.monotonic_s)
        with Broker(storage, CONFIG, clock) as broker:
            assert broker.status().epoch == storage.epoch == epoch + number
            consumer = broker.consumer("t", "g")
            assert [message.value for message in consumer.receive(9)] == [b"a", b"b", b"c"]
            with pytest.raises(LeaseLost):
                consumer.ack(held)
            broker.settle()
            assert len(list(broker.read("t"))) == 3


def test_a_source_in_use_is_copied_as_it_was_at_some_moment_since_the_command_began(tmp_path: Path) -> None:
    options = {**ONLY, "journal_file_bytes": "16KiB", "segment_min_bytes": "2KiB", "settle_after": 3600}
    stopping = threading.Event()
    with penstock.open(tmp_path / "data", **options) as broker:
        broker.create_topic("t", partitions=2, retention_age=3600)
        broker.create_group("t", "g")
        acked: list[int] = []

        def work() -> None:
            chance = random.Random(3)
            with broker.consumer("t", "g") as consumer:
                while not stopping.is_set():
                    for _ in range(chance.randrange(1, 30)):
                        broker.publish("t", str(len(acked)) + "x" * 300)
                        acked.append(len(acked))
                    consumer.ack(consumer.receive(chance.randrange(1, 30)))
                    if chance.random() < 0.3:
                        broker.settle()
                    if chance.random() < 0.05:
                        broker.retain()

        worker = threading.Thread(target=work)
        worker.start()
        try:
            for number in range(5):
                while len(acked) < 300 * (number + 1):
                    stopping.wait(0.01)
                known = len(acked)
                copy(str(tmp_path / "data"), str(tmp_path / f"copy-{number}"), quietly)
                with penstock.open(tmp_path / f"copy-{number}", **options) as there:
                    values = sorted(int(message.value.rstrip(b"x")) for message in there.read("t"))
                    assert len(values) >= known, "L1: what was acknowledged before is there"
                    assert values == list(range(len(values))), "C2: and nothing before that is missing"
                    group = there.group("t", "g")
                    assert group.acked + group.ready == len(values), "Q1"
        finally:
            stopping.set()
            worker.join()


# Interrupted.


def test_interrupted_at_any_object_it_goes_on_to_the_same_bucket(original: Path) -> None:
    expected = MemoryObjects()
    to_bucket(ReadOnlyStorage(original), expected)
    for step in itertools.count():
        objects, left = MemoryObjects(), itertools.count(step, -1)
        try:
            to_bucket(ReadOnlyStorage(original), FewPut(objects, left))
        except Interrupted:
            assert step == 0 or b"copying" in objects.objects["penstock.json"]
        else:
            break
        done = to_bucket(ReadOnlyStorage(original), objects)
        assert objects.objects == expected.objects, step
        assert step < 30 or done.copied_bytes < done.size_bytes, "what is there is not copied again"
    assert step > 30


def test_interrupted_at_any_file_it_goes_on_to_the_same_directory(original: Path, tmp_path: Path) -> None:
    to_directory(ReadOnlyStorage(original), tmp_path / "expected")
    expected, chance = contents(tmp_path / "expected"), random.Random(4)
    step, steps = 1, 0
    while True:
        target = tmp_path / f"copy-{step}"
        try:
            to_directory(FewOpened(original, itertools.count(step, -1)), target)
        except Interrupted:
            with pytest.raises(InvalidArgument, match="run it again to finish it"):
                penstock.open(target, **ONLY)
        else:
            break
        leave_rubbish(target / "shards/1/topics/gone/messages/0")
        to_directory(ReadOnlyStorage(original), target)
        assert contents(target) == expected, step
        assert not list(target.rglob("*.tmp"))
        step, steps = step + chance.randrange(2, 9), steps + 1
    assert steps > 5


def leave_rubbish(directory: Path) -> None:
    """As a process that was killed, and a state that is of the past."""
    directory.mkdir(parents=True)
    (directory / "1.parquet.tmp").touch()
    (directory / "2.parquet").touch()


@pytest.mark.parametrize("seed", range(8))
def test_a_store_whose_requests_are_done_late_or_twice_gets_the_same(seed: int, original: Path) -> None:
    expected, objects = MemoryObjects(), FaultyObjects(seed)
    to_bucket(ReadOnlyStorage(original), expected)
    with pytest.raises(Interrupted):
        copy_root(ReadOnlyStorage(original), BucketTarget(persistent(objects)), interrupt, SystemClock())
    to_bucket(ReadOnlyStorage(original), persistent(objects))
    objects.is_calm = True
    objects.list("")  # what is late is done by now
    assert objects.objects == expected.objects


def persistent(objects: ObjectStore) -> ObjectStore:
    return PersistentObjects(objects, lambda _: None)


def interrupt(what: str, done: int, total: int) -> None:
    if "shard 1: copying" in what:
        raise Interrupted


# Found.


def test_L9_a_flipped_byte_of_the_source_is_found_wherever_it_matters(original: Path) -> None:
    source, chance = MemoryObjects(), random.Random(5)
    to_bucket(ReadOnlyStorage(original), source)
    expected, found = MemoryObjects(), 0
    to_bucket(ReadOnlyBucket(source), expected)
    for name in sorted(source.objects):
        if "/journal/0000000000/" in name or name.endswith(".open"):
            continue  # the seal of the epochs before, and what was never promised to anybody: nobody needs them
        whole = source.objects[name]
        place = chance.randrange(len(whole))
        source.objects[name] = whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :]
        target = MemoryObjects()
        with pytest.raises((CorruptData, CopyDiffers, InvalidArgument)):
            to_bucket(ReadOnlyBucket(source), target)
        assert b'"source"' in target.objects.get("penstock.json", b'"source"'), "it is not complete"
        source.objects[name] = whole
        found += 1
    assert found > 20
    to_bucket(ReadOnlyBucket(source), target)
    assert target.objects == expected.objects


def test_L9_a_segment_that_was_damaged_on_its_way_is_copied_once_more(original: Path, tmp_path: Path) -> None:
    damaged: list[Path] = []

    def damage(what: str, done: int, total: int) -> None:
        if "verifying" in what and not damaged:
            damaged.extend(sorted((tmp_path / "copy").rglob("*.parquet")))
            for file in damaged:
                file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])

    target = DirectoryTarget(tmp_path / "copy")
    copy_root(ReadOnlyStorage(original), target, damage, SystemClock())
    target.close()
    to_directory(ReadOnlyStorage(original), tmp_path / "expected")
    assert damaged
    second = sorted((tmp_path / "copy/shards/1").rglob("*.parquet"))
    assert second
    for file in second:
        assert file.read_bytes() == (tmp_path / "expected" / file.relative_to(tmp_path / "copy")).read_bytes()


# Refused.


def test_a_target_that_is_anything_else_is_refused(original: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    objects = MemoryObjects()
    objects.put("members/1", b"")
    with pytest.raises(InvalidArgument, match="is not empty"):
        to_directory(ReadOnlyStorage(original), other)
    with pytest.raises(InvalidArgument, match="is not empty"):
        copy_to(original, objects)
    assert contents(other).keys() == {"file"}
    complete = MemoryObjects()
    copy_to(original, complete)
    with pytest.raises(InvalidArgument, match="is not empty"):
        copy_to(original, complete)


def copy_to(original: Path, objects: ObjectStore) -> Copied:
    return to_bucket(ReadOnlyStorage(original), objects)


def test_an_unfinished_copy_of_something_else_is_refused(original: Path, tmp_path: Path) -> None:
    filled(tmp_path / "data", 8, 1, 4)
    objects = MemoryObjects()
    with pytest.raises(Interrupted):
        to_bucket(ReadOnlyStorage(tmp_path / "data"), FewPut(objects, itertools.count(3, -1)))
    with pytest.raises(InvalidArgument, match=f"unfinished copy of {tmp_path / 'data'}"):
        copy_to(original, objects)


def test_a_target_in_use_or_inside_the_source_is_refused(original: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="is not apart from"):
        copy(str(original), str(original / "backup"), quietly)
    assert not (original / "backup").exists()
    target = DirectoryTarget(tmp_path / "copy")
    with pytest.raises(DirectoryLocked):
        copy(str(original), str(tmp_path / "copy"), quietly)
    target.close()


def test_an_archive_on_a_bucket_cannot_go_to_a_directory(tmp_path: Path, clock: VirtualClock) -> None:
    with open_at(tmp_path / "data", clock) as broker:
        broker.create_topic("t", archive="s3://cold/orders")
    with pytest.raises(InvalidArgument, match="copy it to a bucket"):
        to_directory(ReadOnlyStorage(tmp_path / "data"), tmp_path / "copy")
    assert copy_to(tmp_path / "data", MemoryObjects()).elsewhere == {"s3://cold/orders"}


def test_an_archive_of_one_machine_cannot_go_to_a_bucket(tmp_path: Path, clock: VirtualClock) -> None:
    with open_at(tmp_path / "data", clock) as broker:
        broker.create_topic("t", archive=str(tmp_path / "archive"), retention_age=1)
        broker.publish_many("t", ["a" * 5000])
        broker.settle()
        clock.advance(2)
        assert broker.retain()
    with pytest.raises(InvalidArgument, match="which brokers on other machines cannot reach"):
        copy_to(tmp_path / "data", MemoryObjects())
    done = to_directory(ReadOnlyStorage(tmp_path / "data"), tmp_path / "copy")
    assert done.elsewhere == {str(tmp_path / "archive")}
    with open_at(tmp_path / "copy", clock) as broker:
        assert [message.value for message in broker.read("t", include_deleted=True)] == [b"a" * 5000]
