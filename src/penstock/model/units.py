"""Durations, sizes and times as people write them, turned into numbers.

>>> parse_duration("1h30m"), parse_duration(2.5), parse_size("64MiB"), parse_size("10GB")
(5400.0, 2.5, 67108864, 10000000000)
>>> parse_time_us("2026-01-01T00:00:00Z"), parse_time_us("2026-01-01")
(1767225600000000, 1767225600000000)
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from penstock.model.bounds import TEXT_MAX, shown
from penstock.model.errors import InvalidArgument

Duration = float | int | str | timedelta
Time = datetime | float | int | str

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION_PART = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)(us|ms|s|m|h|d|w)", re.ASCII)
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})++", re.ASCII)
_BYTES = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,18})?)\s{0,8}([A-Za-z]{0,3})", re.ASCII)
_DIGITS = re.compile("[0-9]{1,18}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
TIME_US_MAX = 253_402_300_799_999_999  # the last microsecond of the year 9999


def short(text: str) -> str:
    """The text itself; nothing where it is longer than any number, duration or time."""
    return text if len(text) <= TEXT_MAX else ""


def parse_digits(text: str) -> int | None:
    """The whole number that text is, of at most 18 digits; None for anything else."""
    return int(text) if _DIGITS.fullmatch(text) else None


def parse_duration(value: object) -> float:
    """Seconds, from a number, a timedelta, or text such as `30s`, `250ms`, `1h30m`, `7d`."""
    seconds: float | None = None
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) < 1e15 else None
    elif isinstance(value, str):
        text = short(value).strip()
        if _DURATION.fullmatch(text):
            seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))
    if seconds is None or not 0 <= seconds < 1e12:
        raise InvalidArgument(
            f"{shown(value)} is not a duration: give seconds, a timedelta, "
            "or text such as '250ms', '30s', '1h30m', '7d'"
        )
    return seconds


def parse_size(value: object) -> int:
    """Bytes, from a whole number or text such as `64MiB`, `10GB`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(short(value).strip()) if isinstance(value, str) else None
    if match is None or match[2] not in _BYTES:
        raise InvalidArgument(f"{shown(value)} is not a size: give bytes, or text such as '64KiB', '16MiB', '10GB'")
    return int(Decimal(match[1]) * _BYTES[match[2]])


def parse_time_us(value: object) -> int:
    """Microseconds since 1970, from an aware datetime, epoch seconds, ISO 8601 text with a zone, or a date (in UTC)."""
    moment: datetime | None = None
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(f"{value}T00:00Z" if _DATE.fullmatch(value) else short(value))
        except ValueError:
            moment = None
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < TIME_US_MAX // 1_000_000:
        return round(value * 1_000_000)
    if moment is None or moment.tzinfo is None or not _EPOCH <= moment <= _LAST:
        raise InvalidArgument(
            f"{shown(value)} is not a point in time: give a datetime with a time zone, seconds since 1970, "
            "or ISO 8601 text such as '2026-01-31T12:00:00Z' or '2026-01-31'"
        )
    return (moment - _EPOCH) // _MICROSECOND


def due_time_us(delay: object, deliver_at: object, now_us: int) -> int:
    """When something is due that was given a delay from now, or a point in time."""
    if delay is not None and deliver_at is not None:
        raise InvalidArgument("give delay or deliver_at, not both")
    if delay is None:
        return parse_time_us(deliver_at)
    due_us = now_us + round(parse_duration(delay) * 1_000_000)
    if due_us > TIME_US_MAX:
        raise InvalidArgument("the delivery time lies after the year 9999")
    return due_us


def to_datetime(time_us: int) -> datetime:
    """The UTC datetime of a stored time, exact to the microsecond."""
    return _EPOCH + timedelta(microseconds=time_us)


def format_size(count: int) -> str:
    """A size for people: `16 MiB`, `1.5 GiB`, `200 B`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.4g} {unit}"


def format_duration(seconds: float) -> str:
    """A duration as it is written in options, exact to the microsecond: `7d`, `1h30m`, `250ms`."""
    left_us, text = round(seconds * 1_000_000), ""
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, left_us = divmod(left_us, round(_SECONDS[unit] * 1_000_000))
        text += f"{count}{unit}" if count else ""
    return text or "0s"
