"""Histograms: every value in its bucket, one by one or many at once, and quantiles that lie where they must."""

from __future__ import annotations

import random

import pytest

from penstock.model.histograms import BYTES, COUNT, QUICK_S, REQUEST_S, WAIT_S, WORK_S, Histogram, quantile


@pytest.mark.parametrize("bounds", [BYTES, COUNT, QUICK_S, REQUEST_S, WAIT_S, WORK_S])
def test_the_bounds_grow_and_are_written_without_rounding_errors(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))
    assert all(len(repr(float(bound))) < 12 for bound in bounds)


def test_a_value_at_a_bound_is_in_the_bucket_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 99.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.sum == 104.0


def test_a_value_that_came_many_times_counts_as_often() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe(1.5, 1000)
    assert (histogram.counts, histogram.sum) == ([0, 1000, 0], 1500.0)


@pytest.mark.parametrize("count", [0, 1, 7, 500])
def test_many_sorted_values_count_as_one_by_one(count: int) -> None:
    chance = random.Random(count)
    values = sorted(chance.choice([chance.random() * 20, 0.001, 0.0]) for _ in range(count))
    one_by_one, at_once = Histogram(WAIT_S), Histogram(WAIT_S)
    for value in values:
        one_by_one.observe(value)
    at_once.observe_sorted(values)
    assert at_once.counts == one_by_one.counts
    assert at_once.sum == pytest.approx(one_by_one.sum)


def test_there_is_no_quantile_of_nothing() -> None:
    assert quantile((1.0, 2.0), [0, 0, 0], 0.5) is None


def test_a_quantile_lies_in_the_bucket_of_the_value() -> None:
    histogram = Histogram(QUICK_S)
    values = sorted(random.Random(1).expovariate(100) for _ in range(5000))
    histogram.observe_sorted(values)
    for share in (0.5, 0.9, 0.99):
        found = quantile(histogram.bounds, histogram.counts, share)
        assert found == pytest.approx(values[int(share * len(values))], rel=0.15)


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    assert quantile((1.0, 2.0), [0, 0, 5], 0.5) == 2.0
