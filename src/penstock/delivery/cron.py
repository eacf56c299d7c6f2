"""Recurring times as cron expressions, in a time zone.

>>> from penstock.model.units import parse_time_us, to_datetime
>>> weekdays = Cron.parse("0 9 * * MON-FRI", "Europe/Berlin")
>>> str(to_datetime(weekdays.next_after_us(parse_time_us("2026-07-03T12:00:00Z"))))
'2026-07-06 07:00:00+00:00'

Where clocks change, the rules of Debian's cron hold. An expression whose minute and hour are both given (neither
begins with `*`) fires at each of its times once: one that the clocks skip fires when the skipped time is over, one
that comes twice fires the first time. With `*` in either of them it fires whenever the clock on the wall matches: not
in a skipped hour, and in both passes of a repeated one. (Where clocks change by half an hour, in Australia/Lord_Howe,
such an expression can miss a time in the day after the change.)

As in every cron, where both days are given either may match; where one of them begins with `*`, both must.
"""

from __future__ import annotations

import functools
import zoneinfo
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cronsim import CronSim, CronSimError

from penstock.model.bounds import nearest, shown
from penstock.model.errors import InvalidArgument
from penstock.model.units import parse_time_us, to_datetime

NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS: Final = (
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day of the month", "1-31, or L for the last"),
    ("month", "1-12 or JAN-DEC"),
    (
        "day of the week",
        "0-7 or SUN-SAT, where 0 and 7 are Sunday, MON#2 for the second Monday, 5L for the last Friday",
    ),
)
_ALLOWED: Final = (
    "give five fields (minute, hour, day of the month, month, day of the week) such as '*/15 * * * *' or "
    f"'0 9 * * MON-FRI', or one of {', '.join(NICKNAMES)}"
)
_TEXT_MAX: Final = 500
_ZONE_MAX: Final = 64
_SHOWN: Final = 60  # how much of a wrong text an error repeats
_ANY_START: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - whether an expression ever fires is the same in every zone


@dataclass(frozen=True, slots=True)
class Cron:
    """A checked cron expression and the name of the zone in which it is meant; made by `parse`."""

    expression: str
    zone: str = "UTC"

    def __str__(self) -> str:
        return f"{self.expression} ({self.zone})"

    @classmethod
    def parse(cls, expression: object, zone: object = "UTC") -> Cron:
        """Check both; an expression that would never fire is refused too."""
        if not isinstance(expression, str) or len(expression) > _TEXT_MAX:
            raise InvalidArgument(f"{shown(expression, _SHOWN)} is not a cron expression: {_ALLOWED}")
        text = " ".join(expression.split())
        if text.startswith("@"):
            text = text.lower()
            if text not in NICKNAMES:
                raise InvalidArgument(f"{expression!r} is not a known cron nickname: {_ALLOWED}")
        else:
            _check_fields(text)
        return cls(text, _parse_zone(zone))

    def next_after_us(self, time_us: int) -> int:
        """The first time strictly after the given one; both are microseconds since 1970, UTC."""
        try:
            start = to_datetime(time_us).astimezone(zoneinfo.ZoneInfo(self.zone))
            for moment in CronSim(NICKNAMES.get(self.expression, self.expression), start):
                found_us = parse_time_us(moment)
                # In the second pass of a repeated hour it also names the times of the first, which are over.
                if found_us > time_us:
                    return found_us
        except OverflowError:
            pass
        raise InvalidArgument(f"{self} does not fire any more after {time_us} µs, before the end of the year 9999")


def _check_fields(text: str) -> None:
    """Find the field that is wrong, or that they are right one by one but never come together."""
    fields = text.split()
    if len(fields) != len(_FIELDS):
        seconds = "; there is no field for seconds" if len(fields) == len(_FIELDS) + 1 else ""
        raise InvalidArgument(f"cron expression {text!r} has {len(fields)} fields{seconds}: {_ALLOWED}")
    for place, (name, values) in enumerate(_FIELDS):
        alone = ["*"] * len(_FIELDS)
        alone[place] = fields[place]
        try:
            CronSim(" ".join(alone), _ANY_START)
        except (CronSimError, ValueError):
            raise InvalidArgument(
                f"cron expression {text!r}: {fields[place]!r} cannot be the {name}: give {values}, as *, a value, "
                "a range from low to high (1-5), a step (*/15, 10-40/10), or a list of them (1,3,5-7)"
            ) from None
    try:
        fires = next(CronSim(text, _ANY_START), None) is not None
    except CronSimError:
        fires = False
    if not fires:
        raise InvalidArgument(f"cron expression {text!r} never fires: no such day is in any of its months")


@functools.cache
def _zone_names() -> dict[str, str]:
    """The names of this machine's zones by their lower case; finding them reads some hundred files."""
    return {name.lower(): name for name in sorted(zoneinfo.available_timezones() - {"localtime", "Factory"})}


def _parse_zone(zone: object) -> str:
    if zone == "UTC":
        return "UTC"
    names = _zone_names()
    text = zone if isinstance(zone, str) and len(zone) <= _ZONE_MAX else ""
    if text and names.get(text.lower()) == text:
        return text
    near = [names[name] for name in nearest(text.lower(), names, 3)]
    hint = f", did you mean {' or '.join(near)}?" if near else ":"
    raise InvalidArgument(
        f"{shown(zone, _SHOWN)} is not a time zone known here{hint} give an IANA name such as 'UTC' or 'Europe/Berlin'"
    )
