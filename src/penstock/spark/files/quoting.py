"""Where the records of a CSV end, of which quoted fields may hold newlines.

A quote opens a field where the field begins, and nowhere else; inside, two of them stand for one. This is how pyarrow
reads CSV, so that what is cut here is never cut inside a record there. A quoted field that does not end within a
mebibyte was not meant to be one: its line is a record of its own, a bad one, and the next line begins anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

QUOTED_BYTES_MAX = 1 << 20
_NEWLINE = re.compile(rb"\r\n|\n|\r")


class Piece(NamedTuple):
    """Some whole records, or one line with a quote that is never closed."""

    start: int
    end: int
    stray: bool = False


@cache
def _field(delimiter: str) -> re.Pattern[bytes]:
    """A quoted field; without its last group, one that is not closed within the data."""
    before = re.escape(delimiter).encode()
    return re.compile(rb"(?:\A|(?<=[\r\n" + before + rb']))"[^"]*+(?:""[^"]*+)*+(")?')


def cut(data: bytes, delimiter: str, size: int, *, final: bool) -> Iterator[Piece]:
    """Data that begins with a record, in pieces of whole records of at least `size` bytes, if there are so many.

    Unless the data is `final`, what may be the beginning of a record is left out at the end.
    """
    start = 0
    field = _field(delimiter)
    while start < len(data):
        end, stray_end = _next_end(data, field, start, start + size, final=final)
        if end > start:
            yield Piece(start, end)
        if stray_end:
            yield Piece(end, stray_end, stray=True)
        elif end < min(start + size, len(data)):
            return
        start = stray_end or end


def _next_end(data: bytes, field: re.Pattern[bytes], start: int, target: int, *, final: bool) -> tuple[int, int]:
    """The first end of a record at or behind a target, or the last before it, where there is no more.

    Where a stray quote is in between, it is the end of the records before it, with the end of its line.
    """
    end = at = start
    while True:
        found = field.search(data, at)
        opened = len(data) if found is None else found.start()
        if opened >= target and (newline := data.find(b"\n", max(target - 1, at), opened)) >= 0:
            return newline + 1, 0
        end = max(end, data.rfind(b"\n", at, opened) + 1)
        if found is None:
            return (len(data) if final else end), 0
        if _is_stray(found, len(data), final=final):
            newline = data.find(b"\n", opened)
            if newline < 0 and not final:
                return end, 0
            return end, newline + 1 or len(data)
        if found[1] is None:  # it goes on behind the data
            return end, 0
        at = found.end()


def _is_stray(found: re.Match[bytes], length: int, *, final: bool) -> bool:
    if found[1] is not None:
        return found.end() - found.start() > QUOTED_BYTES_MAX
    return final or length - found.start() > QUOTED_BYTES_MAX


def records(data: bytes, delimiter: str | None) -> list[tuple[int, bytes]]:
    """Every record that is not empty, with how many newlines are before it; slow, for where a record is wrong.

    Without a delimiter every line is one.
    """
    ends = [match.span() for match in re.finditer(_NEWLINE if delimiter else rb"\n", data)]
    if delimiter and b'"' in data:
        ends = _outside(ends, [field.span() for field in _field(delimiter).finditer(data)])
    rows: list[tuple[int, bytes]] = []
    start = newlines = 0
    for end, following in [*ends, (len(data), len(data))]:
        text = data[start:end]
        if text if delimiter else text.strip():
            rows.append((newlines, text))
        newlines += data.count(b"\n", start, following)
        start = following
    return rows


def _outside(ends: list[tuple[int, int]], inside: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those ends of lines that are in no quoted field; both are in order."""
    kept: list[tuple[int, int]] = []
    place = 0
    for end in ends:
        while place < len(inside) and inside[place][1] <= end[0]:
            place += 1
        if place == len(inside) or end[0] < inside[place][0]:
            kept.append(end)
    return kept
