"""Consumers: receiving, iterating, waiting, sharing, and giving back what they hold."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import penstock
from penstock.embedded.consumer import Delivery
from penstock.testing import MemoryStorage

SOON_S = 20.0


@pytest.fixture
def broker() -> Iterator[penstock.Broker]:
    """A broker in memory, by the real clock."""
    with penstock.open(storage=MemoryStorage()) as opened:
        yield opened


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def wait_for_a_waiter(broker: penstock.Broker, topic: str, group: str = "g", count: int = 1) -> None:
    """Until so many receivers wait: an event would have to be in the code under test."""
    shard = broker.shards.of(topic)
    while True:
        with shard.lock:
            delivery = shard.dispatcher.in_use.of(shard.topic(topic))
            if delivery is not None and len(delivery.active_groups[group].waiters) >= count:
                return
        threading.Event().wait(0.001)


def values(messages: list[Delivery]) -> list[bytes]:
    return [message.value for message in messages]


def test_a_batch_has_everything_that_was_published(broker: penstock.Broker) -> None:
    broker.publish("t", "v", key="k", headers={"a": "b"}, priority="high", dedupe_id="d", expires_in=60)
    with broker.consumer("t", "g", name="worker") as consumer:
        (message,) = consumer.receive(10)
        (stored,) = broker.read("t")
        assert (message.id, message.value, message.key, message.headers) == (stored.id, b"v", b"k", {"a": "b"})
        assert (message.priority, message.timestamp, message.dedupe_id) == (64, stored.timestamp, "d")
        assert message.expires_at == stored.expires_at is not None
        assert (message.deliveries, message.failures) == (1, 0)
        assert message.receipt.startswith("t/0/0@")
        assert (consumer.name, consumer.group) == ("worker", "g")


def test_receive_gives_at_most_what_is_asked_for_in_order(broker: penstock.Broker) -> None:
    broker.publish_many("t", [f"{n}" for n in range(10)])
    with broker.consumer("t", "g") as consumer:
        assert values(consumer.receive(4)) == [b"0", b"1", b"2", b"3"]
        assert values(consumer.receive(100)) == [b"4", b"5", b"6", b"7", b"8", b"9"]
        assert consumer.receive() == []


def test_iterating_gives_message_by_message_until_the_consumer_is_closed(broker: penstock.Broker) -> None:
    broker.publish_many("t", [f"{n}" for n in range(250)])
    consumer = broker.consumer("t", "g")
    seen = []
    for message in consumer:
        seen.append(message.offset)
        message.ack()
        if len(seen) == 250:
            consumer.close()
    assert seen == list(range(250))
    assert broker.group("t", "g").acked == 250


def test_several_topics_are_received_in_turn(broker: penstock.Broker) -> None:
    for topic in ("a", "b"):
        broker.publish_many(topic, ["1", "2", "3"])
    with broker.consumer(["a", "b"], "g") as consumer:
        received = [message for _ in range(6) for message in consumer.receive(1)]
        assert sorted((message.topic, message.value) for message in received) == [
            (topic, value) for topic in ("a", "b") for value in (b"1", b"2", b"3")
        ]
        assert {message.topic for message in received[:2]} == {"a", "b"}
        consumer.ack(received)
    assert [info.acked for info in broker.groups()] == [3, 3]


def test_a_receiver_of_several_topics_is_woken_by_any(broker: penstock.Broker, pool: ThreadPoolExecutor) -> None:
    with broker.consumer(["a", "b", "c"], "g") as consumer:
        waiting = pool.submit(consumer.receive, 5, wait=SOON_S)
        wait_for_a_waiter(broker, "b")
        broker.publish("b", "x")
        assert values(waiting.result()) == [b"x"]
        broker.publish("a", "y")
        broker.publish("c", "z")
        assert sorted(values(consumer.receive() + consumer.receive())) == [b"y", b"z"]


def test_the_context_manager_gives_leases_back_with_their_counters(broker: penstock.Broker) -> None:
    broker.publish_many("t", ["a", "b"])
    with broker.consumer("t", "g") as consumer:
        consumer.receive(1)[0].ack()
        consumer.receive(1)
    info = broker.group("t", "g")
    assert (info.acked, info.ready, info.leased, info.members) == (1, 1, 0, ())
    with broker.consumer("t", "g") as consumer:
        (message,) = consumer.receive()
        assert (message.value, message.deliveries, message.failures) == (b"b", 2, 0)
    consumer.close()
    with pytest.raises(penstock.BrokerClosed, match="is closed"):
        consumer.receive()


def test_autoack_acks_what_is_handed_out_and_nothing_else(broker: penstock.Broker) -> None:
    broker.publish_many("t", [f"{n}" for n in range(10)])
    with broker.consumer("t", "g", autoack=True) as consumer:
        assert len(consumer.receive(4)) == 4
        assert next(iter(consumer)).offset == 4
    info = broker.group("t", "g")
    assert (info.acked, info.ready) == (5, 5)


def test_one_message_goes_to_one_consumer_of_a_group(broker: penstock.Broker, pool: ThreadPoolExecutor) -> None:
    broker.create_topic("t", partitions=3)
    broker.publish_many("t", [f"{n}" for n in range(600)])

    def work(consumer: penstock.Consumer) -> list[bytes]:
        seen: list[bytes] = []
        while messages := consumer.receive(7):
            consumer.ack(messages)
            seen += values(messages)
        return seen

    consumers = [broker.consumer("t", "g") for _ in range(4)]
    seen = [value for part in pool.map(work, consumers) for value in part]
    assert sorted(seen, key=int) == [f"{n}".encode() for n in range(600)]
    assert broker.group("t", "g").acked == 600


def test_threads_may_share_a_consumer(broker: penstock.Broker, pool: ThreadPoolExecutor) -> None:
    with broker.consumer("t", "g") as consumer:

        def work(_: int) -> list[int]:
            seen = []
            while messages := consumer.receive(3, wait=0.3):
                for message in messages:
                    message.ack()
                    seen.append(message.offset)
            return seen

        working = [pool.submit(work, n) for n in range(6)]
        for n in range(300):
            broker.publish("t", f"{n}")
        assert sorted(offset for each in working for offset in each.result()) == list(range(300))


def test_Q9_groups_are_independent(broker: penstock.Broker) -> None:
    broker.publish_many("t", ["a", "b", "c"])
    with broker.consumer("t", "one") as one, broker.consumer("t", "two") as two:
        consumed = one.receive()
        one.ack(consumed[:1])
        consumed[1].kill("no")
        assert values(two.receive()) == [b"a", b"b", b"c"]
        with pytest.raises(penstock.LeaseLost):
            two.ack(consumed[2:])
        consumed[2].ack()
    first, second = broker.group("t", "one"), broker.group("t", "two")
    assert (first.acked, first.dead, second.acked, second.dead, second.ready) == (2, 1, 0, 0, 3)


def publish(broker: penstock.Broker, _: penstock.Consumer) -> None:
    broker.publish("t", "m")


def give_back(broker: penstock.Broker, other: penstock.Consumer) -> None:
    other.receive()[0].release()


def fall_due(broker: penstock.Broker, _: penstock.Consumer) -> None:
    broker.publish("t", "m", delay=0.05)


def fail_for_a_moment(broker: penstock.Broker, other: penstock.Consumer) -> None:
    other.receive()[0].fail("not yet", delay=0.05)


def leave(broker: penstock.Broker, other: penstock.Consumer) -> None:
    other.receive()
    other.close()


def seek(broker: penstock.Broker, other: penstock.Consumer) -> None:
    other.receive()[0].ack()
    broker.seek_group("t", "g", "earliest")


@pytest.mark.parametrize("wake", [publish, give_back, fall_due, fail_for_a_moment, leave, seek])
def test_a_waiting_receiver_is_woken(
    broker: penstock.Broker, pool: ThreadPoolExecutor, wake: Callable[[Any, Any], None]
) -> None:
    with broker.consumer("t", "g") as consumer, broker.consumer("t", "g") as other:
        held: list[Delivery] = []
        if wake not in (publish, fall_due):
            broker.publish("t", "m")
            held = consumer.receive()  # so that it waits, and the other has what is given back
            consumer.release(held)
            held = other.receive()
            waiting = pool.submit(consumer.receive, 1, wait=SOON_S)
            wait_for_a_waiter(broker, "t")
            other.receive = lambda: held  # type: ignore[method-assign,assignment,misc]
        else:
            waiting = pool.submit(consumer.receive, 1, wait=SOON_S)
            wait_for_a_waiter(broker, "t")
        wake(broker, other)
        assert values(waiting.result()) == [b"m"]


def test_a_waiting_receiver_is_woken_by_an_ack_that_makes_room(
    broker: penstock.Broker, pool: ThreadPoolExecutor
) -> None:
    broker.publish_many("t", ["a", "b"])
    with broker.consumer("t", "g", max_in_flight=1) as consumer:
        (first,) = consumer.receive()
        waiting = pool.submit(consumer.receive, 1, wait=SOON_S)
        wait_for_a_waiter(broker, "t")
        first.ack()
        assert values(waiting.result()) == [b"b"]


def test_deleting_the_topic_tells_those_who_wait(broker: penstock.Broker, pool: ThreadPoolExecutor) -> None:
    consumer = broker.consumer("t", "g")
    waiting = pool.submit(consumer.receive, 1, wait=SOON_S)
    wait_for_a_waiter(broker, "t")
    broker.delete_topic("t")
    with pytest.raises(penstock.TopicNotFound, match="'t' was deleted"):
        waiting.result()
    consumer.close()


def test_closing_the_broker_tells_those_who_wait(broker: penstock.Broker, pool: ThreadPoolExecutor) -> None:
    consumer = broker.consumer("t", "g")
    waiting = pool.submit(consumer.receive, 1, wait=SOON_S)
    wait_for_a_waiter(broker, "t")
    broker.close()
    with pytest.raises(penstock.BrokerClosed):
        waiting.result()
    consumer.close()


def test_closing_a_consumer_ends_its_waiting_and_serves_the_others(
    broker: penstock.Broker, pool: ThreadPoolExecutor
) -> None:
    one, two = broker.consumer("t", "g"), broker.consumer("t", "g")
    first = pool.submit(one.receive, 1, wait=SOON_S)
    looping = pool.submit(list, one)
    second = pool.submit(two.receive, 1, wait=SOON_S)
    wait_for_a_waiter(broker, "t", count=3)
    one.close()
    assert (first.result(), looping.result()) == ([], [])
    broker.publish("t", "x")
    assert values(second.result()) == [b"x"]
    two.close()


def test_a_wait_without_messages_ends(broker: penstock.Broker, pool: ThreadPoolExecutor) -> None:
    with broker.consumer("t", "g") as consumer:
        assert consumer.receive(1, wait=0.01) == []
        waiting = pool.submit(consumer.receive, 1, wait="1000000d")
        wait_for_a_waiter(broker, "t")
        broker.publish("t", "x")
        assert values(waiting.result()) == [b"x"]


def test_a_loop_slower_than_its_leases_loses_nothing_that_it_has_not_seen(broker: penstock.Broker) -> None:
    broker.create_topic("t", visibility_timeout=0.3, max_deliveries=1)
    broker.publish_many("t", [f"{n}" for n in range(5)])
    seen: list[int] = []
    with broker.consumer("t", "g") as consumer:
        for message in consumer:
            seen.append(message.offset)
            threading.Event().wait(0.2)
            message.ack()
            if broker.group("t", "g").lag == 0:
                break
    assert seen == list(range(5))


def test_what_a_loop_left_behind_is_received_by_the_next_call(broker: penstock.Broker) -> None:
    broker.publish_many("t", [f"{n}" for n in range(10)])
    with broker.consumer("t", "g") as consumer:
        for first in consumer:
            assert first.offset == 0
            break
        assert [message.offset for message in consumer.receive(4)] == [1, 2, 3, 4]
        assert [message.offset for message in consumer.receive(100)] == [5, 6, 7, 8, 9]
