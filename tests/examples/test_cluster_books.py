"""The books of `make cluster`: what they call lost, stored twice, delivered again, and how long takeovers took."""

from __future__ import annotations

import pytest

from examples.cluster.books import LOST_S, Books
from penstock import MessageId
from penstock.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def books(clock: VirtualClock) -> Books:
    return Books(clock.monotonic_s)


def place(offset: int) -> MessageId:
    return MessageId("orders", 0, offset)


def test_what_is_acknowledged_and_received_is_well(books: Books) -> None:
    books.publish(0, "orders")
    seen = [books.is_over]
    books.acknowledge(0, place(7))
    seen += [books.is_over, books.sums.is_well]
    books.receive(0, place(7))
    assert seen == [False, False, False]
    assert books.sums.is_well and books.is_over


def test_what_is_received_before_its_publisher_knows_is_not_waited_for(books: Books) -> None:
    books.publish(0, "orders")
    books.receive(0, place(7))
    books.acknowledge(0, place(7))
    assert books.sums.is_well and books.is_over


def test_what_was_acknowledged_and_never_comes_is_lost(books: Books, clock: VirtualClock) -> None:
    for number in range(2):
        books.publish(number, "orders")
        books.acknowledge(number, place(number))
    books.receive(1, place(1))
    assert (books.sums.waiting, books.sums.lost) == (1, 0)
    clock.advance(LOST_S + 1)
    assert (books.sums.waiting, books.sums.lost, books.sums.is_well) == (1, 1, False)


def test_a_message_at_two_offsets_is_stored_twice_and_one_that_comes_again_is_not(books: Books) -> None:
    for number in range(2):
        books.publish(number, "orders")
        books.acknowledge(number, place(number))
        books.receive(number, place(number))
    books.receive(0, place(0))
    assert (books.sums.again, books.sums.twice, books.sums.is_well) == (1, 0, True)
    books.receive(1, place(2))
    assert (books.sums.again, books.sums.twice, books.sums.is_well) == (2, 1, False)


def test_a_publish_that_failed_promises_nothing(books: Books) -> None:
    books.publish(0, "orders")
    books.fail(0)
    assert books.is_over and books.sums.unanswered == 1
    assert not books.sums.is_well, "nothing was acknowledged at all"


def test_a_takeover_lasts_until_every_topic_acknowledges_what_was_sent_after_the_kill(
    books: Books, clock: VirtualClock
) -> None:
    for number, topic in enumerate(("orders", "bills")):
        books.publish(number, topic)
    clock.advance(1)
    books.kill(["orders", "bills"])
    clock.advance(1)
    for number, topic in enumerate(("orders", "bills", "others"), 2):
        books.publish(number, topic)
    for number in (0, 1, 2, 4):
        books.acknowledge(number, place(number))
    clock.advance(2)
    assert books.sums.takeovers_s == []
    books.acknowledge(3, place(3))
    assert books.sums.takeovers_s == [3.0]
