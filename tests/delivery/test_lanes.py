"""Lanes: strictly the lowest number, or by weights; weighted is not round-robin, and nobody starves."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.delivery.lanes import Strict, Weighted
from tests.delivery.harness import PureTopic

weights_of_lanes = st.dictionaries(st.integers(0, 255), st.integers(1, 50), min_size=1, max_size=6)


def served(policy: Strict | Weighted, lanes: list[int], fetches: int, count: int = 1) -> list[int]:
    """The lanes of messages handed out while every lane has enough."""
    order: list[int] = []
    for _ in range(fetches):
        room = count
        for lane, quota in policy.shares(lanes, count):
            order += [lane] * min(quota, room)
            room -= min(quota, room)
    return order


def test_O3_strict_lanes_ask_each_lane_for_everything_lowest_first() -> None:
    assert Strict().shares([1, 5, 9], 10) == [(1, 10), (5, 10), (9, 10)]


def test_O3_a_lane_is_served_only_when_no_lower_one_has_anything() -> None:
    topic = PureTopic()
    topic.create("g")
    lanes = [Random(5).randrange(256) for _ in range(500)]
    topic.publish(priorities=lanes)
    seen = [offset for _ in range(72) for offset in topic.take(number=7)]
    assert seen == sorted(range(500), key=lambda offset: (lanes[offset], offset))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 100])
def test_O4_the_shares_of_weighted_lanes_are_their_weights_whatever_is_fetched_at_once(count: int) -> None:
    order = served(Weighted({1: 8, 5: 4, 9: 1}), [1, 5, 9], 1300, count)
    assert len(order) == 1300 * count
    shares = Counter(order)
    for lane, weight in ((1, 8), (5, 4), (9, 1)):
        assert abs(shares[lane] - len(order) * weight / 13) <= 2


def test_O4_weighted_is_not_round_robin() -> None:
    assert served(Weighted({1: 3}), [1, 9], 8) == [1, 1, 9, 1, 1, 1, 9, 1]


@given(weights_of_lanes, st.integers(1, 9))
def test_O4_every_lane_has_its_share_at_any_moment_and_waits_for_a_bounded_number_of_others(
    weights: dict[int, int], count: int
) -> None:
    lanes, total = sorted(weights), sum(weights.values())
    order = served(Weighted(weights), lanes, 3 * total // count + 3, count)
    so_far: Counter[int] = Counter()
    for number, lane in enumerate(order, 1):
        so_far[lane] += 1
        for each in lanes:
            assert abs(so_far[each] - number * weights[each] / total) <= len(lanes) + count
    for lane, weight in weights.items():
        places = [number for number, each in enumerate(order) if each == lane]
        waits = [after - before for before, after in zip([-1, *places], places, strict=False)]
        assert max(waits) <= 2 * total / weight + len(lanes) + count


@settings(max_examples=30)
@given(st.randoms(use_true_random=False), weights_of_lanes.filter(lambda weights: len(weights) > 1))
def test_O4_the_lowest_lane_is_served_also_while_others_come_and_go(random: Random, weights: dict[int, int]) -> None:
    policy, lanes = Weighted(weights), sorted(weights)
    often = {lane: random.random() for lane in lanes}
    waited, longest, lowest = 0, 0, lanes[-1]
    for _ in range(300):
        present = [lane for lane in lanes if lane == lowest or random.random() < often[lane]]
        waited = 0 if policy.shares(present, 1)[0][0] == lowest else waited + 1
        longest = max(longest, waited)
    assert longest <= 2 * sum(weights.values()) / weights[lowest] + 2


def test_O4_lanes_without_a_weight_weigh_one() -> None:
    assert Counter(served(Weighted({3: 2}), [3, 4, 5], 400)) == {3: 200, 4: 100, 5: 100}


def test_O4_a_lane_that_was_empty_saves_nothing_up() -> None:
    policy = Weighted({1: 1, 9: 1})
    served(policy, [1], 100)
    assert Counter(served(policy, [1, 9], 100)) == {1: 50, 9: 50}


def test_O4_what_some_lanes_cannot_fill_the_others_may() -> None:
    topic = PureTopic(lanes="weighted", lane_weights={1: 9, 9: 1})
    topic.create("g")
    topic.publish(priorities=[1] * 3 + [9] * 50)
    assert Counter(topic.take(number=40)) == Counter(range(40))


@pytest.mark.parametrize("count", [1, 10])
def test_O4_a_group_gets_the_shares_of_the_lanes_and_no_lane_starves(count: int) -> None:
    topic = PureTopic(lanes="weighted", lane_weights={0: 6, 5: 3, 9: 1})
    topic.create("g")
    lanes = {0: range(2000), 5: range(2000, 4000), 9: range(4000, 6000)}
    for lane in lanes:
        topic.publish(2000, lane)
    order = [offset for _ in range(1000 // count) for offset in topic.take(number=count)]
    by_lane = {lane: [offset for offset in order if offset in offsets] for lane, offsets in lanes.items()}
    assert {lane: len(offsets) for lane, offsets in by_lane.items()} == {0: 600, 5: 300, 9: 100}
    for lane, offsets in by_lane.items():
        assert offsets == list(lanes[lane])[: len(offsets)]  # O1
    for start in range(0, 1000, 20):
        assert any(offset >= 4000 for offset in order[start : start + 20])


def test_O4_a_lane_in_many_partitions_has_one_share() -> None:
    topic = PureTopic(3, lanes="weighted", lane_weights={1: 3, 9: 1})
    topic.create("g")
    for partition in range(3):
        topic.publish(500, 1, partition=partition)
    topic.publish(500, 9)
    picks = [pick for _ in range(40) for pick in topic.fetch(number=10)]
    shares: Counter[int] = Counter()
    for pick in picks:
        shares[pick.lane] += len(pick.offsets)
    assert shares == {1: 300, 9: 100}


def test_a_fetch_takes_as_many_as_there_are_from_partitions_of_which_some_have_few() -> None:
    for number in range(1, 30):
        topic = PureTopic(2, lanes="weighted", lane_weights={1: 3, 5: 4})
        topic.create("g")
        topic.publish(1, 1)
        topic.publish(8, 5)
        topic.publish(20, 5, partition=1)
        assert len(topic.take(number=number)) == number
