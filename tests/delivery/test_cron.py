"""Recurring times: cron expressions in a zone, also on the days when its clocks change."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.cron import NICKNAMES, Cron
from penstock.model.errors import InvalidArgument
from penstock.model.units import TIME_US_MAX, parse_time_us, to_datetime

MINUTE_US = 60_000_000
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Africa/Cairo", "Pacific/Auckland"]


def times(expression: str, after: str, count: int, zone: str = "UTC") -> list[str]:
    """The next times in UTC, each found from the one before."""
    cron = Cron.parse(expression, zone)
    time_us = parse_time_us(after)
    found = []
    for _ in range(count):
        time_us = cron.next_after_us(time_us)
        found.append(f"{to_datetime(time_us):%Y-%m-%dT%H:%M:%SZ}")
    return found


def refusal(expression: object, zone: object = "UTC") -> str:
    with pytest.raises(InvalidArgument) as refused:
        Cron.parse(expression, zone)
    return str(refused.value)


# Plain times.


def test_every_quarter_of_an_hour() -> None:
    assert times("*/15 * * * *", "2026-01-01T00:07:00Z", 4) == [
        "2026-01-01T00:15:00Z",
        "2026-01-01T00:30:00Z",
        "2026-01-01T00:45:00Z",
        "2026-01-01T01:00:00Z",
    ]


def test_the_next_time_is_strictly_later_to_the_microsecond() -> None:
    cron = Cron.parse("*/15 * * * *")
    due = parse_time_us("2026-01-01T00:15:00Z")
    assert cron.next_after_us(due - 1) == due
    assert cron.next_after_us(due) == due + 15 * MINUTE_US
    assert cron.next_after_us(due + 1) == due + 15 * MINUTE_US


def test_weekdays_at_nine_leave_the_weekend_out() -> None:
    friday = "2026-07-03T08:00:00Z"
    assert times("0 9 * * MON-FRI", friday, 3) == [
        "2026-07-03T09:00:00Z",
        "2026-07-06T09:00:00Z",
        "2026-07-07T09:00:00Z",
    ]
    assert times("0 9 * * mon-fri", friday, 3) == times("0 9 * * 1-5", friday, 3)


def test_the_last_days_of_months_are_left_out_where_there_are_none() -> None:
    assert times("0 0 31 * *", "2026-01-31T00:00:00Z", 3) == [
        "2026-03-31T00:00:00Z",
        "2026-05-31T00:00:00Z",
        "2026-07-31T00:00:00Z",
    ]
    assert times("0 0 L * *", "2026-01-31T00:00:00Z", 2) == ["2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"]


def test_leap_days_come_every_four_years_and_not_in_2100() -> None:
    assert times("0 0 29 2 *", "2026-01-01T00:00:00Z", 2) == ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]
    assert times("0 0 29 2 *", "2096-03-01T00:00:00Z", 1) == ["2104-02-29T00:00:00Z"]
    assert times("0 0 29 2 */7", "2088-03-01T00:00:00Z", 1) == ["2128-02-29T00:00:00Z"]  # a Sunday, 40 years on


def test_where_both_days_are_given_either_matches() -> None:
    assert times("0 0 13 * FRI", "2026-02-07T00:00:00Z", 3) == [
        "2026-02-13T00:00:00Z",
        "2026-02-20T00:00:00Z",
        "2026-02-27T00:00:00Z",
    ]


@pytest.mark.parametrize("nickname", NICKNAMES)
def test_nicknames_mean_what_they_stand_for(nickname: str) -> None:
    start = "2026-05-17T10:20:30Z"
    assert times(nickname, start, 3) == times(NICKNAMES[nickname], start, 3)
    assert times(nickname.upper(), start, 1) == times(nickname, start, 1)


def test_a_cron_says_what_it_is_and_equals_its_like() -> None:
    cron = Cron.parse("  0   9 * * MON-FRI ", "Europe/Berlin")
    assert str(cron) == "0 9 * * MON-FRI (Europe/Berlin)"
    assert cron == Cron.parse(cron.expression, cron.zone)
    assert str(Cron.parse("@daily")) == "@daily (UTC)"


# The days when clocks change: in Berlin on 2026-03-29 (02:00 is 03:00) and 2026-10-25 (03:00 is 02:00).


def test_a_time_that_the_clocks_skip_fires_once_when_the_skipped_hour_is_over() -> None:
    assert times("30 2 * * *", "2026-03-27T12:00:00Z", 3, "Europe/Berlin") == [
        "2026-03-28T01:30:00Z",
        "2026-03-29T01:00:00Z",  # 03:00 in Berlin
        "2026-03-30T00:30:00Z",
    ]


def test_a_time_that_comes_twice_fires_the_first_time_only() -> None:
    assert times("30 2 * * *", "2026-10-23T12:00:00Z", 3, "Europe/Berlin") == [
        "2026-10-24T00:30:00Z",
        "2026-10-25T00:30:00Z",  # the first 02:30 in Berlin
        "2026-10-26T01:30:00Z",
    ]


@pytest.mark.parametrize("after", ["00:30:00", "00:45:00", "01:00:00", "01:15:00", "01:30:00", "01:45:00"])
def test_in_the_repeated_hour_a_time_of_its_first_pass_is_over(after: str) -> None:
    assert times("30 2 * * *", f"2026-10-25T{after}Z", 1, "Europe/Berlin") == ["2026-10-26T01:30:00Z"]


def test_stars_fire_whenever_the_clock_on_the_wall_matches() -> None:
    assert times("30 * * * *", "2026-03-29T00:00:00Z", 3, "Europe/Berlin") == [
        "2026-03-29T00:30:00Z",
        "2026-03-29T01:30:00Z",  # 03:30 in Berlin
        "2026-03-29T02:30:00Z",
    ]
    assert times("30 * * * *", "2026-10-25T00:00:00Z", 3, "Europe/Berlin") == [
        "2026-10-25T00:30:00Z",
        "2026-10-25T01:30:00Z",  # 02:30 in Berlin again
        "2026-10-25T02:30:00Z",
    ]
    assert times("*/30 2 * * *", "2026-03-28T12:00:00Z", 1, "Europe/Berlin") == ["2026-03-30T00:00:00Z"]


def test_a_midnight_that_the_clocks_skip_fires_at_one() -> None:
    assert times("@daily", "2026-04-22T23:00:00Z", 3, "Africa/Cairo") == [
        "2026-04-23T22:00:00Z",  # 01:00 in Cairo on the 24th
        "2026-04-24T21:00:00Z",
        "2026-04-25T21:00:00Z",
    ]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", ["30 2 * * *", "0 0 * * *", "30 23 * * *"])
def test_a_daily_time_fires_once_on_every_day_of_a_year(expression: str, zone: str) -> None:
    found = times(expression, "2026-01-01T12:00:00Z", 365, zone)
    days = [datetime.fromisoformat(time).astimezone(ZoneInfo(zone)).date() for time in found]
    assert all((later - earlier).days == 1 for earlier, later in pairwise(days))


# What is refused.


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("60 * * * *", "'60' cannot be the minute: give 0-59"),
        ("* 24 * * *", "'24' cannot be the hour: give 0-23"),
        ("* * 0 * *", "'0' cannot be the day of the month: give 1-31"),
        ("* * * JANUARY *", "'JANUARY' cannot be the month: give 1-12 or JAN-DEC"),
        ("* * * * FRI-MON", "'FRI-MON' cannot be the day of the week: give 0-7 or SUN-SAT"),
        ("*/0 * * * *", "'*/0' cannot be the minute"),
        ("1,,2 * * * *", "'1,,2' cannot be the minute"),
    ],
)
def test_an_error_names_the_field_and_what_it_may_be(expression: str, field: str) -> None:
    assert field in refusal(expression)


def test_there_is_no_field_for_seconds() -> None:
    assert "6 fields; there is no field for seconds: give five fields" in refusal("0 * * * * *")


@pytest.mark.parametrize("expression", ["", "*", "* * * *", "@reboot", "@", 5, None, b"* * * * *", "1," * 400])
def test_what_is_no_expression_is_refused_with_what_is_allowed(expression: object) -> None:
    assert "give five fields" in refusal(expression)
    assert "@hourly, @daily" in refusal(expression)


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30,31 FEB *"])
def test_an_expression_that_never_fires_is_refused(expression: str) -> None:
    assert "never fires" in refusal(expression)


def test_an_unknown_zone_is_refused_with_the_nearest_names() -> None:
    assert "did you mean Europe/Berlin" in refusal("@daily", "Europe/Berln")
    assert "did you mean Europe/Berlin" in refusal("@daily", "europe/berlin")
    assert "did you mean Europe/Berlin" in refusal("@daily", "Berlin")


@pytest.mark.parametrize("zone", ["", "Europe", "localtime", "/etc/passwd", "../UTC", "a\0b", 3, None, "x" * 1000])
def test_what_is_no_zone_is_refused(zone: object) -> None:
    assert "is not a time zone known here" in refusal("@daily", zone)
    assert len(refusal("@daily", zone)) < 300


def test_there_is_no_time_after_the_year_9999() -> None:
    with pytest.raises(InvalidArgument, match="does not fire any more"):
        Cron.parse("@daily").next_after_us(TIME_US_MAX)


# Any simple expression, at any time.


def field(low: int, high: int, always: int | None = None) -> st.SearchStrategy[tuple[str, set[int]]]:
    """The text of a field beside the values that it stands for; a value alone is no greater than `always`."""
    anything = set(range(low, high + 1))
    values = st.integers(low, always or high)
    return (
        st.just(("*", anything))
        | values.map(lambda value: (str(value), {value}))
        | st.tuples(values, values).map(lambda ends: (f"{min(ends)}-{max(ends)}", set(range(min(ends), max(ends) + 1))))
        | st.integers(2, high).map(lambda step: (f"*/{step}", set(range(low, high + 1, step))))
    )


@given(
    minute=field(0, 59),
    hour=field(0, 23),
    day=field(1, 31, always=28),
    month=field(1, 12),
    zone=st.sampled_from(ZONES),
    time_us=st.integers(parse_time_us("1990-01-01T00:00:00Z"), parse_time_us("2090-01-01T00:00:00Z")),
)
def test_the_next_time_is_later_on_a_full_minute_and_matches_every_field(
    minute: tuple[str, set[int]],
    hour: tuple[str, set[int]],
    day: tuple[str, set[int]],
    month: tuple[str, set[int]],
    zone: str,
    time_us: int,
) -> None:
    cron = Cron.parse(f"{minute[0]} {hour[0]} {day[0]} {month[0]} *", zone)
    found_us = cron.next_after_us(time_us)
    assert found_us > time_us
    assert found_us % MINUTE_US == 0
    assert cron.next_after_us(found_us - 1) == found_us
    local = to_datetime(found_us).astimezone(ZoneInfo(zone))
    assert local.month in month[1]
    assert local.day in day[1]
    hour_before = to_datetime(found_us - 60 * MINUTE_US).astimezone(ZoneInfo(zone))
    if hour_before.utcoffset() == local.utcoffset():  # elsewhere a skipped time may stand for another
        assert local.minute in minute[1]
        assert local.hour in hour[1]


@given(
    step=st.sampled_from([1, 5, 7, 20]),
    hour=field(0, 23),
    start=st.integers(parse_time_us("2026-01-01T00:00:00Z"), parse_time_us("2027-01-01T00:00:00Z")),
)
def test_nothing_is_left_out_between_a_time_and_the_next(step: int, hour: tuple[str, set[int]], start: int) -> None:
    found_us = Cron.parse(f"*/{step} {hour[0]} * * *", "Europe/Berlin").next_after_us(start)
    first = start - start % MINUTE_US + MINUTE_US
    for time_us in range(first, found_us, MINUTE_US):
        local = to_datetime(time_us).astimezone(ZoneInfo("Europe/Berlin"))
        assert local.minute % step or local.hour not in hour[1]
