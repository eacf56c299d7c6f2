"""A shard on a bucket: what it acknowledged is there for the next owner, and who was replaced changes nothing."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.embedded.broker import Broker
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import Chain
from penstock.model.config import BrokerConfig
from penstock.model.errors import BrokerClosed, NotOwner
from penstock.storage.buckets import open_objects
from penstock.storage.objects import ObjectStore
from penstock.testing import FaultyObjects, MemoryObjects, VirtualClock
from penstock.testing.seaweed import BUCKET, Seaweed

Open = Callable[..., Broker]
numbers = itertools.count(1)


def storage_on(objects: ObjectStore, clock: VirtualClock, grace_s: float = 0.0) -> BucketStorage:
    """The directory of a shard, for a process of its own."""
    chain = Chain(0, next(numbers).to_bytes(16), "somewhere:9000")
    return BucketStorage(objects, chain, lambda _: None, clock.monotonic_s, grace_s)


@pytest.fixture
def open_on(clock: VirtualClock) -> Iterator[Open]:
    """Opens brokers of one shard on a bucket, each as a process of its own; those that are left open just end."""

    def start(objects: ObjectStore, grace_s: float = 0.0, **options: Any) -> Broker:
        config = BrokerConfig.parse({"min_free_bytes": 0, "settle_after": 3600, **options})
        return Broker(storage_on(objects, clock, grace_s), config, clock)

    yield start


def values(broker: Broker, topic: str = "t") -> list[str]:
    return [message.value.decode() for message in broker.read(topic)]


def publish(broker: Broker, *some: str) -> None:
    for value in some:
        broker.publish("t", value)


def test_C2_the_next_owner_has_all_that_was_acknowledged(open_on: Open) -> None:
    objects = MemoryObjects()
    with open_on(objects) as broker:
        publish(broker, "a", "b")
        broker.publish_many("t", ["c", "d"])
        with broker.consumer("t", "g") as consumer:
            consumer.ack(consumer.receive(2))
    with open_on(objects) as broker:
        assert values(broker) == ["a", "b", "c", "d"]
        assert (broker.group("t", "g").acked, broker.group("t", "g").ready) == (2, 2)
        publish(broker, "e")
    with open_on(objects) as broker:
        assert values(broker) == ["a", "b", "c", "d", "e"]


def test_C1_C8_who_was_replaced_publishes_and_acks_nothing_any_more(open_on: Open) -> None:
    objects = MemoryObjects()
    first = open_on(objects)
    publish(first, "a", "b")
    consumer = first.consumer("t", "g")
    held = consumer.receive(2)
    with open_on(objects) as second:
        publish(second, "c")
        with pytest.raises(NotOwner, match="nothing of this was written"):
            first.publish("t", "lost")
        with pytest.raises(NotOwner):
            consumer.ack(held)
        with pytest.raises(NotOwner):
            first.create_topic("other")
        assert values(second) == ["a", "b", "c"]
        assert second.group("t", "g").ready == 3
        first.close()
        publish(second, "d")
    with open_on(objects) as third:
        assert values(third) == ["a", "b", "c", "d"]


def test_pieces_become_bundles_and_go(open_on: Open) -> None:
    objects = MemoryObjects()
    broker = open_on(objects, journal_file_bytes=64 << 10)
    shard = broker.shards.only
    for number in range(40):
        broker.publish_many("t", [f"{number}" * 100] * 50)
    shard.checkpoint()
    assert len(objects.list("bundles/")) > 3
    publish(broker, "proof")
    shard.checkpoint()
    publish(broker, "again")
    shard.checkpoint()
    assert len(objects.list("journal/")) < 20
    assert len(objects.list("checkpoints/")) <= 3
    expected = values(broker)
    again = open_on(objects)
    assert values(again) == expected
    assert len(expected) == 2002


def test_what_is_settled_is_read_from_objects_and_their_journal_files_go(open_on: Open) -> None:
    objects = MemoryObjects()
    broker = open_on(objects, journal_file_bytes=64 << 10)
    for number in range(40):
        broker.publish_many("t", [f"{number}"] * 50)
    broker.settle()
    publish(broker, "proof")
    broker.shards.only.checkpoint()
    [segment] = objects.list("topics/t/messages/")
    assert segment.endswith("-1.parquet"), "the name says who made it"
    assert objects.list("bundles/") == []
    again = open_on(objects)
    assert values(again) == values(broker)
    again.delete_topic("t")
    publish(again, "new")
    again.shards.only.checkpoint()
    publish(again, "newer")
    again.shards.only.checkpoint()
    assert objects.list("topics/t/messages/") == []


def test_what_is_removed_stays_for_a_while_for_those_who_read_it(open_on: Open, clock: VirtualClock) -> None:
    objects = MemoryObjects()
    broker = open_on(objects, grace_s=600)
    publish(broker, "a")
    broker.settle()
    [segment] = objects.list("topics/t/messages/")
    broker.delete_topic("t")
    for moment_s in (0, 599):
        clock.advance(moment_s)
        publish(broker, "b")
        broker.shards.only.checkpoint()
        assert segment in objects.list("topics/t/messages/")
    clock.advance(2)
    publish(broker, "c")
    broker.shards.only.checkpoint()
    assert segment not in objects.list("topics/t/messages/")


@pytest.mark.parametrize("seed", range(40))
def test_L1_Q1_on_a_bucket_that_fails_owners_follow_one_another_and_nothing_is_lost(open_on: Open, seed: int) -> None:
    objects, chance = FaultyObjects(seed), random.Random(seed)
    published: list[str] = []
    acked: set[str] = set()
    owners: list[Broker] = []
    for turn in range(8):
        broker = open_on(objects, journal_file_bytes=64 << 10)
        owners.append(broker)
        for number in range(chance.randrange(5, 25)):
            value = f"{turn}.{number}"
            match chance.randrange(6):
                case 0:
                    broker.publish_many("t", [value, f"{value}+"])
                    published += [value, f"{value}+"]
                case 1 if published:
                    with broker.consumer("t", "g") as consumer:
                        found = consumer.receive(3)
                        consumer.ack(found)
                        assert acked.isdisjoint(message.value.decode() for message in found), "Q2"
                        acked.update(message.value.decode() for message in found)
                case 2:
                    chance.choice([broker.shards.only.checkpoint, broker.settle])()
                case _:
                    broker.publish("t", value)
                    published.append(value)
        if chance.random() < 0.5:
            broker.close()
        for old in owners[:-1]:
            if not old.shards.only.closed:
                with pytest.raises((NotOwner, BrokerClosed)):
                    old.publish("t", "never")
    objects.is_calm = True
    last = open_on(objects)
    assert values(last) == published
    group = last.group("t", "g")
    assert group.acked == len(acked)
    assert group.ready == len(published) - len(acked)


def test_C1_C2_threads_publish_while_the_state_is_noted_and_another_process_takes_over(open_on: Open) -> None:
    objects = MemoryObjects()
    first = open_on(objects, journal_file_bytes=64 << 10)
    acked: list[list[str]] = [[] for _ in range(4)]
    stopping = threading.Event()

    def publish_on(number: int) -> None:
        with contextlib.suppress(NotOwner):
            for count in itertools.count():
                first.publish("t", f"{number}.{count}")
                acked[number].append(f"{number}.{count}")

    def note() -> None:
        with contextlib.suppress(NotOwner, BrokerClosed):
            while not stopping.is_set():
                first.shards.only.checkpoint()
                first.settle()

    threads = [threading.Thread(target=publish_on, args=(number,)) for number in range(4)]
    noting = threading.Thread(target=note)
    for thread in (*threads, noting):
        thread.start()
    while sum(map(len, acked)) < 1000:
        stopping.wait(0.01)
    second = open_on(objects)
    for thread in threads:
        thread.join(30)
    stopping.set()
    noting.join(30)
    assert not any(thread.is_alive() for thread in (*threads, noting))
    there = values(second)
    assert len(set(there)) == len(there)
    for number, own in enumerate(acked):
        assert [value for value in there if value.startswith(f"{number}.")] == own


def test_a_shard_lives_on_a_real_store(open_on: Open, bucket: Seaweed) -> None:
    objects = open_objects(f"s3://{BUCKET}/shard")
    with open_on(objects) as broker:
        for number in range(50):
            publish(broker, f"{number}")
        broker.settle()
        publish(broker, "later")
    with open_on(open_objects(f"s3://{BUCKET}/shard")) as broker:
        assert values(broker) == [*map(str, range(50)), "later"]
