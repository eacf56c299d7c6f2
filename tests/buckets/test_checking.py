"""A check of a bucket: what is whole is called whole, also in use; what is damaged or gone is found."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from penstock.embedded.broker import Broker
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import Chain
from penstock.journal.chain_layout import Mark, decode_checkpoint, mark_of_name, piece_name
from penstock.model.config import BrokerConfig
from penstock.shard.checking import CheckReport, check_bucket
from penstock.storage.object_directory import DirectoryObjects
from penstock.storage.objects import ObjectStore
from penstock.storage.read_only import ReadOnlyStorage
from penstock.testing import MemoryObjects, VirtualClock
from tests.cli.test_check import run
from tests.cluster.test_copying import filled, to_bucket

numbers = itertools.count(1)
OPTIONS = {"min_free_bytes": 0, "settle_after": 3600, "commit_interval": 0, "journal_file_bytes": "64KiB"}


def owner(objects: ObjectStore, clock: VirtualClock) -> Broker:
    """A process of its own that owns the shard."""
    chain = Chain(0, next(numbers).to_bytes(16), "somewhere:9000")
    storage = BucketStorage(objects, chain, lambda _: None, clock.monotonic_s, 0.0)
    return Broker(storage, BrokerConfig.parse(OPTIONS), clock)


def lived(clock: VirtualClock) -> MemoryObjects:
    """A shard that had four owners; there are segments, bundles and pieces."""
    objects = MemoryObjects()
    for number in range(4):
        with owner(objects, clock) as broker:
            broker.publish_many("t", ["x" * 400] * 30)
            if number == 1:
                broker.settle()
            broker.shards.only.checkpoint()
            for _ in range(20):
                broker.publish("t", "y" * 4000)
            with broker.consumer("t", "g") as consumer:
                consumer.ack(consumer.receive(20))
            broker.shards.only.checkpoint()
            broker.publish("t", "z")
            broker.shards.only.checkpoint()
    last = owner(objects, clock)
    for _ in range(5):
        last.publish("t", "the last ones")
    return objects


def check(objects: ObjectStore) -> CheckReport:
    return check_bucket(objects, 0, objects)


def wrong(objects: ObjectStore) -> list[str]:
    """What a check finds."""
    return [f"{problem.file}: {problem.wrong}" for problem in check(objects).problems]


def test_what_is_whole_is_called_whole_also_in_use(clock: VirtualClock) -> None:
    objects = lived(clock)
    found = check(objects)
    assert found.problems == []
    assert found.messages == 4 * 51 + 5
    assert found.chain is not None
    assert found.chain.epoch == 5 and found.chain.pieces >= 5 and found.chain.bundles >= 1
    assert found.segments >= 1
    before = dict(objects.objects)
    check(objects)
    assert objects.objects == before, "a check writes nothing"
    assert check(MemoryObjects()).problems == [], "a shard that nobody has owned yet"


def test_C4_a_seal_that_is_gone_is_told(clock: VirtualClock) -> None:
    objects = lived(clock)
    seals = {
        mark.epoch: name for mark, name in ((mark_of_name(name), name) for name in sorted(objects.objects)) if mark
    }
    assert sorted(seals) == list(range(6))
    for epoch in (0, 1, 3):
        kept = objects.objects.pop(seals[epoch])
        assert any(f"the seal of epoch {epoch} is missing" in problem for problem in wrong(objects))
        objects.objects[seals[epoch]] = kept
    gone = {name: objects.objects.pop(name) for epoch, name in seals.items() if epoch < 3}
    assert [problem for problem in wrong(objects) if "no seals of epochs 0 to 2" in problem]
    objects.objects |= gone
    assert wrong(objects) == []


def test_L9_C2_a_flipped_byte_or_an_object_that_is_gone_is_found(clock: VirtualClock) -> None:
    objects, chance = lived(clock), random.Random(1)
    newest = max(name for name in objects.objects if name.startswith("checkpoints/"))
    last = max(name for name in objects.objects if name.startswith("journal/"))
    start, _ = decode_checkpoint(objects.objects[newest], 0, newest)
    found = 0
    for name in sorted(objects.objects):
        mark = mark_of_name(name)
        is_seal = mark is not None and piece_name(Mark(mark.epoch, mark.n + 1)) not in objects.objects
        if (name.startswith("checkpoints/") and name != newest) or (mark is not None and mark < start and not is_seal):
            continue  # nobody needs it any more
        whole = objects.objects.pop(name)
        if name not in (last, newest):  # without the last piece the chain ends before: nothing says that there was one
            assert wrong(objects), f"{name} is gone"
        place = chance.randrange(len(whole))
        objects.objects[name] = whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :]
        assert wrong(objects), f"{name} is damaged"
        objects.objects[name] = whole
        found += 1
    assert found > 8
    assert wrong(objects) == []


def test_the_command_checks_every_shard_of_a_bucket(tmp_path: Path) -> None:
    filled(tmp_path / "data", 3, 2)
    objects = DirectoryObjects(tmp_path / "bucket")
    to_bucket(ReadOnlyStorage(tmp_path / "data"), objects)
    address = (tmp_path / "bucket").as_uri()
    code, output = run("check", address)
    assert code == 0
    assert output.count("whole: every byte that is needed is as it was written") == 2 and "pieces" in output
    segment = next((tmp_path / "bucket/shards/1").rglob("*.parquet"))
    segment.unlink()
    code, output = run("check", address)
    assert code == 1
    assert segment.name in output and "restore the bucket from a copy" in output
    code, output = run("check", address, "--repair", "--yes")
    assert code == 2
    assert "a bucket is not repaired" in output
    code, output = run("check", (tmp_path / "nothing").as_uri())
    assert code == 2
    assert "no broker was ever started on it" in output
