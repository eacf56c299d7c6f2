"""Messages with a time to live: what comes too late is not delivered, and somebody hears of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock.testing import MemoryStorage, VirtualClock
from tests.shard.passing_time import pass_time


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        yield opened


def kinds(broker: penstock.Broker, offset: int) -> list[str]:
    return [str(event.kind) for event in broker.events("t") if event.speaks_of(offset)]


def test_what_lived_too_long_is_not_delivered_and_leaves_an_event(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish_many("t", [penstock.Message("short", expires_in=10), "long", penstock.Message("x", expires_in=20)])
    consumer = broker.consumer("t", "g")
    clock.advance(10)
    assert [message.value for message in consumer.receive()] == [b"long", b"x"]
    pass_time(broker, clock, 0)
    info = broker.group("t", "g")
    assert (info.lapsed, info.leased, info.published) == (1, 2, 3)
    assert kinds(broker, 0) == ["lapsed"]
    assert broker.dead_letters("t") == []


def test_until_its_time_is_over_it_is_delivered(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish("t", "x", expires_in=10)
    clock.advance(9.999)
    (message,) = broker.consumer("t", "g").receive()
    clock.advance(10)
    message.ack()
    assert broker.group("t", "g").acked == 1


@pytest.mark.parametrize("how", ["release", "fail", "expire", "close"])
def test_what_is_leased_when_its_time_ends_lapses_once_it_is_given_back(
    broker: penstock.Broker, clock: VirtualClock, how: str
) -> None:
    broker.publish("t", "x", expires_in=10)
    consumer = broker.consumer("t", "g")
    (message,) = consumer.receive()
    pass_time(broker, clock, 15)
    assert (broker.group("t", "g").leased, broker.group("t", "g").lapsed) == (1, 0)
    if how == "release":
        message.release()
    elif how == "fail":
        message.fail("x", delay=5)
    elif how == "close":
        consumer.close()
    for _ in range(3):
        pass_time(broker, clock, 15)
    info = broker.group("t", "g")
    assert (info.lapsed, info.leased, info.ready, info.retrying) == (1, 0, 0, 0)
    with broker.consumer("t", "g") as other:
        assert other.receive() == []
    assert kinds(broker, 0)[-1] == "lapsed"


def test_one_that_waits_to_be_tried_again_lapses_too(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish("t", "x", expires_in=10)
    consumer = broker.consumer("t", "g")
    consumer.receive()[0].fail("later", delay=60)
    pass_time(broker, clock, 10)
    info = broker.group("t", "g")
    assert (info.lapsed, info.retrying) == (1, 0)
    pass_time(broker, clock, 60)
    assert consumer.receive() == []


def test_one_whose_time_ends_before_it_is_due_is_never_delivered(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish("t", "x", delay=20, expires_in=10)
    consumer = broker.consumer("t", "g")
    for _ in range(4):
        pass_time(broker, clock, 6)
        assert consumer.receive() == []
    info = broker.group("t", "g")
    assert (info.lapsed, info.delayed, info.published) == (1, 0, 1)


@pytest.mark.parametrize("settle", [False, True])
def test_new_groups_do_not_get_it_also_after_a_restart(clock: VirtualClock, settle: bool) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.publish_many("t", [penstock.Message("short", expires_in=10), "long"])
        if settle:
            broker.settle()
        clock.advance(10)
        with broker.consumer("t", "first") as consumer:
            assert [message.value for message in consumer.receive()] == [b"long"]
    with penstock.open(storage=storage, clock=clock) as broker:
        for group in ("first", "second"):
            with broker.consumer("t", group) as consumer:
                assert [message.value for message in consumer.receive()] == [b"long"]
            pass_time(broker, clock, 0)
            assert broker.group("t", group).lapsed == 1


def test_it_goes_to_the_dead_letters_where_that_is_asked_for(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", dead_letter_lapsed=True)
    broker.publish_many("t", [penstock.Message(f"{n}", key="k", expires_in=10) for n in range(3)])
    broker.create_group("t", "one")
    broker.create_group("t", "two")
    pass_time(broker, clock, 10)
    letters = broker.dead_letters("t")
    assert sorted((letter.group, letter.value) for letter in letters) == [
        (group, value) for group in ("one", "two") for value in (b"0", b"1", b"2")
    ]
    assert {(letter.cause, letter.deliveries, letter.failures) for letter in letters} == {
        ("its time to live ended", 0, 0)
    }
    info = broker.group("t", "one")
    assert (info.dead, info.lapsed) == (3, 0)
    assert kinds(broker, 1) == ["dead", "dead"]


def test_keys_do_not_wait_for_what_has_lapsed(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", order="key")
    broker.publish_many(
        "t",
        [
            penstock.Message("0", "k"),
            penstock.Message("1", "k", expires_in=5),
            penstock.Message("2", "k", expires_in=5),
            penstock.Message("3", "k"),
        ],
    )
    consumer = broker.consumer("t", "g")
    (first,) = consumer.receive()
    pass_time(broker, clock, 6)
    first.ack()
    assert [message.value for message in consumer.receive()] == [b"3"]
    pass_time(broker, clock, 0)
    assert broker.group("t", "g").lapsed == 2


@pytest.mark.parametrize("wrong", [-1, "long", None.__class__])
def test_a_time_to_live_that_is_none_is_refused(broker: penstock.Broker, wrong: object) -> None:
    with pytest.raises(penstock.InvalidArgument):
        broker.publish("t", "x", expires_in=wrong)  # type: ignore[arg-type]
    assert broker.topics() == []
