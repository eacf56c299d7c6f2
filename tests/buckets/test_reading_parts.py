"""What a shard on a bucket reads: parts of segments and of old journal files, as many at a time as may be."""

from __future__ import annotations

import pytest

from penstock.embedded.broker import Broker
from penstock.shard.shard import Shard
from penstock.shard.upkeep.settling import tidy
from penstock.storage.buckets import open_objects
from penstock.storage.counted import BucketMeter
from penstock.testing import MemoryObjects, VirtualClock
from penstock.testing.seaweed import BUCKET, Seaweed
from tests.buckets.owning import MIB, Owners


@pytest.fixture
def world(clock: VirtualClock) -> Owners:
    return Owners(clock, MemoryObjects())


def fill(broker: Broker, mebibytes: int) -> None:
    for number in range(mebibytes):
        broker.publish_many("t", [b"%09d" % number + bytes(1000)] * 1000)


def test_journal_files_that_are_bundles_are_in_the_cache_and_nowhere_else(world: Owners) -> None:
    broker, meter = world.open(8 * MIB, journal_file_bytes="4MiB")
    fill(broker, 20)
    shard = broker.shards.only
    shard.checkpoint()
    assert sum(file.handle.size() for file in shard.journal.files.values()) > 18 * MIB
    assert 0 < meter.cache_bytes <= 8 * MIB
    contents = [getattr(file.handle, "content", b"") for file in shard.journal.files.values()]
    assert sum(map(len, contents)) < 5 * MIB, "only the file that is being written is in memory"
    assert sum(1 for _ in broker.read("t")) == 20_000


def test_what_was_written_last_is_read_without_asking_the_bucket(world: Owners) -> None:
    broker, meter = world.open(journal_file_bytes="4MiB")
    fill(broker, 12)
    broker.shards.only.checkpoint()
    assert len(world.objects.list("shards/0/bundles/")) > 1
    assert sum(1 for _ in broker.read("t")) == 12_000
    assert meter.requests["get", "done"] == 0
    assert meter.cache_hits > 10


def test_C20_a_takeover_reads_all_bundles_at_once_and_each_part_once(world: Owners) -> None:
    first, _ = world.open(journal_file_bytes="1MiB")
    fill(first, 24)
    first.shards.only.checkpoint()
    for number in range(256):
        first.publish("t", f"{number}")
    bundles = world.objects.list("shards/0/bundles/")
    assert len(bundles) >= 20
    second, meter = world.open()
    sizes = [len(world.objects.get(name) or b"") for name in bundles]
    assert meter.bytes["received", "bundle"] == sum(sizes)
    waits = sum(meter.request_s["get"].counts)
    assert waits <= 16, "objects are read 32 at a time, and not one after the other"
    assert sum(1 for _ in second.read("t")) == 24_000 + 256


def test_a_takeover_without_a_cache_finds_the_same(world: Owners) -> None:
    first, _ = world.open(journal_file_bytes="1MiB")
    fill(first, 5)
    first.shards.only.checkpoint()
    second, _ = world.open(cache_bytes=0)
    assert sum(1 for _ in second.read("t")) == 5000


def _settled(world: Owners) -> tuple[Broker, BucketMeter, int]:
    """A new process on a bucket with one large segment of several row groups."""
    first, _ = world.open(journal_file_bytes="64MiB")
    first.create_topic("t")
    for start in range(0, 100_000, 10_000):
        first.publish_many("t", [f"{number:0100}" for number in range(start, start + 10_000)])
    first.settle()
    [segment] = world.objects.list("shards/0/topics/t/messages/")
    first.close()
    broker, meter = world.open()
    return broker, meter, len(world.objects.get(segment) or b"")


def read_one(broker: Broker, offset: int) -> str:
    message = next(iter(broker.read("t", offset=offset)))
    return message.value.decode()


def test_a_message_of_a_segment_is_read_with_its_row_group_alone(world: Owners) -> None:
    broker, meter, size_bytes = _settled(world)
    assert meter.bytes["received", "segment"] == 0, "opening a shard reads no segments"
    for _ in range(3):
        assert read_one(broker, 50_000) == f"{50_000:0100}"
    once = meter.bytes["received", "segment"]
    assert 0 < once < size_bytes / 2
    assert read_one(broker, 1) == f"{1:0100}"
    assert once < meter.bytes["received", "segment"] < size_bytes


def test_row_groups_of_a_segment_on_a_real_store_are_read_by_ranges(clock: VirtualClock, bucket: Seaweed) -> None:
    broker, meter, size_bytes = _settled(Owners(clock, open_objects(f"s3://{BUCKET}/ranges")))
    for _ in range(2):
        assert read_one(broker, 99_999) == f"{99_999:0100}"
    assert 0 < meter.bytes["received", "segment"] < size_bytes / 2
    broker.close()


def test_segments_that_nobody_names_are_found_by_one_list(world: Owners) -> None:
    first, _ = world.open(segment_min_bytes=0)
    for topic in ("a", "a.b", "b"):
        first.publish_many(topic, ["x"] * 30)
    first.settle()
    named = world.objects.list("shards/0/topics/")
    assert len(named) == 3
    strays = [
        "topics/a/messages/0/00000000000000000007-9.parquet",
        "topics/gone/events/0/00000000000000000000-9.parquet",
    ]
    for name in strays:
        world.objects.put(f"shards/0/{name}", b"of one who was replaced meanwhile")
    storage, meter = world.storage()
    second = Shard(storage, world.config(), world.clock)
    before = meter.requests["list", "done"]
    assert tidy(second) == 2
    assert meter.requests["list", "done"] == before + 1
    for moment_s in (0, 3600):
        second.checkpoint()
        second.journal.wait(second.create_topic(f"proof{moment_s}", {}))
        world.clock.advance(moment_s)
    second.checkpoint()
    assert world.objects.list("shards/0/topics/") == named
