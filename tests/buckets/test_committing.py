"""Commits on a bucket: each is a request, so they are some time apart, and a thread of its own waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.cluster.shards import Shards
from penstock.embedded.broker import Broker
from penstock.embedded.consumer import Delivery
from penstock.journal import Commit
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import Chain
from penstock.model.clock import SystemClock
from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidArgument
from penstock.model.message import Message
from penstock.model.placement import shard_of
from penstock.server.commits import Commits
from penstock.shard.operations.consuming import Consuming
from penstock.shard.shard import Shard
from penstock.shard.upkeep.flushing import Flusher
from penstock.storage import Storage
from penstock.storage.objects import ObjectStore, Outcome
from penstock.testing import MemoryObjects, MemoryStorage, VirtualClock
from tests.buckets.hanging import HangingObjects
from tests.patience import until

INTERVAL_S = 0.1


class TimedObjects(MemoryObjects):
    """Notes when pieces with messages were created."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self.times_s: list[float] = []

    def create(self, name: str, data: bytes) -> Outcome:
        if name.startswith("journal/") and b"value" in data:
            self.times_s.append(self._clock.monotonic_s())
        return super().create(name, data)


def place(objects: ObjectStore, clock: VirtualClock | SystemClock) -> BucketStorage:
    return BucketStorage(objects, Chain(0, b"1" * 16, "somewhere"), lambda _: None, clock.monotonic_s)


def broker_on(storage: Storage, clock: VirtualClock, **options: Any) -> Broker:
    return Broker(storage, BrokerConfig.parse({"min_free_bytes": 0, **options}), clock)


def test_commits_on_a_bucket_are_an_interval_apart(clock: VirtualClock) -> None:
    objects = TimedObjects(clock)
    with broker_on(place(objects, clock), clock) as broker:
        broker.create_topic("t")
        for _ in range(5):
            broker.publish("t", "value")
    gaps = [after - before for before, after in zip(objects.times_s, objects.times_s[1:], strict=False)]
    assert gaps == [pytest.approx(INTERVAL_S)] * 4


def test_after_a_pause_a_commit_waits_for_nobody(clock: VirtualClock) -> None:
    objects = TimedObjects(clock)
    with broker_on(place(objects, clock), clock) as broker:
        broker.create_topic("t")
        for _ in range(3):
            clock.advance(10)
            before_s = clock.monotonic_s()
            broker.publish("t", "value")
            assert objects.times_s[-1] == before_s


def test_a_full_group_goes_at_once(clock: VirtualClock) -> None:
    objects = TimedObjects(clock)
    with broker_on(place(objects, clock), clock) as broker:
        broker.publish("t", "value")
        before_s = clock.monotonic_s()
        broker.publish_many("t", [b"value" + bytes(1 << 20)] * 8)
        assert objects.times_s[-1] == before_s


def test_what_comes_within_an_interval_is_one_commit(clock: VirtualClock) -> None:
    objects = HangingObjects()
    with broker_on(place(objects, clock), clock) as broker:
        broker.create_topic("t")
        objects.hang(times=1)
        threads = [threading.Thread(target=broker.publish, args=("t", "value")) for _ in range(20)]
        threads[0].start()
        objects.wait_until_hanging()
        for thread in threads[1:]:
            thread.start()
        until(lambda: len(broker.shard.journal.gathering.commit._callbacks or ()) == 19)
        before = len(objects.list("journal/"))
        objects.go_on()
        for thread in threads:
            thread.join(30)
        assert len(objects.list("journal/")) == before + 2
        assert len(list(broker.read("t"))) == 20


@pytest.mark.parametrize(("options", "apart_s"), [({}, 0.0), ({"commit_interval": "50ms"}, 0.05)])
def test_commits_on_a_disk_are_apart_only_if_that_is_wanted(
    clock: VirtualClock, options: dict[str, Any], apart_s: float
) -> None:
    with broker_on(MemoryStorage(), clock, **options) as broker:
        broker.create_topic("t")
        before_s = clock.monotonic_s()
        for _ in range(10):
            broker.publish("t", "value")
        assert clock.monotonic_s() - before_s == pytest.approx(10 * apart_s)


def test_commits_on_a_bucket_follow_one_another_if_that_is_wanted(clock: VirtualClock) -> None:
    with broker_on(place(MemoryObjects(), clock), clock, commit_interval=0) as broker:
        broker.create_topic("t")
        for _ in range(10):
            broker.publish("t", "value")
        assert clock.monotonic_s() == 0.0


def test_an_interval_that_is_longer_than_an_owner_may_be_silent_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="commit_interval: 2 is longer than 1"):
        BrokerConfig.parse({"commit_interval": 2})


def test_on_a_bucket_what_is_acknowledged_is_there_whatever_sync_says(clock: VirtualClock) -> None:
    objects = MemoryObjects()
    broker = broker_on(place(objects, clock), clock, sync="never")
    broker.publish("t", "value")
    with broker_on(place(objects, clock), clock) as again:
        assert [message.value for message in again.read("t")] == [b"value"]
    broker.close()


def test_closing_waits_for_no_interval_and_loses_nothing(clock: VirtualClock) -> None:
    objects = MemoryObjects()
    broker = broker_on(place(objects, clock), clock)
    broker.create_topic("t")
    shard = broker.shard
    shard.publish("t", Message("value"))
    before_s = clock.monotonic_s()
    broker.close()
    assert clock.monotonic_s() - before_s < INTERVAL_S
    with broker_on(place(objects, clock), clock) as again:
        assert len(list(again.read("t"))) == 1


# On the event loop of a server.


@contextmanager
def two_shards(first: ObjectStore, second: ObjectStore, clock: VirtualClock | SystemClock) -> Iterator[Shards]:
    """Each on a bucket of its own."""
    config = BrokerConfig.parse({"min_free_bytes": 0, "commit_interval": 0})
    places = [place(objects, clock) for objects in (first, second)]
    shards, flusher = Shards(places[0], places, config, clock), Flusher(config)
    for number in range(2):
        flusher.add(shards.open(number))
    yield shards
    flusher.stop()
    for shard in shards:
        shard.close()


def test_a_request_that_hangs_stops_neither_the_loop_nor_other_shards() -> None:
    hanging = HangingObjects()
    with two_shards(hanging, MemoryObjects(), SystemClock()) as shards:
        one, two = shards[0], shards[1]
        hanging.hang()

        async def publish() -> None:
            commits = Commits(asyncio.get_running_loop(), shards)
            stuck = _publish(commits, one)
            for _ in range(20):
                await _publish(commits, two)
            assert not stuck.done()
            hanging.go_on()
            await stuck

        asyncio.run(asyncio.wait_for(publish(), 60))


def _publish(commits: Commits, shard: Shard) -> asyncio.Future[None]:
    return commits.of(_publish_to(shard))


def _publish_to(shard: Shard) -> Commit:
    """A message for a topic that lives there."""
    topic = next(name for name in "abcdefgh" if shard_of(name, 2) == shard.place.number)
    _, commit = shard.publish(topic, Message("value"))
    assert commit is not None
    return commit


def test_a_shard_tells_how_long_its_oldest_commit_takes(clock: VirtualClock) -> None:
    hanging = HangingObjects()
    with two_shards(hanging, MemoryObjects(), clock) as shards:
        one, two = shards[0], shards[1]
        hanging.hang()
        for shard in (one, two):
            commit = _publish_to(shard)
            commit.hurry()
        commit.wait()
        hanging.wait_until_hanging()
        clock.advance(1)
        assert one.journal.stalled_s(clock.monotonic_s()) == 1
        _publish_to(one)
        clock.advance(2)
        assert one.journal.stalled_s(clock.monotonic_s()) == 3
        assert two.journal.stalled_s(clock.monotonic_s()) == 0
        hanging.go_on()
        one.flush()
        assert one.journal.stalled_s(clock.monotonic_s()) == 0


def test_what_may_have_to_be_asked_for_is_read_in_a_thread(clock: VirtualClock) -> None:
    objects = MemoryObjects()
    with broker_on(place(objects, clock), clock, commit_interval=0) as broker:
        shard = broker.shard
        broker.publish_many("t", ["in a bundle"] * 2)
        shard.journal.seal()
        broker.publish("t", "in memory")
        shard.checkpoint()
        consuming = Consuming(
            shard, Delivery, "t", "g", mode="shared", max_in_flight=10, visibility_timeout=None, session_timeout=30,
            start="earliest", name=None,
        )  # fmt: skip
        found = [consuming.fetch_now(1, None) for _ in range(3)]
        assert [consuming.must_read_segments(one) for one in found] == [True, True, False]
        consuming.messages(found[0])
        assert not consuming.must_read_segments(found[1]), "it was read with the one before"
        consuming.close()
