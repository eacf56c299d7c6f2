"""What a shard on a bucket asks for: a takeover reads little, and an idle shard writes nothing."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest

from penstock.embedded.broker import Broker
from penstock.journal.bucket_state import Bundle, decode_state
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import Chain, read
from penstock.journal.conversing import carry_out
from penstock.model.config import BrokerConfig
from penstock.model.message import Message
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.shard.upkeep.settling import Settler, tidy
from penstock.storage.objects import ObjectStore, Outcome, Range
from penstock.testing import MemoryObjects, VirtualClock
from tests.patience import until

MIB = 1 << 20
PIECES = 256
numbers = itertools.count(1)


class CountedObjects(MemoryObjects):
    """Counts requests by the first part of the name."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        self.read_bytes = self.at_once = 0

    def create(self, name: str, data: bytes) -> Outcome:
        self.made[_kind(name)] += 1
        return super().create(name, data)

    def put(self, name: str, data: bytes) -> None:
        self.made[_kind(name)] += 1
        super().put(name, data)

    def get(self, name: str) -> bytes | None:
        data = super().get(name)
        self.read[_kind(name)] += data is not None
        self.read_bytes += len(data or b"")
        return data

    def has_bundles(self, count: int) -> bool:
        return len(self.list("bundles/")) == count

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        self.at_once = max(self.at_once, len(ranges))
        return super().get_ranges(ranges)

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        data = super().get(name)
        part = None if data is None else data[start : start + length]
        self.read[_kind(name)] += data is not None
        self.read_bytes += len(part or b"")
        return part


def _kind(name: str) -> str:
    return name.partition("/")[0]


def place(objects: ObjectStore, clock: VirtualClock, grace_s: float = 0.0) -> BucketStorage:
    chain = Chain(0, next(numbers).to_bytes(16), "somewhere")
    return BucketStorage(objects, chain, lambda _: None, clock.monotonic_s, grace_s)


def config(**options: object) -> BrokerConfig:
    return BrokerConfig.parse({"min_free_bytes": 0, "settle_after": 3600, "commit_interval": 0, **options})


def publish(shard: Shard, *values: str | bytes) -> None:
    for value in values:
        commit = shard.publish("t", Message(value))[1]
        assert commit is not None
        commit.wait()


def values(shard: Shard) -> Sequence[bytes]:
    log = shard.topic("t").partitions[0].messages
    return [message.value for message in LogReader(shard, log).messages(Window())]


def take_over(objects: CountedObjects, clock: VirtualClock) -> Shard:
    """By another process, which counts what it reads."""
    objects.read.clear()
    objects.read_bytes = 0
    return Shard(place(objects, clock), config(), clock)


def test_C20_a_takeover_reads_few_pieces_however_many_commits_there_were(clock: VirtualClock) -> None:
    objects = CountedObjects()
    broker = Broker(place(objects, clock), config(), clock)
    for number in range(3 * PIECES + 10):
        broker.publish("t", f"{number}")
        if number % PIECES == 0:  # the thread that keeps house has time for it
            until(partial(objects.has_bundles, number // PIECES))
    second = take_over(objects, clock)
    assert len(list(broker.read("t"))) == 3 * PIECES + 10
    assert objects.read["journal"] <= PIECES
    assert len(values(second)) == 3 * PIECES + 10
    broker.close()


def test_C20_a_journal_file_on_a_bucket_is_sealed_early(clock: VirtualClock) -> None:
    objects = CountedObjects()
    shard = Shard(place(objects, clock), config(segment_min_bytes="1GiB"), clock)
    settler = Settler(shard)
    for _ in range(10):
        publish(shard, *[bytes(MIB)] * 4)
        settler.settle()
    assert len(objects.list("bundles/")) == 2
    assert all(len(objects.objects[name]) <= 16 * MIB for name in objects.list("bundles/"))
    second = take_over(objects, clock)
    assert objects.read_bytes < 42 * MIB, "nothing is read twice"
    assert objects.read["journal"] <= 16
    assert len(values(second)) == 40


def test_C20_many_small_journal_files_are_kept_and_read_at_once(clock: VirtualClock) -> None:
    objects = CountedObjects()
    shard = Shard(place(objects, clock), config(), clock)
    settler = Settler(shard)
    for _ in range(20):
        publish(shard, *["value"] * 10)
        shard.journal.seal()
        settler.settle()
    publish(shard, "value")
    settler.settle()
    assert len(objects.list("bundles/")) == 20
    assert objects.list("topics/") == [], "nothing is settled for their number alone"
    assert len(values(take_over(objects, clock))) == 201
    assert objects.at_once == objects.read["bundles"] == 20


def test_a_file_that_goes_at_once_is_no_bundle_before(clock: VirtualClock) -> None:
    objects = CountedObjects()
    shard = Shard(place(objects, clock), config(journal_file_bytes="64KiB", segment_min_bytes="1KiB"), clock)
    settler = Settler(shard)
    for number in range(100):
        publish(shard, f"{number}".encode() * 2000)
        settler.settle()
    assert len(objects.list("topics/")) > 2, "much was settled"
    assert objects.made["bundles"] == 0
    assert len(values(take_over(objects, clock))) == 100


def test_a_file_that_was_to_go_stays_if_the_checkpoint_was_not_put(clock: VirtualClock) -> None:
    class Refusing(CountedObjects):
        refuses = False

        def put(self, name: str, data: bytes) -> None:
            if self.refuses and name.startswith("checkpoints/"):
                raise PermissionError("not now")
            super().put(name, data)

    objects = Refusing()
    shard = Shard(place(objects, clock), config(segment_min_bytes=0), clock)
    publish(shard, "a", "b")
    objects.refuses = True
    with pytest.raises(PermissionError):
        Settler(shard).settle(everything=True)
    objects.refuses = False
    publish(shard, "c")
    shard.checkpoint()
    assert values(take_over(objects, clock)) == [b"a", b"b", b"c"]


def test_C7_an_idle_owner_proves_once_that_it_is_one_and_then_writes_nothing(clock: VirtualClock) -> None:
    objects = CountedObjects()
    shard = Shard(place(objects, clock, grace_s=600), config(), clock)
    settler = Settler(shard)
    publish(shard, *["value"] * 20)
    settler.settle(everything=True)
    before = len(objects.list("journal/"))
    made = objects.made.copy()
    settler.settle()
    assert objects.made - made == {"journal": 1}, "the proof"
    made = objects.made.copy()
    for _ in range(5):
        settler.settle()
        assert len(objects.list("journal/")) == before + 1
        clock.advance(130)
    settler.settle()
    assert objects.made == made, "an idle shard puts nothing"
    assert len(objects.list("journal/")) <= 3, "two seals, or one, and the proof"
    assert len(values(take_over(objects, clock))) == 20


def test_C7_who_writes_anyhow_needs_no_proof_of_its_own(clock: VirtualClock) -> None:
    objects = CountedObjects()
    shard = Shard(place(objects, clock), config(), clock)
    settler = Settler(shard)
    for _ in range(5):
        publish(shard, "value")
        shard.checkpoint()
        before = objects.made["journal"]
        settler.settle()
        assert objects.made["journal"] == before


def test_bundles_that_no_checkpoint_names_go(clock: VirtualClock) -> None:
    objects = CountedObjects()
    first = Shard(place(objects, clock), config(), clock)
    settler = Settler(first)
    for _ in range(3):
        publish(first, "value")
        first.journal.seal()
    publish(first, "value")
    settler.settle()
    assert len(objects.list("bundles/")) == 3
    strange = Bundle(2, 0, 5).name  # of an owner that ended before its checkpoint
    objects.put(strange, b"12345")
    second = take_over(objects, clock)
    second.storage.remove_due()
    assert strange in objects.list("bundles/")
    second.journal.prove()
    second.storage.remove_due()
    assert strange not in objects.list("bundles/")
    assert len(values(second)) == 4


def test_a_checkpoint_names_no_bundle_that_goes_with_it(clock: VirtualClock) -> None:
    objects = CountedObjects()
    shard = Shard(place(objects, clock), config(), clock)
    for _ in range(3):
        publish(shard, "value")
        shard.journal.seal()
        shard.checkpoint()
    Settler(shard).settle(everything=True)
    shard.journal.prove()
    shard.storage.remove_due()
    found = carry_out(read(0), objects, lambda _: None)
    assert decode_state(found.checkpoint, "").bundles == []
    assert objects.list("bundles/") == []


def test_C20_a_file_that_was_sealed_by_hand_is_a_bundle_when_the_next_one_begins(clock: VirtualClock) -> None:
    objects = CountedObjects()
    with Broker(place(objects, clock), config(), clock) as broker:
        broker.publish_many("t", ["value"] * 10)
        broker.shard.journal.seal()
        broker.publish("t", "value")
        until(partial(objects.has_bundles, 1), patience_s=4)  # before the thread that keeps house looks by itself


def test_what_waited_to_be_removed_when_an_owner_ended_is_removed_by_the_next_one(clock: VirtualClock) -> None:
    objects = CountedObjects()
    first = Shard(place(objects, clock, grace_s=600), config(), clock)
    publish(first, "value")
    Settler(first).settle(everything=True)
    first.delete_topic("t")
    first.flush()
    Settler(first).settle()
    first.close()
    assert len(objects.list("topics/")) == 1, "somebody may be reading it"
    second = Shard(place(objects, clock, grace_s=600), config(), clock)
    tidy(second)
    second.storage.remove_due()
    second.journal.prove()
    second.storage.remove_due()
    assert len(objects.list("topics/")) == 1
    clock.advance(601)
    second.storage.remove_due()
    assert objects.list("topics/") == []
