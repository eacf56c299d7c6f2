"""Options given by name, checked together: the error lists every problem, and suggests known names."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from penstock.model.bounds import nearest, shown
from penstock.model.errors import InvalidArgument
from penstock.model.names import parse_priority
from penstock.model.units import parse_duration, parse_size

Config = TypeVar("Config")
_PROBLEMS_MAX = 20  # that are told at once
_NAME_MAX = 64


def option(default: Any, parse: Callable[[object], Any], fixed: str | None = None) -> Any:
    """A field of a configuration dataclass, with the parser that checks what users write.

    `fixed` says why it cannot be changed later.
    """
    return dataclasses.field(default=default, metadata={"parse": parse, "fixed": fixed})


def configure(base: Config, options: Mapping[str, object], what: str, *, later: bool = False) -> Config:
    """`base` changed by the options; raises one InvalidArgument that lists every problem.

    With `later`, `base` is in use already, and fixed options must not change.
    """
    fields = {field.name: field for field in dataclasses.fields(base)}  # type: ignore[arg-type]
    problems: list[str] = []
    changes: dict[str, Any] = {}
    for name, value in options.items():
        if len(problems) >= _PROBLEMS_MAX:
            problems.append("and more")
            break
        if name not in fields:
            near = nearest(name, fields)
            problems.append(f"{name[:_NAME_MAX]}: unknown option" + (f", did you mean {near[0]}?" if near else ""))
            continue
        try:
            changes[name] = fields[name].metadata["parse"](value)
        except InvalidArgument as error:
            problems.append(f"{name}: {error}")
            continue
        now, fixed = getattr(base, name), fields[name].metadata["fixed"]
        if later and fixed is not None and changes[name] != now:
            problems.append(f"{name}: it is {now!r} and cannot be changed: {fixed}")
    if problems:
        raise InvalidArgument(f"{what}: " + "; ".join(problems))
    return dataclasses.replace(base, **changes)  # type: ignore[type-var]


def whole(low: int, high: int) -> Callable[[object], int]:
    """A parser of whole numbers in a range."""

    def parse(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise InvalidArgument(f"{shown(value)} is not a whole number from {low} to {high}")

    return parse


def size(low: int, high: int) -> Callable[[object], int]:
    """A parser of sizes in a range of bytes."""

    def parse(value: object) -> int:
        count = parse_size(value)
        if low <= count <= high:
            return count
        raise InvalidArgument(f"{shown(value)} is not between {low} and {high} bytes")

    return parse


def duration(low: float = 0.0, high: float = math.inf) -> Callable[[object], float]:
    """A parser of durations of at least `low` seconds, and at most `high`."""

    def parse(value: object) -> float:
        seconds = parse_duration(value)
        if low <= seconds <= high:
            return seconds
        is_what = f"shorter than {low} s" if seconds < low else f"longer than {high} s"
        raise InvalidArgument(f"{shown(value)} is {is_what}")

    return parse


def choice(*names: str) -> Callable[[object], str]:
    """A parser of one of a few names."""

    def parse(value: object) -> str:
        if value in names:
            return str(value)
        raise InvalidArgument(f"{shown(value)} is not one of {', '.join(names)}")

    return parse


def yes_or_no(value: object) -> bool:
    """A parser of True and False."""
    if isinstance(value, bool):
        return value
    raise InvalidArgument(f"{shown(value)} is not True or False")


def weights(value: object) -> tuple[tuple[int, int], ...]:
    """A parser of weights by priority, from a mapping such as `{"high": 5, "low": 1}`."""
    pairs: Any = value.items() if isinstance(value, Mapping) else value
    parse = whole(1, 1_000_000)
    try:
        parsed = {parse_priority(lane): parse(weight) for lane, weight in pairs}
    except (TypeError, ValueError) as error:
        reason = f": {error}" if isinstance(error, InvalidArgument) else ""
        raise InvalidArgument(f"{shown(value)} is not a mapping of priorities to weights{reason}") from error
    return tuple(sorted(parsed.items()))


def optional(parse: Callable[[object], Any]) -> Callable[[object], Any]:
    """A parser that also takes None: the option is off."""
    return lambda value: None if value is None else parse(value)


def text(value: object) -> str:
    """A parser of non-empty text, also from a path object."""
    if isinstance(value, str | os.PathLike) and str(value):
        return str(value)
    raise InvalidArgument(f"{shown(value)} is not a path")


def check_limit(limit: object) -> int | None:
    """The limit itself, checked; None for no limit."""
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and 0 <= limit <= sys.maxsize):
        return limit
    raise InvalidArgument(f"{shown(limit)} is not a limit: give a whole number from 0")


def check_rate(rate: object) -> float | None:
    """The rate itself, checked: messages a second, or None for no limit."""
    if rate is None or (isinstance(rate, int | float) and not isinstance(rate, bool) and 0.001 <= rate < 1e9):
        return rate
    raise InvalidArgument(f"{shown(rate)} is not a rate: give messages a second, 0.001 or more")
