"""A bucket is copied while brokers own it in turn; and a directory goes to a real store and comes back."""

from __future__ import annotations

import itertools
import random
import threading
from pathlib import Path
from typing import Self

import pytest

import penstock
from penstock.cluster.copying.bucket_target import BucketTarget
from penstock.cluster.copying.copying import copy, copy_root
from penstock.cluster.copying.directory_target import DirectoryTarget
from penstock.embedded.broker import Broker
from penstock.journal.bucket_reading import ReadOnlyBucket
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import Chain
from penstock.model.clock import SystemClock
from penstock.model.config import BrokerConfig
from penstock.model.errors import StageNotFound
from penstock.storage.read_only import ReadOnlyStorage
from penstock.testing import MemoryObjects
from penstock.testing.seaweed import BUCKET, Seaweed
from tests.cli.test_copy import run
from tests.cluster.resharding_harness import ONLY, quietly
from tests.cluster.rich_directory import open_at, portrait
from tests.cluster.test_copying import filled

OPTIONS = {
    "min_free_bytes": 0,
    "settle_after": 3600,
    "commit_interval": 0,
    "journal_file_bytes": "16KiB",
    "segment_min_bytes": "2KiB",
}


def owner(objects: MemoryObjects, number: int, grace_s: float = 600.0) -> Broker:
    """A broker that owns the only shard of a bucket from now on."""
    chain = Chain(0, number.to_bytes(16), "somewhere:9000")
    storage = BucketStorage(objects.part("shards/0/"), chain, lambda _: None, SystemClock.monotonic_s, grace_s)
    return Broker(storage, BrokerConfig.parse(OPTIONS))


class Owners:
    """Brokers that own the only shard of a bucket, one after the other, until they are told to end."""

    def __init__(self, objects: MemoryObjects, grace_s: float) -> None:
        self._objects, self._grace_s = objects, grace_s
        self._numbers = itertools.count(1)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.published = 0

    def _work(self) -> None:
        chance = random.Random(3)
        while not self._stopping.is_set():
            with owner(self._objects, next(self._numbers), self._grace_s) as broker:
                for _ in range(chance.randrange(5, 30)):
                    for _ in range(chance.randrange(1, 30)):
                        broker.publish("t", f"{self.published}" + "x" * 300)
                        self.published += 1
                    with broker.consumer("t", "g") as consumer:
                        consumer.ack(consumer.receive(chance.randrange(1, 30)))
                    if chance.random() < 0.4:
                        broker.settle()

    def wait_for(self, published: int) -> None:
        """Until so much is acknowledged."""
        while self.published < published:
            assert self._thread.is_alive()
            self._stopping.wait(0.01)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def test_C2_C6_a_bucket_in_use_is_copied_as_it_was_at_some_moment_since_the_command_began(tmp_path: Path) -> None:
    objects = MemoryObjects()
    objects.put("penstock.json", b'{"version": 1, "shards": 1}')
    with Owners(objects, 0.2) as owners:
        for number in range(4):
            owners.wait_for(400 * (number + 1))
            known, path = owners.published, tmp_path / f"copy-{number}"
            target = DirectoryTarget(path)
            copy_root(ReadOnlyBucket(objects), target, quietly, SystemClock())
            target.close()
            with penstock.open(path, **ONLY) as broker:
                values = [int(message.value.rstrip(b"x")) for message in broker.read("t")]
                assert values == list(range(len(values))), "C2: nothing is missing in between"
                assert len(values) >= known, "L1: what was acknowledged before is there"
                group = broker.group("t", "g")
                assert group.acked + group.ready == len(values), "Q1"


def test_a_directory_goes_to_a_real_store_and_comes_back(bucket: Seaweed, tmp_path: Path) -> None:
    workload = filled(tmp_path / "data", 11, 2)
    address = f"s3://{BUCKET}/copied/{tmp_path.name}"
    with pytest.raises(KeyboardInterrupt):
        copy(str(tmp_path / "data"), address, interrupt)
    code, output = run("check", address)
    assert code == 2
    assert "run it again to finish it" in output
    code, output = run("copy", tmp_path / "data", address)
    assert code == 0, output
    assert "were there from an earlier run" in output
    assert run("check", address)[0] == 0
    code, output = run("copy", address, tmp_path / "back")
    assert code == 0, output
    with open_at(tmp_path / "data", workload.clock) as before, open_at(tmp_path / "back", workload.clock) as after:
        expected, found = portrait(before), portrait(after)
        for face in expected:
            assert found[face] == expected[face], face


def interrupt(what: str, done: int, total: int) -> None:
    """Ctrl-C in the middle of copying."""
    if "copying" in what and done > total // 2:
        raise KeyboardInterrupt


def test_stages_that_are_in_parts_are_copied_and_those_that_were_not_sealed_are_lost(tmp_path: Path) -> None:
    objects = MemoryObjects()
    objects.put("penstock.json", b'{"version": 1, "shards": 1}')
    broker = owner(objects, 1)
    for stage in ("sealed", "open"):
        for number in range(5):
            broker.stage_many(stage, "t", [f"{number}" + "x" * (4 << 20)])
    assert broker.seal_stage("sealed") == 5
    assert [name for name in objects.objects if "/sealed~" in name and name.endswith("0000000001")]
    target = DirectoryTarget(tmp_path / "copy")
    copy_root(ReadOnlyBucket(objects), target, quietly, SystemClock())
    target.close()
    again = MemoryObjects()
    copy_root(ReadOnlyStorage(tmp_path / "copy"), BucketTarget(again), quietly, SystemClock())
    with penstock.open(tmp_path / "copy", **ONLY) as there, owner(again, 2) as elsewhere:
        for copied in (there, elsewhere):
            with pytest.raises(StageNotFound, match="is lost"):
                copied.publish_staged(["open"], producer="p", sequence=1)
            assert copied.publish_staged(["sealed"], producer="p", sequence=1) == 5
            assert [message.value[:1] for message in copied.read("t")] == [b"0", b"1", b"2", b"3", b"4"]
