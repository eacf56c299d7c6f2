"""Timers: each fires once, in order, never early, whatever the clock does, and a million of them stay small."""

from __future__ import annotations

import tracemalloc
from array import array
from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.delivery.timers import AHEAD_US, FAR_BITS, NEAR_BITS, SLICE, Timers

NEAR_US = 1 << NEAR_BITS
FAR_US = 1 << FAR_BITS
SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
DAY_US = 24 * HOUR_US
BORDER_US = (1_767_225_600_000_000 // FAR_US) * FAR_US  # where a far bucket starts, late in 2025
NOW_US = BORDER_US + HOUR_US // 2

# Sizes and times that lie together closely enough to meet, and on both sides of every kind of border.
NUDGES = st.sampled_from([-NEAR_US, -2, -1, 0, 1, 2, NEAR_US]) | st.integers(-NEAR_US, NEAR_US)
SPANS = st.sampled_from([0, NEAR_US, 5 * NEAR_US, SECOND_US, AHEAD_US, FAR_US - AHEAD_US, FAR_US, 2 * FAR_US, DAY_US])
TIMES = st.builds(lambda span, nudge: BORDER_US + span + nudge, SPANS, NUDGES)
ADDS = st.tuples(st.just("add"), st.integers(0, 50), st.just(0) | TIMES)
BATCHES = st.tuples(st.just("add_many"), st.integers(0, 50), st.lists(st.just(0) | TIMES, max_size=8))
EVEN_BATCHES = st.tuples(
    st.just("add_many"), st.integers(0, 50), st.builds(lambda due, count: [due] * count, TIMES, st.integers(1, 20))
)
POPS = st.tuples(st.just("pop"), st.just(0), TIMES)
STEPS = st.lists(ADDS | BATCHES | EVEN_BATCHES | POPS, max_size=40)


def random_dues(count: int, start_us: int, span_us: int) -> list[int]:
    random = Random(count + start_us)
    return [start_us + random.randrange(span_us) for _ in range(count)]


def popped_when_asked(timers: Timers) -> list[tuple[int, int]]:
    """Everything, popped at the times that are asked for, in a number of pops that shows progress."""
    rows: list[tuple[int, int]] = []
    pops_allowed = 3 * len(timers) + 100
    while (wake_us := timers.next_due_us) is not None:
        rows += timers.pop_due(wake_us)
        pops_allowed -= 1
        assert pops_allowed, "popping at the time asked for does not move it on"
    return rows


# One timer.


@pytest.mark.parametrize("delay_us", [1, 2, NEAR_US, SECOND_US, HOUR_US, DAY_US, 20 * 365 * DAY_US])
def test_T1_a_timer_never_fires_early_and_fires_when_it_is_due(delay_us: int) -> None:
    timers = Timers(NOW_US)
    timers.add(7, NOW_US + delay_us)
    assert timers.pop_due(NOW_US) == []
    assert timers.pop_due(NOW_US + delay_us - 1) == []
    assert len(timers) == 1
    assert timers.pop_due(NOW_US + delay_us) == [(NOW_US + delay_us, 7)]
    assert timers.pop_due(NOW_US + delay_us) == []
    assert len(timers) == 0


@pytest.mark.parametrize("late_us", [0, 1, NEAR_US, HOUR_US, DAY_US, NOW_US])
def test_T6_a_delay_of_zero_or_a_due_in_the_past_fires_at_the_next_pop(late_us: int) -> None:
    timers = Timers(NOW_US)
    timers.add(1, NOW_US + 5)
    assert timers.pop_due(NOW_US) == []
    timers.add(2, NOW_US - late_us)
    assert timers.next_due_us == NOW_US - late_us
    assert timers.pop_due(NOW_US) == [(NOW_US - late_us, 2)]


def test_T6_delays_below_a_tick_fire_at_the_next_tick_in_order() -> None:
    timers = Timers(NOW_US)
    assert timers.pop_due(NOW_US) == []
    for offset, delay_us in enumerate([900, 3, 0, 500]):
        timers.add(offset, NOW_US + delay_us)
    assert timers.pop_due(NOW_US + 1000) == [(NOW_US, 2), (NOW_US + 3, 1), (NOW_US + 500, 3), (NOW_US + 900, 0)]


def test_a_new_set_of_timers_need_not_know_the_time() -> None:
    timers = Timers()
    timers.add_many(0, [NOW_US + 1, NOW_US + DAY_US, NOW_US])
    assert timers.pop_due(NOW_US + 1) == [(NOW_US, 2), (NOW_US + 1, 0)]
    assert popped_when_asked(timers) == [(NOW_US + DAY_US, 1)]


# Many timers.


def test_timers_fire_in_order_of_due_and_then_of_offset() -> None:
    timers = Timers(NOW_US)
    timers.add_many(10, [NOW_US + 9] * 3)
    timers.add(4, NOW_US + 9)
    timers.add(99, NOW_US + 8)
    due_us = NOW_US + 9
    assert timers.pop_due(due_us) == [(NOW_US + 8, 99), (due_us, 4), (due_us, 10), (due_us, 11), (due_us, 12)]


def test_an_offset_fires_once_for_each_time_it_was_added() -> None:
    timers = Timers(NOW_US)
    for _ in range(3):
        timers.add(5, NOW_US + 1)
    timers.add(5, NOW_US + DAY_US)
    assert timers.pop_due(NOW_US + 2) == [(NOW_US + 1, 5)] * 3
    assert popped_when_asked(timers) == [(NOW_US + DAY_US, 5)]


def test_a_due_of_zero_in_a_batch_stands_for_no_timer() -> None:
    timers = Timers(NOW_US)
    timers.add_many(0, [])
    timers.add_many(0, [0, 0, 0])
    assert (len(timers), timers.next_due_us, timers.pop_due(NOW_US)) == (0, None, [])
    timers.add_many(10, array("q", [0, NOW_US + 2, 0, NOW_US + 1, 0]))
    assert (len(timers), timers.next_due_us) == (2, NOW_US + 1)
    assert timers.pop_due(NOW_US + 2) == [(NOW_US + 1, 13), (NOW_US + 2, 11)]


def test_timers_added_to_a_bucket_that_is_popped_in_part_keep_the_order() -> None:
    timers = Timers(BORDER_US)
    timers.add_many(0, [BORDER_US + 10, BORDER_US + 20, BORDER_US + 30])
    assert timers.pop_due(BORDER_US + 10) == [(BORDER_US + 10, 0)]
    timers.add(7, BORDER_US + 15)
    timers.add(8, BORDER_US + 25)
    assert timers.next_due_us == BORDER_US + 15
    assert timers.pop_due(BORDER_US + 20) == [(BORDER_US + 15, 7), (BORDER_US + 20, 1)]
    timers.add(9, BORDER_US + 30)
    assert timers.pop_due(BORDER_US + NEAR_US) == [(BORDER_US + 25, 8), (BORDER_US + 30, 2), (BORDER_US + 30, 9)]


def test_the_next_due_is_exact_for_near_timers_and_no_later_than_far_ones() -> None:
    timers = Timers(NOW_US)
    timers.add(1, NOW_US + 3 * DAY_US)
    assert NOW_US < (timers.next_due_us or 0) <= NOW_US + 3 * DAY_US
    timers.add(2, NOW_US + 5 * SECOND_US)
    timers.add(3, NOW_US + 5 * SECOND_US + 1)
    assert timers.next_due_us == NOW_US + 5 * SECOND_US
    timers.pop_due(NOW_US + 5 * SECOND_US)
    assert timers.next_due_us == NOW_US + 5 * SECOND_US + 1
    timers.pop_due(NOW_US + 6 * SECOND_US)
    assert popped_when_asked(timers) == [(NOW_US + 3 * DAY_US, 1)]


# The clock.


def test_timers_of_twenty_years_fire_in_order_at_the_times_that_are_asked_for() -> None:
    timers = Timers(NOW_US)
    dues = random_dues(2000, NOW_US, 20 * 365 * DAY_US)
    timers.add_many(0, dues)
    assert popped_when_asked(timers) == sorted(zip(dues, range(2000), strict=True))


def test_a_jump_forward_over_many_buckets_fires_all_between_in_order() -> None:
    timers = Timers(NOW_US)
    dues = random_dues(5000, NOW_US, 7 * DAY_US)
    timers.add_many(0, dues)
    rows = sorted(zip(dues, range(5000), strict=True))
    land_us = NOW_US + 5 * DAY_US
    assert timers.pop_due(land_us) == [row for row in rows if row[0] <= land_us]
    assert list(timers.entries()) == [row for row in rows if row[0] > land_us]
    assert timers.pop_due(NOW_US + 7 * DAY_US) == [row for row in rows if row[0] > land_us]


def test_T1_when_the_clock_goes_back_nothing_fires_early_and_nothing_is_lost() -> None:
    timers = Timers(NOW_US)
    soon_us, later_us = NOW_US + 7 * DAY_US + 50, NOW_US + 8 * DAY_US
    timers.add_many(0, [soon_us, soon_us + 1, later_us])
    assert timers.pop_due(soon_us) == [(soon_us, 0)]
    assert timers.pop_due(NOW_US) == []
    timers.add_many(10, [NOW_US + 5, soon_us + 1, later_us])
    assert timers.next_due_us == NOW_US + 5
    assert timers.pop_due(NOW_US + 4) == []
    assert timers.pop_due(NOW_US + 5) == [(NOW_US + 5, 10)]
    assert timers.pop_due(soon_us) == []
    assert timers.pop_due(later_us) == [(soon_us + 1, 1), (soon_us + 1, 11), (later_us, 2), (later_us, 12)]


# Splitting far buckets ahead of their time.


@pytest.mark.parametrize("lead_us", [0, 2 * SECOND_US, AHEAD_US])
def test_a_large_far_bucket_loses_and_repeats_nothing_when_popped_across_its_border(lead_us: int) -> None:
    timers = Timers(BORDER_US - FAR_US)
    dues = random_dues(50_000, BORDER_US, 8 * SECOND_US)
    timers.add_many(0, dues)
    fired: list[tuple[int, int]] = []
    step_us = 100_000
    for now_us in range(BORDER_US - lead_us, BORDER_US, max(lead_us // 10, 1)):
        assert timers.pop_due(now_us) == []
        timers.add(50_000 + len(dues), BORDER_US + 3)  # into the range that is being split
        dues.append(BORDER_US + 3)
    for now_us in range(BORDER_US, BORDER_US + 8 * SECOND_US + step_us, step_us):
        rows = timers.pop_due(now_us)
        assert all(now_us - step_us < due_us <= now_us for due_us, _ in rows)
        fired += rows
    offsets = [*range(50_000), *(50_000 + place for place in range(50_000, len(dues)))]
    assert fired == sorted(zip(dues, offsets, strict=True))


def test_a_large_far_bucket_asks_to_be_split_in_slices_before_it_starts() -> None:
    timers = Timers(BORDER_US - FAR_US)
    dues = random_dues(10 * SLICE, BORDER_US + 1, HOUR_US)
    timers.add_many(0, dues)
    wakes: list[int] = []
    while (wake_us := timers.next_due_us) is not None and wake_us < BORDER_US:
        assert timers.pop_due(wake_us) == []
        wakes.append(wake_us)
    assert len(wakes) == 10  # one for each slice
    assert wakes[0] >= BORDER_US - AHEAD_US
    assert timers.next_due_us == min(dues)


# Listing.


def test_listing_gives_all_in_order_and_takes_nothing_out() -> None:
    timers = Timers(BORDER_US - FAR_US)
    dues = random_dues(3 * SLICE, BORDER_US - SECOND_US, HOUR_US) + random_dues(1000, BORDER_US, 30 * DAY_US)
    timers.add_many(0, dues)
    timers.pop_due(BORDER_US - 2 * SECOND_US)  # one far bucket is now split in part
    rows = sorted(zip(dues, range(len(dues)), strict=True))
    assert list(islice(timers.entries(), 20)) == rows[:20]
    assert list(timers.entries()) == rows
    assert len(timers) == len(rows)
    assert timers.pop_due(BORDER_US + 30 * DAY_US) == rows
    assert list(timers.entries()) == []


# Memory.


@pytest.mark.parametrize("span_us", [7 * DAY_US, HOUR_US // 5, 100 * SECOND_US // 5])
def test_T5_many_timers_take_few_bytes_each(span_us: int) -> None:
    # A fifth of a million; the short spans are a fifth too, so that each bucket is as full as with a million.
    batches = [array("q", random_dues(1000, NOW_US + number, span_us)) for number in range(200)]
    tracemalloc.start()
    try:
        timers = Timers(NOW_US)
        for number, dues in enumerate(batches):
            timers.add_many(number * 1000, dues)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(timers) == 200_000
    assert size / 200_000 < 40


def test_T5_timers_that_fired_leave_nothing_behind() -> None:
    tracemalloc.start()
    try:
        timers = Timers(NOW_US)
        for day in range(20):
            timers.add_many(day * 1000, random_dues(1000, NOW_US + day * DAY_US, DAY_US))
            timers.pop_due(NOW_US + (day + 1) * DAY_US)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(timers) == 0
    assert size < 300_000


# Against a model.


@settings(max_examples=300, deadline=None)
@given(STEPS, st.sampled_from([0, BORDER_US - FAR_US, BORDER_US]))
def test_timers_do_as_a_sorted_list_does(steps: list[tuple[str, int, int | list[int]]], start_us: int) -> None:
    timers = Timers(start_us)
    model: list[tuple[int, int]] = []
    for kind, offset, argument in steps:
        if isinstance(argument, list):
            timers.add_many(offset, argument)
            model += [(due_us, offset + place) for place, due_us in enumerate(argument) if due_us]
        elif kind == "add":
            timers.add(offset, argument)
            model.append((argument, offset))
        else:
            assert timers.pop_due(argument) == sorted(row for row in model if row[0] <= argument)
            model = [row for row in model if row[0] > argument]
        assert len(timers) == len(model)
        assert list(timers.entries()) == sorted(model)
        middle_us = sorted(model)[len(model) // 2][0] if model else start_us
        later = [entry for entry in timers.entries(middle_us) if entry[0] >= middle_us]
        assert later == [entry for entry in sorted(model) if entry[0] >= middle_us]
        wake_us = timers.next_due_us
        assert (wake_us is None) == (not model)
        assert wake_us is None or wake_us <= min(model)[0]
    assert popped_when_asked(timers) == sorted(model)
