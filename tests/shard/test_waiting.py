"""What goes wrong for one does not keep others waiting, and does not look like a failing disk."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import penstock
import penstock.aio
from penstock.shard.dispatch.waiting import Waiter
from penstock.testing import FaultyStorage, VirtualClock
from tests.shard.passing_time import pass_time


@pytest.fixture
def broker(tmp_path: Path, clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(tmp_path / "data", clock=clock) as opened:
        yield opened


def in_thread(consumer: penstock.Consumer) -> tuple[threading.Thread, list[list[bytes]]]:
    """A receiver that waits; it is waiting when this returns."""
    found: list[list[bytes]] = []
    thread = threading.Thread(target=lambda: found.append([m.value for m in consumer.receive(1, wait=20)]))
    thread.start()
    shard = consumer._consuming._shard  # type: ignore[union-attr]
    while not any(
        active.waiters for delivery in shard.dispatcher.in_use.all() for active in list(delivery.active_groups.values())
    ):
        threading.Event().wait(0.001)
    return thread, found


def test_a_bug_in_serving_a_waiter_does_not_freeze_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with penstock.open(tmp_path) as broker:
        consumer = broker.consumer("t", "g")
        delivery = broker.shards.of("t").dispatcher.in_use.of(broker.shards.of("t").topic("t"))
        assert delivery is not None
        group = delivery.active_groups["g"].group
        thread, _ = in_thread(consumer)

        def fail_once(*_: object) -> None:
            monkeypatch.undo()
            raise ZeroDivisionError

        monkeypatch.setattr(group, "fetch", fail_once)
        broker.publish("t", "x")
        broker.publish("elsewhere", "y")
        thread.join(20)
        assert not thread.is_alive()
        assert [message.value for message in broker.read("t")] == [b"x"]


def test_Q2_what_a_refused_ack_gives_back_reaches_those_who_wait() -> None:
    storage = FaultyStorage(1)
    with penstock.open(storage=storage) as broker:
        broker.publish("t", "x")
        holder, other = broker.consumer("t", "g"), broker.consumer("t", "g")
        (message,) = holder.receive(1)
        broker.shards.of("t").journal.flush()
        thread, found = in_thread(other)
        storage.fail("write", errno.ENOSPC)
        with pytest.raises(penstock.DiskFull):
            message.ack()
        thread.join(20)
        assert found == [[b"x"]]


def test_a_topic_that_is_being_deleted_does_not_hold_up_the_time_of_others(
    broker: penstock.Broker, clock: VirtualClock
) -> None:
    consumers = {name: broker.consumer(name, "g") for name in ("a", "b")}
    for name in consumers:
        broker.publish(name, "x", delay=10)
    topic = broker.shards.of("a").topic("a")
    topic.deleting = True
    pass_time(broker, clock, 11)
    assert [message.value for message in consumers["b"].receive(1)] == [b"x"]
    topic.deleting = False
    assert [message.value for message in consumers["a"].receive(1)] == [b"x"]


def test_Q1_a_group_moved_while_a_segment_goes_counts_what_is_gone(
    broker: penstock.Broker, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t", retention_age=1)
    broker.publish_many("t", ["x"] * 10)
    broker.settle()
    broker.publish_many("t", ["y"] * 5)
    broker.create_group("t", "g")
    clock.advance(5)
    wait = broker.shards.of("t").journal.wait

    def seek_first(commit: object) -> None:
        monkeypatch.setattr(broker.shards.of("t").journal, "wait", wait)
        broker.seek_group("t", "g", "earliest")
        wait(commit)  # type: ignore[arg-type]

    monkeypatch.setattr(broker.shards.of("t").journal, "wait", seek_first)
    assert broker.retain() == 1
    info = broker.group("t", "g")
    assert (info.published, info.ready, info.lost, info.lag, info.positions) == (15, 5, 10, 5, (10,))


def test_O1_a_key_goes_on_when_one_that_waited_for_it_was_removed(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", order="key", retention_age=1)
    broker.publish("t", "removed", key="k", priority=5)
    broker.settle()
    broker.publish("t", "first", key="k", priority=0)
    broker.publish("t", "last", key="k", priority=5)
    with broker.consumer("t", "g") as consumer:
        (first,) = consumer.receive(10)
        clock.advance(5)
        assert broker.retain() == 1
        info = broker.group("t", "g")
        assert (info.published, info.leased, info.ready, info.lost) == (3, 1, 1, 1)
        first.ack()
        assert [message.value for message in consumer.receive(10)] == [b"last"]


def test_L1_a_fork_that_closes_its_consumer_writes_nothing(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish_many("t", [f"{n}" for n in range(10)])
        consumer = broker.consumer("t", "g")
        with broker.shards.of("t").lock:  # the delivery is gathered, and nobody commits it before the fork
            broker.shards.of("t").dispatcher.wake_timer = lambda: None
        held = consumer.receive(5)
        child = os.fork()
        if child == 0:
            try:
                consumer.close()
                os._exit(0)
            except BaseException:  # noqa: BLE001 - a child of the tests must not go on with them
                os._exit(1)
        ids = [broker.publish("t", f"after {n}") for n in range(20)]
        assert os.waitpid(child, 0)[1] == 0
        ids += [broker.publish("t", f"behind {n}") for n in range(20)]
        consumer.ack(held)
    with penstock.open(tmp_path) as broker:
        assert {identity.offset for identity in ids} <= {message.offset for message in broker.read("t")}
        assert broker.group("t", "g").acked == 5


# What a waiter decides.


def waiters(broker: penstock.Broker, topic: str) -> list[Waiter]:
    delivery = broker.shards.of(topic).dispatcher.in_use.of(broker.shards.of(topic).topic(topic))
    assert delivery is not None
    return [waiter for active in delivery.active_groups.values() for waiter in active.waiters]


def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(5000):
        if is_so():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it never came to that")


def wake_for_nothing(broker: penstock.Broker, topic: str) -> None:
    delivery = broker.shards.of(topic).dispatcher.in_use.of(broker.shards.of(topic).topic(topic))
    assert delivery is not None
    with broker.shards.of(topic).lock:
        for waiter in waiters(broker, topic):
            waiter.served(delivery, [])


def test_a_waiter_takes_what_is_ready_or_what_came(broker: penstock.Broker) -> None:
    consuming, woken = broker.consumer(["t", "u"], "g")._consuming, []
    broker.publish("t", "ready")
    found = consuming.waiter(10, None, lambda: None).take(waits=True)
    assert found is not None
    assert [message.value for message in consuming.messages(found)] == [b"ready"]
    waiter = consuming.waiter(10, None, lambda: woken.append(True))
    assert waiter.take(waits=True) is None
    assert waiter.take(waits=True) is None
    assert (woken, waiters(broker, "t"), waiters(broker, "u")) == ([], [waiter], [waiter])
    broker.publish("u", "came")
    found = waiter.take(waits=False)  # at the moment in which its time was over
    assert found is not None
    assert [message.value for message in consuming.messages(found)] == [b"came"]
    assert (woken, waiters(broker, "t"), waiters(broker, "u")) == ([True], [], [])


def test_a_waiter_whose_time_is_over_or_whose_consumer_is_closed_has_nothing(broker: penstock.Broker) -> None:
    consumer = broker.consumer("t", "g")
    waiter, closed = (consumer._consuming.waiter(10, None, lambda: None) for _ in range(2))
    assert (waiter.take(waits=True), closed.take(waits=True)) == (None, None)
    assert waiter.take(waits=False) == []
    assert waiters(broker, "t") == [closed]
    consumer.close()
    assert closed.take(waits=True) == []
    with pytest.raises(penstock.BrokerClosed):
        consumer._consuming.waiter(10, None, lambda: None).take(waits=False)


def test_Q2_what_came_for_a_waiter_that_gave_up_goes_to_others(broker: penstock.Broker) -> None:
    waiter = broker.consumer("t", "g")._consuming.waiter(10, None, lambda: None)
    waiter.give_up()
    assert waiter.take(waits=True) is None
    broker.publish("t", "x")
    with broker.consumer("t", "g") as other:
        assert other.receive(1) == []
        waiter.give_up()
        assert [message.value for message in other.receive(1, wait=20)] == [b"x"]


def test_a_receiver_that_is_woken_for_nothing_waits_on_as_it_was_asked_to(broker: penstock.Broker) -> None:
    found: list[float] = []
    consumer = broker.consumer("t", "g")
    receive = partial(consumer.receive, 1, wait=20, visibility_timeout=7)
    thread = threading.Thread(target=lambda: found.extend(m.lease.visibility_s for m in receive()))
    thread.start()
    for _ in range(3):
        wait_until(lambda: len(waiters(broker, "t")) == 1 and not waiters(broker, "t")[0].done)
        wake_for_nothing(broker, "t")
    wait_until(lambda: len(waiters(broker, "t")) == 1 and not waiters(broker, "t")[0].done)
    broker.publish("t", "x")
    thread.join(20)
    assert found == [7]


def test_a_task_that_is_woken_for_nothing_waits_on_as_it_was_asked_to(tmp_path: Path) -> None:
    async def main() -> list[float]:
        async with penstock.aio.open(tmp_path) as face:
            broker = face._broker
            async with await face.consumer("t", "g") as consumer:
                receiving = asyncio.ensure_future(consumer.receive(1, wait=20, visibility_timeout=7))
                for _ in range(3):
                    await asyncio.sleep(0.01)
                    wake_for_nothing(broker, "t")
                await asyncio.sleep(0.01)
                assert not receiving.done()
                await face.publish("t", "x")
                return [message.lease.visibility_s for message in await receiving]

    assert asyncio.run(main()) == [7]
