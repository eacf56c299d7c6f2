"""Values as they are given: text from any source, read by an option's parser, and their places in that source.

>>> from penstock.model.options import duration, whole, yes_or_no
>>> read(whole(1, 9), "7"), read(duration(), "1h"), read(duration(), "2.5"), read(yes_or_no, "true")
(7, 3600.0, 2.5, True)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.model.errors import InvalidArgument

_NOTHING = ("none", "null")
_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_PAIRS = re.compile(r"\s*\w+\s*=\s*\d+\s*(,\s*\w+\s*=\s*\d+\s*)*")


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to tell whoever wrote the configuration, and the place that it is about."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


@dataclass(frozen=True, slots=True)
class Given:
    """A value that a source gives to an option, read; `place` is for remarks, `origin` says where the value is from."""

    key: str
    value: object
    place: str
    origin: str


def read(parse: Callable[[object], Any], value: object) -> Any:
    """The value as the parser understands it; text may also be a number, a truth, nothing or pairs written out.

    Text stays text where the parser takes it, so that a directory may be called `7`.
    """
    if not isinstance(value, str):
        return parse(value)
    refusal = InvalidArgument(f"{value!r} cannot be read")
    for meaning in _meanings(value):
        try:
            return parse(meaning)
        except InvalidArgument as error:
            refusal = error
    raise refusal


def number(text: str) -> int | float | str:
    """A number that is written as text, or else the text itself."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _meanings(text: str) -> Iterator[object]:
    word = text.strip().lower()
    if word in _NOTHING:
        yield None
    yield text
    if word in _TRUTHS:
        yield _TRUTHS[word]
    elif _PAIRS.fullmatch(text):
        pairs = (pair.split("=") for pair in text.split(","))
        yield {number(name.strip()): number(weight) for name, weight in pairs}
    elif not isinstance(number(text), str):
        yield number(text)
