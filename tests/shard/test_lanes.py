"""Lanes and keys: which message goes next."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator

import pytest

import penstock
from penstock.testing import MemoryStorage, VirtualClock
from tests.shard.passing_time import pass_time


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        yield opened


def mixed(count: int, seed: int = 7) -> list[penstock.Message]:
    lanes = random.Random(seed)
    return [penstock.Message(f"{n}", key=f"k{n % 13}", priority=lanes.randrange(5)) for n in range(count)]


def test_O3_the_lowest_number_first_over_all_partitions(broker: penstock.Broker) -> None:
    broker.create_topic("t", partitions=4)
    broker.publish_many("t", mixed(400))
    consumer = broker.consumer("t", "g")
    received = [message for _ in range(40) for message in consumer.receive(10)]
    assert [message.priority for message in received] == sorted(message.priority for message in received)
    assert len({message.id for message in received}) == 400
    for lane in range(5):
        for partition in range(4):
            offsets = [m.offset for m in received if (m.priority, m.partition) == (lane, partition)]
            assert offsets == sorted(offsets)


def test_O3_what_is_published_later_in_a_better_lane_goes_before_the_rest(broker: penstock.Broker) -> None:
    broker.publish_many("t", [penstock.Message(f"{n}", priority="low") for n in range(10)])
    consumer = broker.consumer("t", "g")
    assert len(consumer.receive(3)) == 3
    broker.publish("t", "urgent", priority="critical")
    assert [message.value for message in consumer.receive(2)] == [b"urgent", b"3"]


def test_equals_of_several_partitions_are_served_in_turn(broker: penstock.Broker) -> None:
    broker.create_topic("t", partitions=3)
    for partition in range(3):
        broker.publish_many("t", [penstock.Message("x", partition=partition) for _ in range(30)])
    consumer = broker.consumer("t", "g")
    assert Counter(message.partition for message in consumer.receive(30)) == {0: 10, 1: 10, 2: 10}
    assert {message.partition for _ in range(3) for message in consumer.receive(1)} == {0, 1, 2}


@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_O4_weighted_lanes_get_their_shares(broker: penstock.Broker, at_once: int) -> None:
    broker.create_topic("t", lanes="weighted", lane_weights={0: 6, 1: 3, 2: 1})
    broker.publish_many("t", [penstock.Message("x", priority=n % 3) for n in range(6000)])
    consumer = broker.consumer("t", "g", autoack=True)
    received: list[int] = []
    while len(received) < 2000:
        received += [message.priority for message in consumer.receive(at_once)]
    shares = Counter(received[:2000])
    assert all(abs(shares[lane] - wanted) <= 10 for lane, wanted in ((0, 1200), (1, 600), (2, 200)))
    if at_once == 1:
        served = [place for place, lane in enumerate(received) if lane == 2]
        assert max(later - earlier for earlier, later in itertools.pairwise(served)) <= 11


def test_O4_a_lane_alone_gets_everything(broker: penstock.Broker) -> None:
    broker.create_topic("t", lanes="weighted", lane_weights={"high": 9, "low": 1})
    broker.publish_many("t", [penstock.Message("x", priority="low") for _ in range(50)])
    assert len(broker.consumer("t", "g").receive(50)) == 50


@pytest.mark.parametrize("lanes", ["strict", "weighted"])
@pytest.mark.parametrize("order", ["lane", "key"])
def test_O5_mixed_priorities_are_each_delivered_exactly_once(clock: VirtualClock, lanes: str, order: str) -> None:
    storage = MemoryStorage()
    choose = random.Random(lanes + order)
    seen: Counter[tuple[int, int]] = Counter()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.create_topic("t", partitions=3, lanes=lanes, order=order)
        consumer = broker.consumer("t", "g")
        published = 0
        while published < 2000:
            messages = mixed(choose.randrange(1, 200), published)
            broker.publish_many("t", messages)
            published += len(messages)
            if choose.random() < 0.3:
                broker.settle()
            received = consumer.receive(choose.randrange(1, 150))
            acked = [message for message in received if choose.random() < 0.7]
            consumer.release([message for message in received if message not in acked])
            consumer.ack(acked)
            seen.update((message.partition, message.offset) for message in acked)
    with penstock.open(storage=storage, clock=clock) as broker, broker.consumer("t", "g") as consumer:
        while received := consumer.receive(100):
            consumer.ack(received)
            seen.update((message.partition, message.offset) for message in received)
        info = broker.group("t", "g")
        assert (info.acked, info.lag) == (published, 0)
    assert len(seen) == published
    assert set(seen.values()) == {1}


def test_O1_at_most_one_lease_of_a_key_at_a_time_in_publish_order(broker: penstock.Broker) -> None:
    broker.create_topic("t", order="key", partitions=2)
    broker.publish_many("t", [penstock.Message(f"{n}", key=f"k{n % 5}") for n in range(100)])
    consumers = [broker.consumer("t", "g") for _ in range(3)]
    by_key: dict[bytes | None, list[int]] = {}
    choose = random.Random(3)
    held: list[penstock.Delivery] = []
    while len(by_key.get(b"k0", [])) < 20 or held:
        held += choose.choice(consumers).receive(choose.randrange(1, 4))
        assert len({message.key for message in held}) == len(held)
        if held:
            message = held.pop(choose.randrange(len(held)))
            message.ack()
            by_key.setdefault(message.key, []).append(int(message.value))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert sum(map(len, by_key.values())) == 100


def test_messages_without_a_key_wait_for_nobody(broker: penstock.Broker) -> None:
    broker.create_topic("t", order="key")
    broker.publish_many("t", ["a", "b", "c"])
    assert len(broker.consumer("t", "g").receive()) == 3


def test_O2_a_key_waits_for_its_failed_message_and_others_go_on(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", order="key")
    broker.publish_many("t", [penstock.Message(f"{n}", key="ab"[n % 2]) for n in range(6)])
    consumer = broker.consumer("t", "g")
    first, second = consumer.receive()
    assert (first.value, second.value) == (b"0", b"1")
    first.fail("later", delay=10)
    second.ack()
    (third,) = consumer.receive()
    assert third.value == b"3"
    pass_time(broker, clock, 10)
    (again,) = consumer.receive()
    assert (again.value, again.failures) == (b"0", 1)
    again.release()
    (again,) = consumer.receive()
    assert again.value == b"0"
    again.kill("never")
    assert [message.value for message in consumer.receive()] == [b"2"]


def test_O2_the_order_of_a_key_survives_a_restart(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.create_topic("t", order="key")
        broker.publish_many("t", [penstock.Message(f"{n}", key="k") for n in range(4)])
        broker.publish("t", "other", key="o")
        broker.settle()
        consumer = broker.consumer("t", "g")
        consumer.receive(1)[0].fail("later", delay=60)
    with penstock.open(storage=storage, clock=clock) as broker, broker.consumer("t", "g") as consumer:
        (other,) = consumer.receive()
        assert other.value == b"other"
        other.ack()
        pass_time(broker, clock, 60)
        values = []
        while received := consumer.receive():
            values += [message.value for message in received]
            consumer.ack(received)
        assert values == [b"0", b"1", b"2", b"3"]


def test_settled_messages_are_delivered_as_those_of_the_journal(clock: VirtualClock) -> None:
    messages = [
        penstock.Message(f"{n}", f"k{n % 7}", {"n": f"{n}"}, n % 4, delay=None if n % 5 else "30s") for n in range(300)
    ]

    def consume(broker: penstock.Broker) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        with broker.consumer("t", f"g{len(broker.groups('t'))}") as consumer:
            for seconds in (0, 31):
                pass_time(broker, clock, seconds)
                while received := consumer.receive(37):
                    consumer.ack(received)
                    found += [(m.offset, m.value, m.key, m.headers, m.priority, m.deliver_at) for m in received]
        return found

    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.create_topic("t", order="key")
        broker.publish_many("t", messages)
        fresh = consume(broker)
        assert len(fresh) == 300
        broker.settle()
        settled = consume(broker)
    with penstock.open(storage=storage, clock=clock) as broker:
        reopened = consume(broker)
    assert sorted(fresh, key=lambda row: row[:1]) == sorted(settled, key=lambda row: row[:1])  # by now all were due
    assert settled == reopened
