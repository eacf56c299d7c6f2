"""A consumer may take from one partition at a time: in both modes, by priority there, and leaving the others alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock.testing import MemoryStorage


@pytest.fixture
def broker() -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage()) as opened:
        opened.create_topic("t", partitions=3)
        for number in range(9):
            priority = "high" if number >= 6 else "normal"
            opened.publish("t", str(number), partition=number % 3, priority=priority)
        yield opened


def take(broker: penstock.Broker, consumer: penstock.Consumer, partition: int | None, count: int = 10) -> list[str]:
    consuming = consumer._consuming
    found = consuming.fetch_now(count, None, partition)
    return [message.value.decode() for message in consuming.messages(found)]


def test_one_partition_is_taken_from_best_first(broker: penstock.Broker) -> None:
    with broker.consumer("t", "g") as consumer:
        assert take(broker, consumer, 1, 2) == ["7", "1"]
        assert take(broker, consumer, 1) == ["4"]
        assert take(broker, consumer, 1) == []
        assert sorted(take(broker, consumer, None)) == ["0", "2", "3", "5", "6", "8"]


def test_a_partition_that_is_not_there_has_nothing(broker: penstock.Broker) -> None:
    with broker.consumer("t", "g") as consumer:
        assert take(broker, consumer, 3) == []
        assert len(take(broker, consumer, None)) == 9


def test_of_assigned_partitions_only_the_own_ones_are_taken_from(broker: penstock.Broker) -> None:
    with (
        broker.consumer("t", "g", mode="assigned", name="a") as one,
        broker.consumer("t", "g", mode="assigned", name="b") as two,
    ):
        owned = {member.name: member.partitions for member in broker.group("t", "g").members}
        foreign, own = owned["b"][0], owned["a"][0]
        assert take(broker, one, foreign) == []
        assert len(take(broker, one, own)) == 3
        assert len(take(broker, two, foreign)) == 3
