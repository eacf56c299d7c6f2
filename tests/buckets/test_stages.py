"""Stages on a bucket: each of their objects is created once, and little of them is in memory."""

from __future__ import annotations

import itertools
import threading

import pytest

from penstock.journal.bucket_reading import ReadOnlyShard
from penstock.journal.bucket_stages import PART_BYTES, OpenStage, stage_files
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import Chain
from penstock.model.config import BrokerConfig
from penstock.model.errors import CorruptData, NotOwner, StageNotFound
from penstock.shard.shard import Shard
from penstock.shard.staging.stage_files import SealedFile
from penstock.storage.objects import ObjectStore
from penstock.storage.persistent import PersistentObjects
from penstock.testing import FaultyObjects, MemoryObjects, VirtualClock
from tests.shard.staging_harness import publish, stage, values

MIB = 1 << 20
numbers = itertools.count(1)


class OnceOnly(MemoryObjects):
    """No stage is put."""

    def put(self, name: str, data: bytes) -> None:
        assert not name.startswith("staging/")
        super().put(name, data)


def shard_on(objects: ObjectStore, clock: VirtualClock) -> Shard:
    """By a process of its own."""
    chain = Chain(0, next(numbers).to_bytes(16), "somewhere")
    storage = BucketStorage(objects, chain, lambda _: None, clock.monotonic_s, 0)
    return Shard(storage, BrokerConfig.parse({"min_free_bytes": 0, "commit_interval": 0}), clock)


def large_values(count: int) -> list[str]:
    return [f"{number}" + "x" * MIB for number in range(count)]


def stage_large(shard: Shard, name: str, count: int) -> None:
    for value in large_values(count):
        shard.stages.stage_many(name, "t", [value])


def test_a_small_stage_is_one_object(clock: VirtualClock) -> None:
    objects = OnceOnly()
    shard = shard_on(objects, clock)
    stage(shard, "s", "a", "b")
    assert len(objects.list("staging/")) == 1
    assert publish(shard, "s") == 2
    assert values(shard) == ["a", "b"]


def test_R1_a_large_stage_is_put_in_parts_while_it_is_filled(clock: VirtualClock) -> None:
    objects = OnceOnly()
    shard = shard_on(objects, clock)
    stage_large(shard, "s", 20)
    assert len(objects.list("staging/")) == 2, "20 MiB, of which less than 8 are in memory"
    assert shard.stages.seal_stage("s") == 20
    assert sum(len(objects.objects[name]) for name in objects.list("staging/")) > 20 * MIB
    assert max(len(objects.objects[name]) for name in objects.list("staging/")) <= PART_BYTES
    assert publish(shard, "s") == 20
    assert values(shard) == large_values(20)


def test_S5_the_next_owner_publishes_what_was_sealed(clock: VirtualClock) -> None:
    objects = OnceOnly()
    shard = shard_on(objects, clock)
    stage_large(shard, "large", 18)
    assert shard.stages.seal_stage("large") == 18
    stage(shard, "small", "a")
    stage_large(shard, "open", 9)
    shard.stages.stage_many("memory", "t", ["never put"])
    second = shard_on(objects, clock)
    assert publish(second, "small", "large") == 19
    assert values(second) == ["a", *large_values(18)]
    with pytest.raises(StageNotFound, match="not sealed when the broker stopped"):
        second.stages.stage_many("open", "t", ["more"])
    with pytest.raises(StageNotFound, match="no stage"):
        publish(second, "memory", sequence=2)


def test_what_is_dropped_or_published_goes_with_its_parts(clock: VirtualClock) -> None:
    objects = OnceOnly()
    shard = shard_on(objects, clock)
    for name in ("published", "dropped", "open"):
        stage_large(shard, name, 9)
    for name in ("published", "dropped"):
        shard.stages.seal_stage(name)
    publish(shard, "published")
    shard.stages.drop_staged(["dropped"])
    assert not [name for name in objects.list("staging/") if "open" not in name], "at once"
    second = shard_on(objects, clock)
    second.stages.drop_staged(["open"])
    assert objects.list("staging/") == []
    stage(second, "dropped", "the name is free")


def test_C8_who_was_replaced_drops_nothing(clock: VirtualClock) -> None:
    objects = OnceOnly()
    shard = shard_on(objects, clock)
    stage(shard, "s", "a")
    second = shard_on(objects, clock)
    with pytest.raises(NotOwner):
        shard.stages.drop_staged(["s"])
    assert publish(second, "s") == 1


@pytest.mark.parametrize("seed", range(20))
def test_L4_on_a_bucket_that_fails_a_stage_is_what_was_staged(clock: VirtualClock, seed: int) -> None:
    objects = FaultyObjects(seed, often=0.15)
    shard = shard_on(objects, clock)
    stage_large(shard, "s", 10)
    stage(shard, "other", "a")
    assert shard.stages.seal_stage("s") == 10
    second = shard_on(objects, clock)
    assert publish(second, "s", "other") == 11
    assert values(second) == [*large_values(10), "a"]


def test_who_only_reads_finds_stages_in_parts(clock: VirtualClock) -> None:
    objects = OnceOnly()
    shard = shard_on(objects, clock)
    stage_large(shard, "s", 18)
    stage_large(shard, "open", 9)
    shard.stages.seal_stage("s")
    shard.checkpoint()
    reader = ReadOnlyShard(objects, 0)
    opened, sealed = reader.list("staging")
    assert (opened.startswith("open~"), opened.endswith(".open")) == (True, True)
    with SealedFile(reader, sealed.removesuffix(".sealed")) as file:
        assert file.messages == 18
        staged = [file.batch(position)[1].batch.values for position, _ in file.lengths()]
    assert [value.decode() for batch in staged for value in batch] == large_values(18)


def test_a_stage_is_filled_while_parts_of_it_are_put() -> None:
    objects = PersistentObjects(MemoryObjects(), lambda _: None)
    file = OpenStage(objects, "staging/s~1.open")
    done = threading.Event()

    def put() -> None:
        while not done.is_set():
            file.sync()

    thread = threading.Thread(target=put)
    thread.start()
    end, written = 0, bytearray()
    for number in range(200):
        data = bytes([number]) * 100_000
        end = file.write(end, [data])
        written += data
    done.set()
    thread.join(30)
    assert file.size() == end == len(written)
    file.seal("staging/s~1.sealed")
    parts = [objects.get(name) or b"" for name in objects.list("staging/s~1/")]
    assert b"".join(parts) == written


def test_stages_are_listed_by_what_is_there() -> None:
    assert stage_files(["a~1.sealed", "a~1", "b~2", "c.open~3.sealed"]) == ["a~1.sealed", "b~2.open", "c.open~3.sealed"]


def test_what_does_not_say_what_its_parts_are_is_no_stage(clock: VirtualClock) -> None:
    objects = MemoryObjects()
    shard = shard_on(objects, clock)
    stage(shard, "s", "a")
    [name] = objects.list("staging/")
    objects.objects[name] = b"PENPARTS\xc1"
    with pytest.raises(CorruptData, match="parts of the stage"):
        publish(shard, "s")
