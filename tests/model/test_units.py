"""Durations, sizes and times: what people may write, what it means, and what they are told when it means nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument
from penstock.model.units import (
    TIME_US_MAX,
    format_size,
    parse_duration,
    parse_size,
    parse_time_us,
    to_datetime,
)

NEW_YEAR_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z

# Durations.


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (0, 0.0),
        (30, 30.0),
        (2.5, 2.5),
        (timedelta(minutes=2, milliseconds=5), 120.005),
        ("10us", 1e-5),
        ("250ms", 0.25),
        ("30s", 30.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("7d", 604_800.0),
        ("2w", 1_209_600.0),
        ("1w2d3h4m5s6ms", 788_645.006),
        (" 5s ", 5.0),
    ],
)
def test_a_duration_is_a_number_of_seconds_a_timedelta_or_text_with_units(written: object, seconds: float) -> None:
    assert parse_duration(written) == pytest.approx(seconds, rel=1e-12)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=36_500)))
def test_a_duration_written_out_unit_by_unit_means_the_same_as_its_timedelta(span: timedelta) -> None:
    written = f"{span.days}d{span.seconds}s{span.microseconds}us"
    assert parse_duration(written) == pytest.approx(parse_duration(span), abs=1e-6)


@pytest.mark.parametrize(
    "written",
    [
        -1,
        -0.001,
        timedelta(seconds=-1),
        float("nan"),
        float("inf"),
        1e12,
        pytest.param(10**400, id="a number of 401 digits"),
        True,
        None,
        b"30s",
        "",
        "30",
        "s",
        "30 s",
        "1h 30m",
        "-30s",
        "30S",
        "30 fortnights",
        "1h30",
        "x1h",
    ],
)
def test_what_is_not_a_duration_is_refused_with_what_is_allowed(written: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_duration(written)
    assert shown(written) in str(refused.value)
    assert "give seconds, a timedelta, or text such as '250ms', '30s', '1h30m', '7d'" in str(refused.value)


# Sizes.


@pytest.mark.parametrize(
    ("written", "count"),
    [
        (0, 0),
        (4096, 4096),
        ("4096", 4096),
        ("200B", 200),
        ("64KiB", 65_536),
        ("16MiB", 16_777_216),
        ("16 MiB", 16_777_216),
        (" 1GiB ", 1_073_741_824),
        ("1TiB", 1_099_511_627_776),
        ("10kB", 10_000),
        ("10KB", 10_000),
        ("10MB", 10_000_000),
        ("10GB", 10_000_000_000),
        ("1.5TB", 1_500_000_000_000),
        ("0.5KiB", 512),
    ],
)
def test_a_size_is_a_number_of_bytes_or_text_with_a_unit(written: object, count: int) -> None:
    assert parse_size(written) == count


@given(st.integers(min_value=0, max_value=1 << 62))
def test_a_whole_number_of_bytes_means_the_same_as_text_and_as_a_number(count: int) -> None:
    assert parse_size(str(count)) == parse_size(f"{count}B") == parse_size(count) == count


@pytest.mark.parametrize(
    "written", [-1, 1.5, True, None, b"1MiB", "", "MiB", "-1", "1 XB", "1mib", "1MiB2", "1e3", float("nan")]
)
def test_what_is_not_a_size_is_refused_with_what_is_allowed(written: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_size(written)
    assert shown(written) in str(refused.value)
    assert "give bytes, or text such as '64KiB', '16MiB', '10GB'" in str(refused.value)


def test_a_size_with_hundreds_of_digits_is_taken_or_refused_but_never_breaks() -> None:
    written = "9" * 400
    try:
        count = parse_size(written)
    except InvalidArgument as refused:
        assert "give bytes" in str(refused)
    else:
        assert count == int(written)


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (200, "200 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (16 << 20, "16 MiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 40, "5 TiB"),
    ],
)
def test_a_size_is_shown_in_the_largest_unit_that_fits(count: int, shown: str) -> None:
    assert format_size(count) == shown


@given(st.integers(min_value=0, max_value=1 << 50))
def test_a_shown_size_is_a_size_that_can_be_written_and_is_near_the_true_one(count: int) -> None:
    assert parse_size(format_size(count)) == pytest.approx(count, rel=1e-3, abs=1)


# Times.


@pytest.mark.parametrize(
    ("written", "time_us"),
    [
        (0, 0),
        (1_767_225_600, NEW_YEAR_US),
        (1_767_225_600.25, NEW_YEAR_US + 250_000),
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-01T00:00:00Z", NEW_YEAR_US),
        ("2026-01-01T01:00:00+01:00", NEW_YEAR_US),
        ("2026-01-01 00:00:00.000001+00:00", NEW_YEAR_US + 1),
        ("2026-01-01", NEW_YEAR_US),
        (datetime(2026, 1, 1, tzinfo=UTC), NEW_YEAR_US),
        (datetime(2025, 12, 31, 19, tzinfo=timezone(timedelta(hours=-5))), NEW_YEAR_US),
    ],
)
def test_a_time_is_seconds_since_1970_a_datetime_iso_text_with_a_zone_or_a_date(written: object, time_us: int) -> None:
    assert parse_time_us(written) == time_us


@given(st.integers(min_value=0, max_value=TIME_US_MAX))
def test_every_stored_time_goes_to_a_datetime_and_to_text_and_back_to_the_microsecond(time_us: int) -> None:
    moment = to_datetime(time_us)
    assert moment.tzinfo is UTC
    assert parse_time_us(moment) == time_us
    assert parse_time_us(moment.isoformat()) == time_us


@pytest.mark.parametrize(
    "written",
    [
        -1,
        float("nan"),
        float("inf"),
        pytest.param(10**400, id="a number of 401 digits"),
        True,
        None,
        b"2026-01-01T00:00:00Z",
        "",
        "yesterday",
        "2026-13-01T00:00:00Z",
        "2026-01-01T00:00:00",
        "2026-02-30",
        "20260101",
        "1969-12-31",
        "1969-12-31T23:59:59Z",
        "0001-01-01T00:00:00+12:00",
        datetime(2026, 1, 1),  # noqa: DTZ001 - a time without a zone is the case
        datetime(1969, 12, 31, tzinfo=UTC),
    ],
)
def test_what_is_not_a_point_in_time_is_refused_with_what_is_allowed(written: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_time_us(written)
    assert shown(written) in str(refused.value)
    assert "a datetime with a time zone, seconds since 1970" in str(refused.value)
    assert "2026-01-31T12:00:00Z" in str(refused.value)


@pytest.mark.parametrize("written", [253_402_300_800, 253_402_300_800.0, "9999-12-31T23:59:59.999999-12:00"])
def test_a_time_after_the_year_9999_is_refused_however_it_is_written(written: object) -> None:
    with pytest.raises(InvalidArgument, match="point in time"):
        parse_time_us(written)
