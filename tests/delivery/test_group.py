"""A group: everything is delivered until it is acked or dead, and each group by itself."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.backoff import retry_delay_us
from penstock.model.events import Event, EventKind
from penstock.model.group_settings import GroupSettings
from tests.delivery.harness import SECOND_US, PureTopic, placed, taken


@pytest.fixture
def topic() -> PureTopic:
    made = PureTopic()
    made.create("g")
    return made


def logged(topic: PureTopic, kind: EventKind) -> list[Event]:
    return [event for _, event in topic.log if event.kind == kind]


# Again and again.


@pytest.mark.parametrize("way", ["release", "fail", "expire", "crash", "leave"])
def test_Q2_what_is_not_acked_is_delivered_again(topic: PureTopic, way: str) -> None:
    topic.publish(3)
    (pick,) = topic.fetch()
    topic.ack(pick.lease, [1])
    topic.commit()
    if way == "release":
        topic.release(pick.lease)
    elif way == "fail":
        topic.fail(pick.lease, delay_s=0)
    elif way == "leave":
        topic.leave("c")
    elif way == "expire":
        topic.advance(30)
    else:
        topic.crash()
    topic.commit()
    assert topic.take() == [0, 2]
    assert topic.account() == {"acked": 3}


def test_Q1_every_message_is_counted_in_one_place(topic: PureTopic) -> None:
    topic.publish(8, deliver_at=[0] * 7 + [topic.in_s(60)])
    (pick,) = topic.fetch(number=6)
    topic.commit()
    topic.ack(pick.lease, [0, 1])
    topic.fail(pick.lease, [2], delay_s=5)
    topic.kill(pick.lease, [3])
    assert topic.account() == {"held": 6, "ready": 1, "delayed": 1}
    topic.commit()
    assert topic.account() == {"acked": 2, "waiting": 1, "dead": 1, "held": 2, "ready": 1, "delayed": 1}
    topic.crash()
    assert topic.account() == {"acked": 2, "waiting": 1, "dead": 1, "ready": 3, "delayed": 1}


def test_Q6_deliveries_and_failures_are_counted_and_survive_a_restart(topic: PureTopic) -> None:
    topic.publish(2)
    (first,) = topic.fetch()
    topic.release(first.lease)
    topic.commit()
    (second,) = topic.fetch()
    assert second.lease.again == {0: (2, 0), 1: (2, 0)}
    topic.fail(second.lease, [1], delay_s=0)
    topic.commit()
    topic.crash()
    assert [topic.progress().counts_of(offset) for offset in (0, 1)] == [(2, 0), (2, 1)]
    (third,) = topic.fetch()
    assert third.lease.again == {0: (3, 0), 1: (3, 1)}
    assert sorted((event.attempt, event.offset) for event in logged(topic, EventKind.DELIVERED)) == [(3, 0)]
    topic.commit()
    assert topic.progress().counts_of(1) == (3, 1)


def test_Q6_messages_delivered_a_different_number_of_times_are_logged_apart(topic: PureTopic) -> None:
    topic.publish(3)
    for keep in (3, 2, 1):
        (pick,) = topic.fetch(number=keep)
        topic.release(pick.lease)
        topic.commit()
    topic.fetch()
    assert {event.offset: event.attempt for event in logged(topic, EventKind.DELIVERED)} == {0: 4, 1: 3, 2: 2}


def test_Q6_a_release_is_no_failure_and_kills_nothing(topic: PureTopic) -> None:
    topic.publish(1)
    for _ in range(10):
        (pick,) = topic.fetch()
        topic.release(pick.lease)
        topic.commit()
    assert topic.progress().counts_of(0) == (10, 0)
    assert topic.take() == [0]


# Dying.


@pytest.mark.parametrize("way", ["fail", "expire"])
@pytest.mark.parametrize("limit", [1, 3])
def test_Q7_a_message_that_failed_too_often_dies_exactly_once(way: str, limit: int) -> None:
    topic = PureTopic(max_deliveries=limit)
    topic.create("g")
    topic.publish(2)
    for attempt in range(1, limit + 1):
        assert topic.letters == []
        (pick,) = topic.fetch(number=1)
        assert taken([pick]) == [0]
        if way == "fail":
            topic.fail(pick.lease, delay_s=0)
        else:
            topic.advance(30)
        topic.commit()
        assert topic.progress().tally.dead == (attempt == limit)
    assert topic.letters == [("g", 0, 0)]
    assert topic.take() == [1]
    topic.crash()
    topic.advance(1000)
    topic.commit()
    assert (topic.take(), topic.letters) == ([], [("g", 0, 0)])
    assert topic.account() == {"dead": 1, "acked": 1}


def test_Q7_failures_before_a_restart_count(topic: PureTopic) -> None:
    topic.publish(1)
    for _ in range(3):
        (pick,) = topic.fetch()
        topic.fail(pick.lease, delay_s=0)
        topic.commit()
        topic.crash()
        topic.advance(1)
    assert topic.letters == [("g", 0, 0)]


def test_Q7_a_killed_message_dies_at_once_and_without_a_failure(topic: PureTopic) -> None:
    topic.publish(1)
    (pick,) = topic.fetch()
    topic.kill(pick.lease)
    topic.bury()
    assert [event.kind for _, event in topic.log] == [EventKind.DELIVERED, EventKind.DEAD]
    topic.commit()
    assert topic.account() == {"dead": 1}


def test_Q7_a_burial_that_is_lost_or_refused_leaves_the_message_alive(topic: PureTopic) -> None:
    topic.publish(1)
    (pick,) = topic.fetch()
    topic.commit()
    topic.kill(pick.lease)
    topic.crash()
    (pick,) = topic.fetch()
    topic.kill(pick.lease)
    topic.refuse()
    assert (topic.account(), topic.letters) == ({"ready": 1}, [])
    assert topic.take() == [0]


def test_Q7_a_redriven_message_may_fail_as_often_as_a_new_one(topic: PureTopic) -> None:
    topic.publish(1)
    for _ in range(3):
        (pick,) = topic.fetch()
        topic.fail(pick.lease, delay_s=0)
        topic.commit()
    topic.redrive(0)
    topic.commit()
    assert topic.account() == {"ready": 1}
    for _ in range(2):
        (pick,) = topic.fetch()
        topic.fail(pick.lease, delay_s=0)
        topic.commit()
    assert topic.progress().counts_of(0) == (5, 2)
    assert topic.take() == [0]


def test_Q11_a_poison_message_does_not_keep_others_waiting(topic: PureTopic) -> None:
    topic.publish(50)
    seen: list[int] = []
    for _ in range(60):
        for pick in topic.fetch(number=1):
            if 7 in pick.offsets:
                topic.fail(pick.lease)
            else:
                topic.ack(pick.lease)
                seen += pick.offsets
        topic.commit()
    assert seen == [offset for offset in range(50) if offset != 7]
    assert topic.account() == {"acked": 49, "waiting": 1}


# Groups beside one another.


def test_Q9_two_groups_get_everything_and_neither_touches_the_other(topic: PureTopic) -> None:
    topic.create("h")
    topic.publish(4)
    (pick,) = topic.fetch("g")
    assert topic.take("h", 2) == [0, 1]
    topic.kill(pick.lease, [2])
    topic.fail(pick.lease, [3], delay_s=60)
    topic.commit()
    assert topic.account("h") == {"acked": 2, "ready": 2}
    assert topic.take("h") == [2, 3]
    topic.seek(0, "h")
    topic.commit()
    assert topic.account("g") == {"held": 2, "dead": 1, "waiting": 1}
    assert topic.account("h") == {"ready": 4}
    assert topic.progress("h").counts_of(0) == (0, 0)


def test_Q9_a_receipt_of_one_group_is_none_in_another(topic: PureTopic) -> None:
    topic.create("h")
    topic.publish(1)
    (pick,) = topic.fetch("g")
    topic.fetch("h")
    assert topic.ack(pick.lease, [0], "h") == [0]


def test_a_group_begins_where_it_is_told_to(topic: PureTopic) -> None:
    topic.publish(5)
    topic.create("late", start=3)
    assert topic.take("late") == [3, 4]
    assert topic.account("late") == {"acked": 2}


# Many.


def test_Q10_none_of_a_hundred_thousand_scattered_acks_comes_again_after_a_restart(topic: PureTopic) -> None:
    total = 250_000
    topic.publish(total)
    acked = sorted(Random(3).sample(range(total), 100_000))
    (pick,) = topic.fetch(number=total)
    topic.ack(pick.lease, acked)
    topic.commit()
    topic.crash()
    assert topic.account() == {"acked": 100_000, "ready": 150_000}
    again = taken(topic.fetch(number=total))
    assert again == sorted(set(range(total)) - set(acked))


@given(st.lists(st.integers(0, 255), min_size=1, max_size=60), st.integers(1, 7), st.randoms(use_true_random=False))
def test_O5_mixed_priorities_are_each_delivered_once(lanes: list[int], number: int, random: Random) -> None:
    topic = PureTopic(2)
    topic.create("g")
    seen: Counter[tuple[int, int]] = Counter()
    left = list(lanes)
    while left or seen.total() < len(lanes):
        some, left = left[:5], left[5:]
        if some:
            topic.publish(partition=random.randrange(2), priorities=some)
        picks = topic.fetch(number=number)
        assert picks or left
        for pick in picks:
            topic.ack(pick.lease, pick.offsets)
            seen.update((pick.lease.partition, offset) for offset in pick.offsets)
        if random.random() < 0.7:
            topic.commit()
        if random.random() < 0.2:
            topic.commit()
            topic.crash()
    topic.commit()
    topic.crash()
    assert topic.fetch() == []
    assert set(seen.values()) == {1}
    assert seen.total() == len(lanes)


# Waiting for another try.


def test_the_wait_after_a_failure_doubles_up_to_a_limit_with_a_jitter_of_a_fifth() -> None:
    waits = [retry_delay_us(1.0, 60.0, failures, "g/0/7") for failures in range(1, 12)]
    for failures, wait_us in enumerate(waits, 1):
        whole_us = min(60, 2 ** (failures - 1)) * SECOND_US
        assert 0.8 * whole_us <= wait_us <= whole_us
    assert retry_delay_us(1.0, 60.0, 10_000, "x") <= 60 * SECOND_US
    assert retry_delay_us(0.0, 60.0, 3, "x") == 0


def test_the_jitter_is_the_same_for_the_same_try_and_differs_between_messages_and_tries() -> None:
    spread = {retry_delay_us(1.0, 60.0, 1, f"g/0/{offset}") for offset in range(100)}
    assert len(spread) == 100
    assert max(spread) - min(spread) > 0.15 * SECOND_US
    assert retry_delay_us(1.0, 60.0, 1, "g/0/7") == retry_delay_us(1.0, 60.0, 1, "g/0/7")
    assert retry_delay_us(60.0, 60.0, 1, "a") != retry_delay_us(60.0, 60.0, 2, "a")


def test_T1_a_failed_message_comes_back_when_its_wait_is_over_and_not_before() -> None:
    topic = PureTopic(max_deliveries=10, retry_backoff=4, retry_backoff_max=10)
    topic.create("g")
    topic.publish(1)
    for failures in (1, 2, 3, 4):
        (pick,) = topic.fetch()
        topic.fail(pick.lease)
        topic.commit()
        wait_us = retry_delay_us(4, 10, failures, "g/0/0")
        assert topic.progress().waiting == {0: topic.now.wall_us + wait_us}
        topic.advance((wait_us - 1) / SECOND_US)
        assert topic.fetch() == []
        topic.advance(1 / SECOND_US)


def test_T3_the_wait_after_a_failure_survives_a_restart(topic: PureTopic) -> None:
    topic.publish(2)
    (pick,) = topic.fetch()
    topic.fail(pick.lease, [0], delay_s=10)
    topic.fail(pick.lease, [1], delay_s=3)
    topic.commit()
    topic.advance(5)
    topic.crash()
    assert topic.take() == [1]
    assert topic.groups["g"].next_time_us() is not None
    topic.advance(4.9)
    assert topic.take() == []
    topic.advance(0.1)
    assert topic.take() == [0]


def test_an_expired_lease_is_tried_again_at_once_and_counts_as_a_failure(topic: PureTopic) -> None:
    topic.publish(1)
    topic.fetch()
    topic.commit()
    topic.advance(30)
    topic.commit()
    assert taken(topic.fetch()) == [0]
    assert topic.progress().counts_of(0) == (1, 1)


# Limits.


def test_no_more_messages_are_leased_than_the_group_may_have_in_flight() -> None:
    topic = PureTopic(2)
    topic.create("g", GroupSettings(max_in_flight=3))
    topic.publish(5)
    topic.publish(5, partition=1)
    picks = topic.fetch(number=2, consumer="ann") + topic.fetch(number=5, consumer="bob")
    assert len(taken(picks)) == 3
    assert topic.fetch(consumer="cat") == []
    topic.ack(picks[0].lease)
    assert len(taken(topic.fetch(consumer="cat"))) == 1
    topic.advance(30)
    topic.commit()
    assert len(taken(topic.fetch())) == 3


def test_a_group_may_have_leases_of_its_own_length() -> None:
    topic = PureTopic()
    topic.create("g", GroupSettings(visibility_timeout=5))
    topic.publish(1)
    (pick,) = topic.fetch()
    assert pick.lease.deadline_s == 5


@pytest.mark.parametrize("rate", [10.0, 0.5, 1000.0])
@pytest.mark.parametrize("step_s", [0.01, 0.3])
def test_a_group_with_a_rate_gets_no_more_than_that(rate: float, step_s: float) -> None:
    topic = PureTopic()
    topic.create("g", GroupSettings(rate=rate))
    topic.publish(100_000)
    got = 0
    for step in range(500):
        got += len(taken(topic.fetch(number=1000)))
        assert got <= step * step_s * rate + 1 + 1e-6
        topic.advance(step_s)
    assert got >= min(100_000, 500 * step_s * rate * 0.95 - 5)


def test_a_group_with_a_rate_does_not_save_up_what_it_did_not_use() -> None:
    topic = PureTopic()
    topic.create("g", GroupSettings(rate=10.0))
    topic.publish(1000)
    topic.fetch()
    topic.advance(3600)
    assert len(taken(topic.fetch())) <= 11


# Commits that fail.


@pytest.mark.parametrize("way", ["ack", "release", "fail", "kill", "expire"])
def test_Q2_what_could_not_be_settled_is_ready_again_in_its_place(topic: PureTopic, way: str) -> None:
    topic.publish(3)
    (pick,) = topic.fetch(number=2)
    topic.commit()
    if way == "expire":
        topic.advance(30)
    else:
        getattr(topic, way)(pick.lease)
    topic.refuse()
    assert topic.account() == {"ready": 3}
    assert topic.progress().counts_of(0) == (1, 0)
    assert topic.take() == [0, 1, 2]


def test_Q3_a_delivery_that_could_not_be_written_is_a_lease_all_the_same(topic: PureTopic) -> None:
    topic.publish(1)
    (pick,) = topic.fetch()
    topic.refuse()
    assert topic.fetch() == []
    assert topic.ack(pick.lease) == []
    topic.commit()
    assert topic.account() == {"acked": 1}


def test_Q6_a_failure_is_no_more_often_than_a_delivery_also_when_deliveries_are_not_written(topic: PureTopic) -> None:
    topic.publish(1)
    (pick,) = topic.fetch()
    topic.refuse()
    topic.fail(pick.lease, delay_s=0)
    topic.commit()
    assert topic.progress().counts_of(0) == (1, 1)
    topic.fetch()
    topic.commit()
    assert topic.progress().counts_of(0) == (2, 1)


def test_a_lapse_that_could_not_be_written_is_logged_again(topic: PureTopic) -> None:
    topic.publish(expires_at=[topic.in_s(1)])
    topic.advance(2)
    topic.refuse()
    assert topic.account() == {"lapsing": 1}
    topic.tick()
    topic.commit()
    assert topic.account() == {"lapsed": 1}


# Several partitions.


def test_O3_the_best_lane_of_all_partitions_goes_first() -> None:
    topic = PureTopic(3)
    topic.create("g")
    for partition, lanes in enumerate([[5, 9], [1, 5], [9, 1]]):
        topic.publish(partition=partition, priorities=lanes)
    assert sorted(placed(topic.fetch(number=2))) == [(1, 0), (2, 1)]
    assert sorted(placed(topic.fetch(number=2))) == [(0, 0), (1, 1)]
    assert sorted(placed(topic.fetch(number=2))) == [(0, 1), (2, 0)]


def test_partitions_with_the_same_lane_are_served_in_turn() -> None:
    topic = PureTopic(3)
    topic.create("g")
    for partition in range(3):
        topic.publish(4, partition=partition)
    order = [place for _ in range(12) for place in placed(topic.fetch(number=1))]
    assert order == [(partition, offset) for offset in range(4) for partition in range(3)]


def test_a_fetch_is_shared_among_the_partitions_and_filled_from_those_that_have_more() -> None:
    topic = PureTopic(3)
    topic.create("g")
    for partition, number in enumerate([1, 20, 20]):
        topic.publish(number, partition=partition)
    shares = Counter(partition for partition, _ in placed(topic.fetch(number=11)))
    assert (shares.total(), shares[0]) == (11, 1)
    assert min(shares[1], shares[2]) >= 4
    assert len(placed(topic.fetch(number=100))) == 30


def test_a_fetch_from_some_partitions_leaves_the_others_alone() -> None:
    topic = PureTopic(3)
    group = topic.create("g")
    for partition in range(3):
        topic.publish(2, partition=partition)
    picks, _ = group.fetch(topic.now, "c", 10, None, {0, 2})
    assert sorted(placed(picks)) == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert placed(topic.fetch()) == [(1, 0), (1, 1)]


def test_a_group_is_idle_when_nothing_is_ready_and_wakes_when_something_is() -> None:
    topic = PureTopic(2)
    group = topic.create("g")
    assert topic.fetch() == []
    picks, _ = group.fetch(topic.now, "c", 1)
    idle = [group.idle]
    topic.publish(1, partition=1)
    idle.append(group.idle)
    (pick,) = topic.fetch()
    group.fetch(topic.now, "c", 1)
    idle.append(group.idle)
    topic.release(pick.lease)
    topic.commit()
    idle.append(group.idle)
    assert (picks, idle) == ([], [True, False, True, False])


def test_a_topic_of_dead_letters_lets_nothing_die() -> None:
    topic = PureTopic(max_deliveries=1, dead_letter_lapsed=True)
    group = topic.create("g")
    group._dead_letters_allowed = False
    topic.publish(2, expires_at=[0, topic.in_s(1)])
    (pick,) = topic.fetch(number=1)
    topic.fail(pick.lease, delay_s=0)
    topic.advance(2)
    topic.commit()
    assert (topic.letters, topic.account()) == ([], {"ready": 1, "lapsed": 1})
