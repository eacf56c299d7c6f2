"""Failures: another try after a while, in place and in order, until a message is given up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock.model.info import GroupInfo
from penstock.testing import MemoryStorage, VirtualClock
from tests.shard.passing_time import pass_time


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        yield opened


def adds_up(info: GroupInfo) -> bool:
    became = info.acked + info.ready + info.leased + info.delayed + info.retrying + info.dead
    return info.published == became + info.lapsed + info.withdrawn + info.skipped + info.lost


def test_a_failed_message_comes_again_after_the_backoff(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", retry_backoff=1, retry_backoff_max=3, max_deliveries=10)
    broker.publish("t", "x")
    consumer = broker.consumer("t", "g")
    for failures, longest_s in enumerate([1, 2, 3, 3]):
        (message,) = consumer.receive()
        assert (message.deliveries, message.failures) == (failures + 1, failures)
        message.fail("not yet")
        pass_time(broker, clock, longest_s * 0.79)
        assert consumer.receive() == []
        info = broker.group("t", "g")
        assert (info.retrying, info.ready, info.lag) == (1, 0, 1)
        pass_time(broker, clock, longest_s * 0.21)
    assert len(consumer.receive()) == 1


def test_a_failure_may_say_when_to_try_again(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish("t", "x")
    consumer = broker.consumer("t", "g")
    consumer.receive()[0].fail("busy", delay="1h")
    pass_time(broker, clock, 3599)
    assert consumer.receive() == []
    pass_time(broker, clock, 1)
    (message,) = consumer.receive()
    message.fail("again", delay=0)
    assert len(consumer.receive()) == 1


def test_Q11_one_poison_message_never_blocks_the_others(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish_many("t", ["poison", *(f"{n}" for n in range(50))])
    consumer = broker.consumer("t", "g")
    acked = 0
    for _ in range(40):
        for message in consumer.receive(2):
            if message.value == b"poison":
                message.fail("cannot")
            else:
                message.ack()
                acked += 1
        pass_time(broker, clock, 0.5)
        assert adds_up(broker.group("t", "g"))
    info = broker.group("t", "g")
    assert (acked, info.acked, info.dead, info.lag) == (50, 50, 1, 0)


def test_Q7_after_max_deliveries_failures_it_is_dead_once(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", max_deliveries=2)
    broker.publish_many("t", ["a", "b"])
    consumer = broker.consumer("t", "g")
    consumer.fail(consumer.receive(), "one", delay=0)
    messages = consumer.receive()
    messages[0].fail("two")
    pass_time(broker, clock, 30)  # the lease of the other runs out: that is a failure too
    letters = broker.dead_letters("t")
    assert [(letter.origin.offset, letter.failures, letter.deliveries) for letter in letters] == [(0, 2, 2), (1, 2, 2)]
    assert [letter.cause for letter in letters] == ["two", "the lease ran out"]
    info = broker.group("t", "g")
    assert (info.dead, info.ready, info.leased, info.retrying) == (2, 0, 0, 0)
    pass_time(broker, clock, 1000)
    assert consumer.receive() == []


def test_releasing_is_no_failure_and_never_kills(broker: penstock.Broker) -> None:
    broker.create_topic("t", max_deliveries=1)
    broker.publish("t", "x")
    consumer = broker.consumer("t", "g")
    for _ in range(20):
        consumer.release(consumer.receive())
    assert broker.group("t", "g").ready == 1
    assert broker.dead_letters("t") == []


def test_O2_a_returned_message_keeps_its_place_and_its_lane(broker: penstock.Broker, clock: VirtualClock) -> None:
    for n in range(4):
        broker.publish("t", f"low {n}", priority="low")
        broker.publish("t", f"high {n}", priority="high")
    consumer = broker.consumer("t", "g")
    messages = consumer.receive(6)
    assert [message.value for message in messages[:4]] == [f"high {n}".encode() for n in range(4)]
    consumer.fail(messages[1:3], "later", delay=5)
    consumer.release(messages[4:5])
    pass_time(broker, clock, 5)
    again = consumer.receive()
    assert [message.value for message in again] == [b"high 1", b"high 2", b"low 0", b"low 2", b"low 3"]


def test_Q6_retries_and_their_times_survive_a_restart(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.publish_many("t", ["a", "b", "c"])
        consumer = broker.consumer("t", "g")
        messages = consumer.receive()
        consumer.fail(messages[:2], "later", delay=60)
        messages[2].kill("never")
    for settle in (False, True):
        with penstock.open(storage=storage, clock=clock) as broker:
            if settle:
                broker.settle()
            info = broker.group("t", "g")
            assert (info.retrying, info.dead, info.ready) == (2, 1, 0)
            assert adds_up(info)
    clock.advance(60)
    with penstock.open(storage=storage, clock=clock) as broker, broker.consumer("t", "g") as consumer:
        received = consumer.receive()
        assert [(message.offset, message.deliveries, message.failures) for message in received] == [
            (0, 2, 1),
            (1, 2, 1),
        ]
        assert [letter.origin.offset for letter in broker.dead_letters("t")] == [2]


def test_Q1_the_numbers_add_up_after_every_kind_of_command(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", partitions=2, max_deliveries=2, retention_age="1h")
    consumer = broker.consumer("t", "g")
    other = broker.consumer("t", "g")
    seen: set[str] = set()

    def check(step: str) -> GroupInfo:
        info = broker.group("t", "g")
        assert adds_up(info), (step, info)
        assert info.lag == info.ready + info.leased + info.delayed + info.retrying, (step, info)
        seen.update(
            name for name in ("acked", "retrying", "dead", "lapsed", "withdrawn", "lost") if getattr(info, name)
        )
        return info

    broker.publish_many("t", [f"{n}" for n in range(40)])
    check("published")
    ids = [broker.publish("t", "later", delay=60) for _ in range(4)]
    broker.publish_many("t", [penstock.Message("short", expires_in=20) for _ in range(6)])
    assert check("delayed").delayed == 4
    messages = consumer.receive(20)
    held = other.receive(5)
    assert check("delivered").leased == 25
    consumer.ack(messages[:5])
    check("acked")
    consumer.release(messages[5:8])
    check("released")
    consumer.fail(messages[8:12], "later", delay=5)
    assert check("failed").retrying == 4
    consumer.kill(messages[12:14], "never")
    assert check("killed").dead == 2
    consumer.extend(messages[14:16], 100)
    check("extended")
    assert broker.cancel_delayed(ids[0])
    assert broker.reschedule_delayed(ids[1], delay=10) is not None
    assert check("cancelled").withdrawn == 1
    pass_time(broker, clock, 25)
    check("lapsed")
    pass_time(broker, clock, 10)
    assert check("leases ran out").leased == 2
    other.close()
    check("closed")
    with pytest.raises(penstock.LeaseLost):
        held[0].release()
    broker.redrive("t")
    assert check("redriven").dead == 0
    broker.settle()
    check("settled")
    pass_time(broker, clock, 7200)
    broker.retain()
    check("retained")
    broker.seek_group("t", "g", "earliest")
    check("sought")
    broker.publish("t", "x")
    consumer.ack(consumer.receive())
    check("acked again")
    assert seen == {"acked", "retrying", "dead", "lapsed", "withdrawn", "lost"}
