"""Readers of what is given: each takes a value and its place, and notes what is wrong with it, all of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.model.errors import InvalidArgument
from penstock.model.names import check_topic_name
from penstock.model.options import whole
from penstock.model.units import parse_duration
from penstock.server.settings.table import suggestion
from penstock.server.settings.values import Remark
from penstock.spark.pipelines.given import Given

VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
PART_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,59}")
Read = Callable[[Given], Any]
"""A reader of a value; raises InvalidArgument."""


class Misdeclared(InvalidArgument):
    """A file of pipelines with problems: all of them, each with its place."""

    def __init__(self, problems: list[Remark], hint: str = "") -> None:
        super().__init__("; ".join(map(str, problems)) or hint)
        self.problems = problems


class Notes:
    """What was found in a file: problems, where its parts stand, and the views that could not be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Remark] = []
        self.lines: dict[str, int] = {}
        self.unread: dict[str, frozenset[str]] = {}

    def stands(self, place: str, given: Given) -> None:
        """Note where a part of the file is."""
        if given.line is not None:
            self.lines[place] = given.line

    def wrong(self, place: str, text: str) -> None:
        """Something is wrong with this part."""
        self.problems.append(remark(self.path, self.lines, place, text))

    def read(self, place: str, given: Given, reader: Read) -> Any:
        """The value as a reader understands it; if it cannot be read, the problem is noted, and None returned."""
        self.stands(place, given)
        try:
            return reader(given)
        except InvalidArgument as error:
            self.wrong(place, str(error))
            return None

    def section(
        self, place: str, given: Given, readers: Mapping[str, Read], needed: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """A mapping whose keys are known; those that were given and could be read."""
        self.stands(place, given)
        found: dict[str, Any] = {}
        items = self.read(place, given, Given.items) or {}
        for name, part in items.items():
            inner = f"{place}.{name}" if place else name
            self.stands(inner, part)
            if name not in readers:
                known = suggestion(name, readers) or f"; known are {', '.join(readers)}"
                self.wrong(inner, f"unknown key{known}")
                continue
            value = self.read(inner, part, readers[name])
            if value is not None:
                found[name] = value
        if isinstance(given.value, dict):
            for name in needed:
                if name not in items:
                    self.wrong(place, f"{name} is missing")
        return found


def remark(path: Path, lines: Mapping[str, int], place: str, text: str) -> Remark:
    """A remark on a part of the file, with the line of it or of what it is a part of."""
    above = place
    while above and above not in lines:
        above = above.rpartition(".")[0]
    where = f"{path}:{lines[above]}" if above in lines else str(path)
    return Remark(where, f"{place}: {text}" if place else text)


# Values.


def text(given: Given) -> str:
    """Text that is not empty."""
    if isinstance(given.value, str) and given.value.strip():
        return given.value
    raise InvalidArgument(f"{_shown(given)} is not text")


def expression(given: Given) -> str:
    """An expression of SQL; numbers and truths are such."""
    if given.value is None or isinstance(given.value, dict | list) or not given.text.strip():
        raise InvalidArgument(f"{_shown(given)} is not an expression of SQL")
    return given.text


def expressions(given: Given) -> str | dict[str, str]:
    """An expression, or some by name."""
    if isinstance(given.value, dict):
        return {name: expression(part) for name, part in given.items().items()}
    return expression(given)


def truth(given: Given) -> bool:
    """True or false."""
    if isinstance(given.value, bool):
        return given.value
    raise InvalidArgument(f"{_shown(given)} is not true or false")


def topic(given: Given) -> str:
    """The name of a topic."""
    return check_topic_name(given.value)


def one_of(*names: str) -> Read:
    """One of a few words."""

    def read(given: Given) -> str:
        if given.text in names:
            return given.text
        near = suggestion(given.text, names)
        raise InvalidArgument(f"{_shown(given)} is none of {', '.join(names)}{near}")

    return read


def number(low: int, high: int) -> Read:
    """A whole number."""
    return lambda given: whole(low, high)(given.value)


def duration(given: Given) -> float | str:
    """A duration, as it was written."""
    parse_duration(given.value)
    return given.value  # type: ignore[return-value]


def names(given: Given) -> str | tuple[str, ...]:
    """A text, or several."""
    if isinstance(given.value, list):
        found = tuple(text(part) for part in given.parts())
        if not found:
            raise InvalidArgument("there is nothing in the list")
        return found
    return text(given)


def named(pattern: re.Pattern[str], name: str, what: str) -> str | None:
    """What is wrong with a name, if anything."""
    if pattern.fullmatch(name):
        return None
    allowed = "letters, digits and '_', not beginning with a digit"
    if pattern is PART_NAME:
        allowed = "letters, digits, '_' and '-'"
    return f"{name!r:.80} cannot be the name of a {what}: use 1 to 60 {allowed}"


def _shown(given: Given) -> str:
    if isinstance(given.value, dict):
        return "a mapping"
    if isinstance(given.value, list):
        return "a list"
    return "nothing" if given.value is None else f"{given.value!r:.80}"
