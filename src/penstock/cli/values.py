"""What people write on the command line, turned into what the broker takes."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, overload

from penstock.cli.errors import CommandError
from penstock.model.bounds import TEXT_MAX, shown
from penstock.model.errors import InvalidArgument
from penstock.model.names import parse_priority
from penstock.model.units import parse_digits, parse_duration, parse_time_us

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DAY_S = 86_400.0
_WORDS = {"none": None, "true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def to_bytes(text: str) -> bytes:
    """The very bytes that were written on the command line, UTF-8 or not."""
    return os.fsencode(text)


def parse_headers(given: Sequence[str] | None) -> dict[str, str] | None:
    """Headers written as NAME=VALUE."""
    headers: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"{text!r} is not a header: write NAME=VALUE")
        headers[name] = value
    return headers or None


def parse_lane(text: str) -> int | str:
    """A priority by number or name."""
    return parse_priority(_number(text))


@overload
def parse_moment(text: str) -> float | str: ...
@overload
def parse_moment(text: None) -> None: ...
@overload
def parse_moment(text: str | None) -> float | str | None: ...
def parse_moment(text: str | None) -> float | str | None:
    """A point in time: ISO 8601 with a zone, a date (in UTC), seconds since 1970, `now`, or `15m ago`."""
    if text is None:
        return None
    words = text.split()
    if words == ["now"]:
        return time.time()
    if len(words) == 2 and words[1] == "ago":
        return max(0.0, time.time() - parse_duration(words[0]))
    try:
        moment: float | str = _seconds(text)
        parse_time_us(moment)
    except InvalidArgument:
        raise InvalidArgument(
            f"{shown(text)} is not a point in time: write ISO 8601 with a zone (2026-01-31T12:00:00Z), a date, seconds "
            "since 1970, now, or a duration ago ('15m ago')"
        ) from None
    return moment


def parse_end(text: str) -> float | str:
    """A point in time up to which something goes; a date is the end of its day, in UTC."""
    moment = parse_moment(text)
    return parse_time_us(text) / 1_000_000 + _DAY_S if _DATE.fullmatch(text) else moment


def _seconds(text: str) -> float | str:
    """A plain number; anything else as it is."""
    return float(text) if len(text) <= TEXT_MAX and text.replace(".", "", 1).isdigit() else text


def parse_length(text: str | None) -> float | None:
    """A duration such as `30s` or `1h30m`; plain numbers are seconds."""
    return None if text is None else parse_duration(_seconds(text))


def parse_option_s(option: str, text: str, example: str) -> float:
    """The duration that an option of its own has, in seconds."""
    try:
        return parse_duration(text)
    except InvalidArgument as error:
        raise CommandError(f"{option}: {error}", f"for example {option} {example}") from None


def parse_topic_options(given: Sequence[str]) -> dict[str, Any]:
    """Options of a topic written as name=value, each as the kind of value that it takes."""
    from dataclasses import fields

    from penstock.model.config import TopicConfig

    parsers = {field.name: field.metadata["parse"] for field in fields(TopicConfig)}
    options: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.replace("-", "_")
        if not equals or not name:
            raise InvalidArgument(f"{text!r} is not an option: write name=value")
        options[name] = value
        for meant in _meanings(value) if name in parsers else ():
            try:
                parsers[name](meant)
            except InvalidArgument:
                continue
            options[name] = meant
            break
    TopicConfig.parse(options)  # tells everything that is wrong with them at once
    return options


def _meanings(text: str) -> Iterator[object]:
    """What a value may mean, the likeliest first."""
    if text.lower() in _WORDS:
        yield _WORDS[text.lower()]
    for number in (int, float):
        try:
            yield number(text)
        except ValueError:
            continue
    if "=" in text:  # weights of lanes: high=5,low=1
        pairs = [pair.partition("=")[::2] for pair in text.split(",")]
        yield {_number(lane): _number(weight) for lane, weight in pairs}
    if text.startswith("{"):
        try:
            yield json.loads(text)
        except ValueError:
            return
    yield text


def _number(text: str) -> int | str:
    number = parse_digits(text)
    return text if number is None else number
