"""One pace for redrives, replays and jobs: never more than the rate, over any second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.model.pace import Pace, paced

Went = list[tuple[float, int]]


def check_rate(went: Went, rate: float) -> None:
    for start, _ in went:
        assert sum(count for at, count in went if start <= at < start + 0.999) <= rate


@pytest.mark.parametrize(("rate", "turn_s"), [(20, 0.25), (20, 0.1), (0.5, 0.25), (1000, 0.1)])
def test_a_rate_is_never_exceeded_over_any_second(rate: float, turn_s: float) -> None:
    now, went = 100.0, []
    pace = Pace(rate, turn_s)
    for number in range(100):
        now += pace.ahead_s(now)
        now += 3.0 if number == 50 else 0.01  # publishing takes its time
        went.append((now, pace.at_once(10_000)))
        pace.went(pace.at_once(10_000), now)
    check_rate(went, max(rate, 1))
    assert went[-1][0] - went[0][0] < 4 + 100 * (pace.at_once(10_000) / rate + 0.011)


def test_a_turn_has_what_is_due_in_it_and_one_at_least() -> None:
    assert Pace(None).at_once(500) == 500
    assert Pace(200).at_once(500) == 20
    assert Pace(200, 0.25).at_once(30) == 30
    assert Pace(0.5).at_once(500) == 1


def test_what_is_too_short_to_sleep_is_slept_later() -> None:
    pace, now, slept = Pace(100_000), 0.0, []
    for _ in range(1000):
        slept.append(pace.ahead_s(now))
        now += slept[-1]
        pace.went(1, now)
    assert now == pytest.approx(1000 / 100_000, abs=0.002)
    assert 5 <= sum(seconds > 0 for seconds in slept) <= 10


def turns(count: int) -> Iterator[list[int]]:
    return ([number] * 10 for number in range(count))


def test_turns_begin_at_the_rate_whatever_they_take_themselves() -> None:
    now, began = [0.0], []
    for sleep_s, some in paced(turns(50), Pace(100), lambda: now[0]):
        now[0] += sleep_s
        began.append((now[0], len(some)))
        now[0] += 2.0 if some[0] == 20 else 0.04
    check_rate(began, 100)
    assert began[-1][0] == pytest.approx(4.8 + 2.0)  # what it did not do in two seconds is not done faster afterwards
    assert [sleep_s for sleep_s, _ in paced(turns(3), Pace(None), lambda: now[0])] == [0, 0, 0]


def test_a_clock_that_stands_still_makes_no_turn_wait_longer_than_the_one_before() -> None:
    assert [sleep_s for sleep_s, _ in paced(turns(4), Pace(100), lambda: 7.0)] == pytest.approx([0, 0.1, 0.1, 0.1])
