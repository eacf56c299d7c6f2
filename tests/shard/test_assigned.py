"""Assigned mode: each partition belongs to one consumer, and moves no more than it must."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import penstock
from penstock.testing import MemoryStorage, VirtualClock
from tests.shard.passing_time import pass_time


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        opened.create_topic("t", partitions=4)
        yield opened


def publish(broker: penstock.Broker, each: int = 1) -> None:
    for partition in range(4):
        broker.publish_many("t", [penstock.Message(f"{partition}", partition=partition) for _ in range(each)])


def join(broker: penstock.Broker, name: str) -> penstock.Consumer:
    return broker.consumer("t", "g", mode="assigned", name=name, session_timeout=10, visibility_timeout=1000)


def owned(broker: penstock.Broker) -> dict[str, tuple[int, ...]]:
    return {member.name: member.partitions for member in broker.group("t", "g").members}


def partitions(messages: list[penstock.Delivery]) -> set[int]:
    return {message.partition for message in messages}


def test_G1_each_partition_has_one_owner(broker: penstock.Broker) -> None:
    one = join(broker, "one")
    assert owned(broker) == {"one": (0, 1, 2, 3)}
    two = join(broker, "two")
    assert owned(broker) == {"one": (0, 1), "two": (2, 3)}
    publish(broker, 3)
    first, second = one.receive(), two.receive()
    assert (partitions(first), partitions(second)) == ({0, 1}, {2, 3})
    assert len(first) == len(second) == 6
    one.ack(first)
    two.ack(second)
    assert broker.group("t", "g").acked == 12


def test_G2_joining_moves_only_what_must_move(broker: penstock.Broker) -> None:
    join(broker, "one")
    join(broker, "two")
    before = owned(broker)
    three = join(broker, "three")
    after = owned(broker)
    moved = [p for p in range(4) if not any(p in before[name] and p in after[name] for name in before)]
    assert len(moved) == 1
    assert sorted(map(len, after.values())) == [1, 1, 2]
    three.close()
    assert {name: len(owned(broker)[name]) for name in before} == {"one": 2, "two": 2}


def test_G2_a_partition_with_leases_moves_when_they_are_settled_and_others_never_pause(broker: penstock.Broker) -> None:
    one = join(broker, "one")
    publish(broker, 2)
    held = one.receive()
    two = join(broker, "two")
    assert owned(broker) == {"one": (0, 1), "two": ()}
    publish(broker)
    assert two.receive() == []
    fresh = one.receive()
    assert partitions(fresh) == {0, 1}
    one.ack(fresh)
    one.ack([message for message in held if message.partition == 2])
    assert owned(broker) == {"one": (0, 1), "two": (2,)}
    assert partitions(two.receive()) == {2}
    one.ack([message for message in held if message.partition == 3])
    assert partitions(two.receive()) == {3}
    one.ack([message for message in held if message.partition < 2])
    assert owned(broker) == {"one": (0, 1), "two": (2, 3)}


def test_leaving_gives_back_and_hands_over(broker: penstock.Broker) -> None:
    one, two = join(broker, "one"), join(broker, "two")
    publish(broker)
    one.receive()
    one.close()
    received = two.receive()
    assert partitions(received) == {0, 1, 2, 3}
    assert sorted((message.partition, message.deliveries, message.failures) for message in received) == [
        (0, 2, 0),
        (1, 2, 0),
        (2, 1, 0),
        (3, 1, 0),
    ]


def test_G3_one_that_was_not_heard_of_loses_its_partitions_and_cannot_ack(
    broker: penstock.Broker, clock: VirtualClock
) -> None:
    zombie, two = join(broker, "zombie"), join(broker, "two")
    publish(broker)
    held = zombie.receive()
    assert partitions(held) == {0, 1}
    pass_time(broker, clock, 6)
    two.heartbeat()
    pass_time(broker, clock, 5)
    assert owned(broker) == {"zombie": (), "two": (0, 1, 2, 3)}
    taken = two.receive()
    assert partitions(taken) == {0, 1, 2, 3}
    for message in held:
        with pytest.raises(penstock.LeaseLost):
            message.ack()
    two.ack(taken)
    info = broker.group("t", "g")
    assert (info.acked, info.leased) == (4, 0)
    assert sum(message.failures for message in taken) == 2


def test_G4_one_that_comes_back_takes_part_again(broker: penstock.Broker, clock: VirtualClock) -> None:
    one, two = join(broker, "one"), join(broker, "two")
    pass_time(broker, clock, 6)
    two.heartbeat()
    pass_time(broker, clock, 5)
    assert owned(broker)["one"] == ()
    assert one.receive() == []
    assert sorted(map(len, owned(broker).values())) == [2, 2]
    publish(broker)
    assert partitions(one.receive()) | partitions(two.receive()) == {0, 1, 2, 3}


def test_every_call_is_a_sign_of_life(broker: penstock.Broker, clock: VirtualClock) -> None:
    one = join(broker, "one")
    publish(broker, 4)
    (first, second, third) = one.receive(3)
    for call in (first.ack, lambda: second.extend(2000), lambda: one.receive(1), one.heartbeat, third.release):
        pass_time(broker, clock, 9)
        call()
    assert owned(broker)["one"] == (0, 1, 2, 3)
    assert broker.group("t", "g").members[0].in_flight == 2


def test_those_who_wait_are_alive(broker: penstock.Broker, clock: VirtualClock) -> None:
    one = join(broker, "one")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.receive, 10, wait=20)
        with broker.shards.of("t").lock:
            active = broker.shards.of("t").dispatcher.in_use.groups(broker.shards.of("t").topic("t"))["g"]
        while not active.waiters:
            pass
        pass_time(broker, clock, 60)
        assert owned(broker)["one"] == (0, 1, 2, 3)
        publish(broker)
        assert len(waiting.result()) >= 1


def test_G4_more_consumers_than_partitions_leave_some_idle_until_others_go(broker: penstock.Broker) -> None:
    consumers = [join(broker, f"c{n}") for n in range(6)]
    assert sorted(map(len, owned(broker).values())) == [0, 0, 1, 1, 1, 1]
    busy = [name for name, mine in owned(broker).items() if mine]
    for consumer in consumers:
        if consumer.name in busy[:2]:
            consumer.close()
    assert sorted(map(len, owned(broker).values())) == [1, 1, 1, 1]
    assert sorted(partition for mine in owned(broker).values() for partition in mine) == [0, 1, 2, 3]


def test_a_group_may_change_its_mode_once_everybody_left(broker: penstock.Broker) -> None:
    join(broker, "one").close()
    publish(broker, 5)
    with broker.consumer("t", "g") as one, broker.consumer("t", "g") as two:
        assert (len(one.receive(10)), len(two.receive(10))) == (10, 10)
        with pytest.raises(penstock.GroupInUse, match="in shared mode"):
            join(broker, "three")
    three = join(broker, "three")
    assert owned(broker) == {"three": (0, 1, 2, 3)}
    assert len(three.receive()) == 20


def test_G1_real_consumers_that_come_and_go_do_everything_once() -> None:
    with penstock.open(storage=MemoryStorage()) as broker, ThreadPoolExecutor(6) as pool:
        broker.create_topic("t", partitions=4)
        publish(broker, 200)

        def work(number: int) -> list[penstock.MessageId]:
            seen: list[penstock.MessageId] = []
            for _ in range(3):
                with broker.consumer("t", "g", mode="assigned") as consumer:
                    for _ in range(10 + number):
                        received = consumer.receive(3, wait=0.001)
                        consumer.ack(received)
                        seen += [message.id for message in received]
            return seen

        seen = [identity for part in pool.map(work, range(6)) for identity in part]
        with broker.consumer("t", "g", mode="assigned") as last:
            while received := last.receive(100, wait=0.2):
                last.ack(received)
                seen += [message.id for message in received]
        assert len(seen) == len(set(seen)) == 800
        assert broker.group("t", "g").acked == 800
