"""Order by key: one message of a key at a time, in publish order; other keys go on."""

from __future__ import annotations

import pytest

import penstock.delivery.keys
from tests.delivery.harness import PureTopic, taken


@pytest.fixture
def topic() -> PureTopic:
    made = PureTopic(order="key")
    made.create("g")
    return made


def test_O1_one_message_of_a_key_is_leased_at_a_time_and_other_keys_go_on(topic: PureTopic) -> None:
    topic.publish(keys=[b"a", b"a", b"b", None, None, b"a", b"b"])
    (pick,) = topic.fetch()
    assert taken([pick]) == [0, 2, 3, 4]
    assert topic.fetch() == []
    assert topic.account() == {"held": 4, "ready": 3}
    topic.ack(pick.lease, [0])
    assert topic.fetch() == []  # until the ack is written
    topic.commit()
    assert taken(topic.fetch()) == [1]
    topic.ack(pick.lease, [2])
    topic.commit()
    assert taken(topic.fetch()) == [6]


def test_O1_an_empty_key_is_a_key(topic: PureTopic) -> None:
    topic.publish(keys=[b"", b"", None, None])
    assert taken(topic.fetch()) == [0, 2, 3]
    topic.publish(keys=[b"x", b"", b"y"])
    assert taken(topic.fetch()) == [4, 6]


def test_O1_the_messages_of_each_key_come_in_publish_order(topic: PureTopic) -> None:
    keys = [bytes([97 + number * 7 % 5]) for number in range(200)]
    topic.publish(keys=keys)
    order: dict[bytes, list[int]] = {}
    while offsets := topic.take(number=3):
        for offset in offsets:
            order.setdefault(keys[offset], []).append(offset)
    assert order == {key: [n for n, other in enumerate(keys) if other == key] for key in set(keys)}


@pytest.mark.parametrize("way", ["release", "expire", "crash", "refuse"])
def test_O2_a_returned_message_goes_before_its_followers(topic: PureTopic, way: str) -> None:
    topic.publish(keys=[b"a", b"a", b"b", b"a"])
    (pick,) = topic.fetch(number=1)
    assert taken(topic.fetch()) == [2]
    topic.commit()
    if way == "release":
        topic.release(pick.lease)
        topic.commit()
    elif way == "expire":
        topic.extend(pick.lease, 25)
        topic.advance(31)
        topic.commit()
    elif way == "refuse":
        topic.ack(pick.lease)
        topic.refuse()
    else:
        topic.crash()
    again = taken(topic.fetch())
    assert (again[0], 1 in again, 3 in again) == (0, False, False)


def test_O2_a_failed_message_blocks_its_key_until_it_is_tried_again_and_no_other(topic: PureTopic) -> None:
    topic.publish(keys=[b"a", b"a", b"b", b"b"])
    (pick,) = topic.fetch(number=1)
    topic.fail(pick.lease, delay_s=10)
    topic.commit()
    assert topic.take() == [2]
    assert topic.take() == [3]
    assert topic.account() == {"waiting": 1, "ready": 1, "acked": 2}
    topic.advance(9.9)
    assert topic.take() == []
    topic.advance(0.1)
    assert [topic.take(), topic.take()] == [[0], [1]]


def test_O2_a_failed_message_blocks_its_key_after_a_restart_too(topic: PureTopic) -> None:
    topic.publish(keys=[b"a", b"a", b"b"])
    (pick,) = topic.fetch(number=1)
    topic.fail(pick.lease, delay_s=10)
    topic.commit()
    topic.crash()
    assert topic.take() == [2]
    topic.advance(10)
    assert [topic.take(), topic.take()] == [[0], [1]]


def test_O2_of_two_that_failed_the_one_that_waits_blocks_the_key_after_a_restart(topic: PureTopic) -> None:
    topic.publish(keys=[b"a"], priorities=[5])
    (first,) = topic.fetch()
    topic.fail(first.lease, delay_s=1)
    topic.commit()
    topic.publish(keys=[b"a", b"a"], priorities=[1, 1])
    topic.advance(2)
    (urgent,) = topic.fetch()  # overtakes the one that may be tried again
    assert taken([urgent]) == [1]
    topic.fail(urgent.lease, delay_s=10)
    topic.commit()
    topic.crash()
    assert topic.account() == {"waiting": 1, "ready": 2}
    assert topic.fetch() == []
    topic.advance(10)
    assert [topic.take(), topic.take(), topic.take()] == [[1], [2], [0]]


def test_a_dead_message_lets_its_followers_go(topic: PureTopic) -> None:
    topic.publish(keys=[b"a", b"a"])
    (pick,) = topic.fetch()
    topic.kill(pick.lease)
    assert topic.fetch() == []
    topic.commit()
    assert topic.take() == [1]


def test_a_hot_key_does_not_keep_others_waiting(topic: PureTopic) -> None:
    topic.publish(keys=[b"hot"] * 5000 + [b"other"])
    assert taken(topic.fetch(number=2)) == [0, 5000]
    assert topic.account() == {"held": 2, "ready": 4999}


def test_no_more_is_parked_than_there_may_be_and_it_still_goes_on(
    topic: PureTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(penstock.delivery.keys, "_PARKED_MAX", 10)
    topic.publish(keys=[b"hot"] * 50 + [b"other"])
    assert topic.take(number=2) == [0]
    seen = [offset for _ in range(60) for offset in topic.take(number=2)]
    assert sorted(seen) == list(range(1, 51))
    assert [offset for offset in seen if offset < 50] == list(range(1, 50))


def test_O3_the_most_urgent_message_of_a_key_goes_next(topic: PureTopic) -> None:
    topic.publish(keys=[b"a"] * 4, priorities=[5, 9, 5, 1])
    assert [topic.take() for _ in range(4)] == [[3], [0], [2], [1]]


def test_O1_a_new_message_does_not_overtake_one_of_its_lane_that_waits_for_a_returned_one(topic: PureTopic) -> None:
    topic.publish(keys=[b"a"], priorities=[5])
    (pick,) = topic.fetch()
    topic.publish(keys=[b"a"], priorities=[3])
    assert topic.fetch() == []  # it is parked
    topic.release(pick.lease)
    topic.commit()
    topic.publish(keys=[b"a"], priorities=[3])
    assert [topic.take() for _ in range(3)] == [[1], [2], [0]]


def test_O1_in_weighted_lanes_no_message_overtakes_another_of_its_key_and_lane() -> None:
    topic = PureTopic(order="key", lanes="weighted", lane_weights={9: 100})
    topic.create("g")
    topic.publish(keys=[b"a"] * 3, priorities=[5, 3, 9])
    (pick,) = topic.fetch()
    first = taken([pick])
    topic.publish(keys=[b"a"] * 5, priorities=[9] * 5)
    topic.ack(pick.lease)
    topic.commit()
    seen = first + [offset for _ in range(20) for offset in topic.take(number=1)]
    assert sorted(seen) == list(range(8))
    assert [offset for offset in seen if offset not in (0, 1)] == [2, 3, 4, 5, 6, 7]


def test_O1_a_message_does_not_overtake_the_follower_of_one_that_lapses(topic: PureTopic) -> None:
    topic.publish(keys=[b"a"] * 3, expires_at=[0, topic.in_s(1), 0])
    (pick,) = topic.fetch()
    topic.advance(2)
    topic.ack(pick.lease)
    topic.commit()
    topic.publish(keys=[b"a"])
    assert [topic.take(), topic.take()] == [[2], [3]]
    assert topic.account() == {"acked": 3, "lapsed": 1}


def test_O1_a_returned_message_that_lapses_lets_its_followers_go_in_order(topic: PureTopic) -> None:
    topic.publish(keys=[b"a"] * 2, expires_at=[topic.in_s(1), 0])
    (pick,) = topic.fetch()
    topic.release(pick.lease)
    topic.commit()
    topic.advance(2)
    topic.publish(keys=[b"a"])
    assert [topic.take(), topic.take()] == [[1], [2]]


def test_O1_a_message_does_not_overtake_one_that_waits_while_all_that_are_ready_lapse(topic: PureTopic) -> None:
    topic.publish(keys=[b"a"] * 3, expires_at=[topic.in_s(1), topic.in_s(1), 0])
    (pick,) = topic.fetch()
    topic.release(pick.lease)
    topic.commit()
    topic.advance(2)
    topic.publish(keys=[b"a"])
    assert [topic.take(), topic.take()] == [[2], [3]]
    assert topic.account() == {"acked": 2, "lapsed": 2}


def test_a_delayed_message_of_a_key_takes_its_turn_when_it_is_due(topic: PureTopic) -> None:
    topic.publish(keys=[b"a", b"a", b"a"], deliver_at=[topic.in_s(5), 0, 0])
    (pick,) = topic.fetch()
    assert taken([pick]) == [1]
    topic.advance(6)
    assert topic.fetch() == []
    topic.ack(pick.lease)
    topic.commit()
    assert [topic.take(), topic.take()] == [[0], [2]]


def test_a_cancelled_message_of_a_key_is_passed_over(topic: PureTopic) -> None:
    topic.publish(keys=[b"a", b"a", b"a"], deliver_at=[0, topic.in_s(5), 0])
    (pick,) = topic.fetch()
    topic.cancel(1)
    topic.commit()
    topic.ack(pick.lease)
    topic.commit()
    assert topic.take() == [2]
    topic.advance(10)
    assert topic.take() == []


def test_without_key_order_messages_of_a_key_are_leased_together() -> None:
    topic = PureTopic()
    topic.create("g")
    topic.publish(keys=[b"a", b"a"])
    assert taken(topic.fetch()) == [0, 1]


def test_Q9_a_key_that_one_group_holds_is_free_in_another(topic: PureTopic) -> None:
    topic.create("h")
    topic.publish(keys=[b"a", b"a"])
    assert taken(topic.fetch("g")) == [0]
    assert [topic.take("h"), topic.take("h")] == [[0], [1]]
