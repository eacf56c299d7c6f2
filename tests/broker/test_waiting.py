"""What goes wrong for one does not keep others waiting, and does not look like a failing disk."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.testing import FaultyStorage, VirtualClock


@pytest.fixture
def broker(tmp_path: Path, clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(tmp_path / "data", clock=clock) as opened:
        yield opened


def in_thread(consumer: penstock.Consumer) -> tuple[threading.Thread, list[list[bytes]]]:
    """A receiver that waits; it is waiting when this returns."""
    found: list[list[bytes]] = []
    thread = threading.Thread(target=lambda: found.append([m.value for m in consumer.receive(1, wait=20)]))
    thread.start()
    engine = consumer._engine
    while not any(
        desk.waiters for delivery in engine.deliveries.in_use.all() for desk in list(delivery.desks.values())
    ):
        threading.Event().wait(0.001)
    return thread, found


def test_a_bug_in_serving_a_waiter_does_not_freeze_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with penstock.open(tmp_path) as broker:
        consumer = broker.consumer("t", "g")
        delivery = broker.engine.deliveries.in_use.of(broker.engine.topic("t"))
        assert delivery is not None
        group = delivery.desks["g"].group
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
        broker.engine.journal.flush()
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
    broker.engine.topic("a").deleting = True
    clock.advance(11)
    with broker.engine.lock:
        broker.engine.keep_time()
    assert [message.value for message in consumers["b"].receive(1)] == [b"x"]
    broker.engine.topic("a").deleting = False
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
    wait = broker.engine.journal.wait

    def seek_first(commit: object) -> None:
        monkeypatch.setattr(broker.engine.journal, "wait", wait)
        broker.seek_group("t", "g", "earliest")
        wait(commit)  # type: ignore[arg-type]

    monkeypatch.setattr(broker.engine.journal, "wait", seek_first)
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
        with broker.engine.lock:  # the delivery is gathered, and nobody commits it before the fork
            broker.engine.deliveries.wake_timer = lambda: None
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
