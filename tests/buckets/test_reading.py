"""A bucket read with no broker, while owners go on and follow one another: what they have is what is read."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.snapshots import Snapshots
from penstock.embedded.broker import Broker
from penstock.journal.bucket_reading import (
    PlannedJournal,
    ReadOnlyBucket,
    ReadOnlyShard,
    open_root_for_reading,
    pause_of_readers,
)
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import READ_AGAIN, Chain, Restless
from penstock.journal.layout import file_name
from penstock.model.clock import SystemClock
from penstock.model.config import BrokerConfig
from penstock.model.errors import CorruptData, InvalidArgument
from penstock.segments import reader as segment_reader
from penstock.segments.window import Window
from penstock.shard.recovery import recover
from penstock.storage.buckets import open_objects
from penstock.storage.objects import ObjectStore, StoreUnavailable
from penstock.storage.persistent import PersistentObjects
from penstock.storage.read_only import ReadOnlyStorage
from penstock.testing import MemoryObjects, VirtualClock
from penstock.testing.seaweed import BUCKET, Seaweed
from penstock.views.snapshot import read_blocks
from tests.patience import until
from tests.shard.test_one_fold import OPTIONS, STEPS, Step, durable_part, held_by, state_of

OWNER: dict[str, Any] = {"min_free_bytes": 0, "settle_after": 3600, "commit_interval": 0}
FOLDED: dict[str, Any] = {**OPTIONS, "sync": "always"}
numbers = itertools.count(1)


def owner_of(bucket: ObjectStore, grace_s: float = 600.0, **options: Any) -> Broker:
    """A broker that owns the only shard of a bucket, from now on."""
    bucket.put("penstock.json", b'{"version": 1, "shards": 1}')
    chain = Chain(0, next(numbers).to_bytes(16), "somewhere:9000")
    storage = BucketStorage(bucket.part("shards/0/"), chain, lambda _: None, VirtualClock().monotonic_s, grace_s)
    return Broker(storage, BrokerConfig.parse({**OWNER, **options}))


def reader_of(bucket: ObjectStore) -> ReadOnlyShard:
    """The only shard of a bucket, as a reader has it."""
    shard = ReadOnlyBucket(bucket).part("shards/0")
    assert isinstance(shard, ReadOnlyShard)
    return shard


def values_in(found: Snapshots, topic: str = "t", partition: int = 0) -> list[str]:
    """What a reader finds in a partition."""
    snapshot = found.of(topic)
    return [message.value.decode() for message in snapshot.reader(snapshot.log(topic, partition)).messages(Window())]


def check_reader_agrees(broker: Broker, bucket: ObjectStore) -> None:
    """The owner's state is the fold of what a reader finds."""
    groups = sorted(broker.groups(), key=lambda info: (info.topic, info.name))
    with broker.shard.upkeep_lock:
        broker.shard.journal.flush()
        held = held_by(broker)
        found = recover(reader_of(bucket), BrokerConfig.parse(FOLDED), SystemClock()).state
    assert (state_of(found.catalog), list(found.staged.values())) == held, "C6"
    with Snapshots(ReadOnlyBucket(bucket)) as snapshots:
        assert snapshots.groups() == [durable_part(info) for info in groups]
        for topic, partition in (("one", 0), ("wide", 0), ("wide", 2)):
            own = [message.value.decode() for message in broker.read(topic, partition)]
            assert values_in(snapshots, topic, partition) == own


@settings(max_examples=25, deadline=None)
@given(
    owners=st.lists(st.lists(STEPS, min_size=1, max_size=8), min_size=1, max_size=4),
    grace_s=st.sampled_from([0, 600]),
)
def test_C6_an_owner_has_what_a_reader_with_no_broker_folds(owners: Sequence[Sequence[Step]], grace_s: int) -> None:
    bucket = MemoryObjects()
    numbers: list[Any] = []
    for steps in owners:  # who comes next takes over from one that goes on to believe it owns the shard
        broker = owner_of(bucket, grace_s, **FOLDED)
        for topic, partitions in (("one", 1), ("wide", 3)):
            if topic not in {info.name for info in broker.topics()}:
                broker.create_topic(topic, partitions=partitions)
        for step in steps:
            step(broker, numbers)
            check_reader_agrees(broker, bucket)


def test_C6_C21_who_reads_while_owners_remove_and_take_over_finds_all_that_was_acknowledged_before() -> None:
    bucket, acked, done = MemoryObjects(), [0], threading.Event()

    def own() -> None:
        chance = random.Random(3)
        while acked[0] < 300:
            broker = owner_of(bucket, 0.0, journal_file_bytes=4096)
            for _ in range(chance.randrange(10, 60)):
                broker.publish("t", f"{acked[0]}" * 50)
                acked[0] += 1
                if chance.random() < 0.2:
                    chance.choice([broker.shard.checkpoint, broker.settle])()
        done.set()

    owner_of(bucket).create_topic("t")
    owners = threading.Thread(target=own)
    owners.start()
    read = 0
    while not done.is_set() or not read:
        before = acked[0]
        try:
            with Snapshots(ReadOnlyBucket(bucket)) as found:
                values = values_in(found)
        except (
            CorruptData,
            FileNotFoundError,
            Restless,
        ):  # what it began to read went too soon: there is no grace here
            continue
        read += 1
        assert values == [f"{number}" * 50 for number in range(len(values))], "L2"
        assert len(values) >= before
    owners.join(30)


def test_a_bucket_on_which_no_broker_ever_was_is_no_bucket_of_ours() -> None:
    with pytest.raises(InvalidArgument, match=r"there is no penstock\.json"):
        Snapshots(ReadOnlyBucket(MemoryObjects()))


def test_a_shard_that_nobody_has_owned_yet_is_empty() -> None:
    bucket = MemoryObjects()
    owner_of(bucket).publish("t", "a")
    bucket.put("penstock.json", b'{"version": 1, "shards": 3}')
    with Snapshots(ReadOnlyBucket(bucket)) as found:
        assert found.of("t").storage.path in {f"memory:shards/{number}" for number in range(3)}
        assert len(found.topics()) <= 1, "its home may be another one, with three shards"


def test_of_several_shards_only_those_are_read_that_a_question_is_about() -> None:
    bucket = Disappearing({})
    bucket.put("penstock.json", b'{"version": 1, "shards": 64}')
    with Snapshots(ReadOnlyBucket(bucket)) as found:
        for name in ("some", "some", "other"):
            found.of(name)
        assert len(bucket.seen) == 2
        assert found.topics() == []
        assert len(bucket.seen) == 64


def test_reading_changes_nothing() -> None:
    bucket = MemoryObjects()
    broker = owner_of(bucket)
    broker.publish("t", "a")
    before = bucket.objects.copy()
    shard = reader_of(bucket)
    with Snapshots(ReadOnlyBucket(bucket)) as found:
        assert values_in(found) == ["a"]
    assert bucket.objects == before
    [name] = shard.list("journal")
    for refused in (
        lambda: shard.create("x"),
        lambda: shard.remove(f"journal/{name}"),
        lambda: shard.rename("checkpoint-a", "x"),
        lambda: shard.open(f"journal/{name}").write(0, [b"x"]),
        shard.lock,
    ):
        with pytest.raises(OSError, match="only read"):
            refused()
    broker.publish("t", "b")


class Disappearing(MemoryObjects):
    """A bucket of which something happens when an object is read by ranges."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__()
        self.objects = objects
        self.asked: list[str] = []
        self.seen: set[str] = set()
        """Places that were listed."""

    def list(self, prefix: str, after: str = "") -> list[str]:
        self.seen.add(self.prefix)
        return super().list(prefix, after)

    def part(self, prefix: str) -> Disappearing:
        part = Disappearing(self.objects)
        part.prefix, part.asked, part.seen = self.prefix + prefix, self.asked, self.seen
        part.meet = self.meet  # type: ignore[method-assign]
        return part

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        self.asked.append(name)
        self.meet(name)
        return super().get_range(name, start, length)

    def meet(self, name: str) -> None:
        """Nothing, unless a test has something else."""


def bundled(bucket: MemoryObjects) -> Broker:
    """An owner whose journal is in bundles, with no grace for readers."""
    broker = owner_of(bucket, 0.0, journal_file_bytes=4096)
    for number in range(30):
        broker.publish("t", f"{number}" * 200)
    broker.shard.checkpoint()
    return broker


def test_C21_a_reader_begins_again_when_what_it_reads_was_removed() -> None:
    bucket = MemoryObjects()
    broker = bundled(bucket)
    seen = Disappearing(bucket.objects)

    def settle(name: str) -> None:
        if len(seen.asked) == 1:
            broker.settle()
            for number in range(2):
                broker.publish("t", f"late {number}")
                broker.shard.checkpoint()
            assert not bucket.part("shards/0/").objects.get(name)

    seen.meet = settle  # type: ignore[method-assign]
    with Snapshots(ReadOnlyBucket(seen)) as found:
        assert values_in(found) == [message.value.decode() for message in broker.read("t")]


def test_C21_what_is_gone_for_good_is_told() -> None:
    bucket = MemoryObjects()
    bundled(bucket)
    [first, *_] = bucket.list("shards/0/bundles/")
    bucket.delete([first])
    with pytest.raises(FileNotFoundError, match=r"the object is gone"):
        Snapshots(ReadOnlyBucket(bucket)).topics()


def test_C21_a_reader_gives_up_when_what_it_reads_goes_again_and_again() -> None:
    bucket = MemoryObjects()
    broker = bundled(bucket)
    seen = Disappearing(bucket.objects)

    def remove(name: str) -> None:
        bucket.delete([f"shards/0/{name}"])
        broker.publish("t", "more")
        broker.shard.checkpoint()

    seen.meet = remove  # type: ignore[method-assign]
    with pytest.raises(CorruptData, match="it changed each of 6 times while it was read"):
        Snapshots(ReadOnlyBucket(seen)).topics()


def test_a_reader_gives_up_when_the_state_is_noted_all_the_time() -> None:
    bucket = MemoryObjects()
    broker = owner_of(bucket)

    class Hasty(MemoryObjects):
        def get_many(self, names: Sequence[str]) -> list[bytes | None]:
            broker.shard.checkpoint()
            return super().get_many(names)

    hasty = Hasty()
    hasty.objects, hasty.prefix = bucket.objects, "shards/0/"
    with pytest.raises(Restless, match=f"{READ_AGAIN}"):
        ReadOnlyShard(hasty, 0)


def test_a_bucket_that_does_not_answer_is_asked_for_a_while() -> None:
    clock, asked = VirtualClock(), []

    class Silent(MemoryObjects):
        def get(self, name: str) -> bytes | None:
            asked.append(name)
            raise StoreUnavailable("503: slow down")

    with pytest.raises(StoreUnavailable, match=r"no answer to any of 10 attempts: 503: slow down"):
        Snapshots(ReadOnlyBucket(PersistentObjects(Silent(), pause_of_readers(clock))))
    assert len(asked) == 10


def test_another_process_reads_blocks_by_the_objects_that_it_is_told() -> None:
    bucket = Disappearing({})
    broker = owner_of(bucket, journal_file_bytes=64 << 10)
    for number in range(400):
        broker.publish("t", f"{number}" * 100)
        if number == 300:
            broker.shard.checkpoint()
    with Snapshots(ReadOnlyBucket(bucket)) as found:
        snapshot = found.of("t")
        blocks = snapshot.blocks("t", 0, start=10, end=390)
        shard = reader_of(bucket)
        parts = shard.journal_objects(block.sequence for block in blocks)
    assert len({part.name.partition("/")[0] for part in parts}) == 2, "bundles and pieces"
    bucket.asked.clear()
    planned = PlannedJournal(bucket.part("shards/0/"), parts)
    rows = [value for batch in read_blocks(planned, blocks, "messages", 0, 10, 390) for value in batch["value"]]
    assert [value.as_py().decode() for value in rows] == [f"{number}" * 100 for number in range(10, 390)]
    assert len(bucket.asked) <= len(parts), "what follows is read with what is asked for"
    bucket.delete([f"shards/0/{parts[-1].name}", f"shards/0/{parts[0].name}"])
    with pytest.raises(FileNotFoundError, match="the object is gone"):
        list(read_blocks(planned, blocks, "messages", 0))
    assert file_name(parts[0].sequence) == f"journal/{shard.list('journal')[0]}"


def test_segments_are_read_by_ranges_and_one_that_is_gone_is_told() -> None:
    bucket = Disappearing({})
    broker = owner_of(bucket)
    for _ in range(3):
        broker.publish_many("t", [b"x" * 1000] * 200)
    broker.settle()
    [segment] = bucket.list("shards/0/topics/t/messages/")
    with Snapshots(ReadOnlyBucket(bucket)) as found:
        assert len(values_in(found)) == 600
        assert f"shards/0/{bucket.asked[-1]}" == segment
        assert found.layout("t").messages[0].segments[0].path == f"memory:{segment}"
        bucket.delete([segment])
        with pytest.raises(CorruptData, match="the segment is missing"):
            values_in(found)


def test_paths_and_addresses_are_told_apart_in_one_place(tmp_path: Any) -> None:
    assert isinstance(open_root_for_reading(tmp_path), ReadOnlyStorage)
    assert isinstance(open_root_for_reading(f"{tmp_path}"), ReadOnlyStorage)
    assert isinstance(open_root_for_reading(tmp_path.as_uri()), ReadOnlyBucket)


@pytest.mark.parametrize("kind", ["bucket", "directory"])
def test_a_bucket_of_each_kind_is_read_while_a_broker_has_it(kind: str, bucket: Seaweed, tmp_path: Any) -> None:
    address = f"s3://{BUCKET}/{tmp_path.name}" if kind == "bucket" else tmp_path.as_uri()
    broker = owner_of(open_objects(address), journal_file_bytes=64 << 10)
    for number in range(60):
        broker.publish("t", f"{number}")
    broker.settle()
    broker.publish_many("t", ["tail"] * 5)
    with Snapshots(address) as found:
        assert values_in(found) == [*map(str, range(60)), *["tail"] * 5]
        assert found.of("t").storage.path == f"{address}/shards/0"


def test_row_groups_are_read_several_at_once_and_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_reader, "_AT_ONCE_BYTES", 1_000_000)
    bucket, chance = Disappearing({}), random.Random(1)
    broker = owner_of(bucket)
    for _ in range(7):
        broker.publish_many("t", [chance.randbytes(10) for _ in range(32_768)])
    broker.settle()
    with Snapshots(ReadOnlyBucket(bucket)) as found:
        snapshot = found.of("t")
        [segment] = snapshot.log("t", 0).segments
        [name] = bucket.part("shards/0/").list("topics/t/messages/")
        bucket.asked.clear()
        with segment_reader.SegmentReader(snapshot.storage, name, "messages", segment) as reader:
            tables = reader.tables(Window())
            rows = len(next(tables))
            until(lambda: len(bucket.asked) == 3, "the footer, some row groups, and those that follow")
            assert rows + sum(map(len, tables)) == 7 * 32_768
            assert reader.row_groups_read == 7
            assert len(bucket.asked) == 5, "seven, two at a time, and the footer"
