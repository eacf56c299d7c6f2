"""The names of the producers of a batch: stored once for each run of rows, not for each message.

Names are a list of (first row, name): each is valid from its row up to the next one. Rows before the first have none.

>>> names = [(0, "shop"), (3, None), (5, "till-1")]
>>> name_at(names, 2), name_at(names, 4), name_at(names, 9)
('shop', None, 'till-1')
>>> names_between(names, 4, 6), names_of(names, [5, 0, 1])
([(1, 'till-1')], [(0, 'till-1'), (1, 'shop')])
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

Names = list[tuple[int, str | None]]

_RANDOM_ID_LENGTH = 32
_HEXADECIMAL = "0123456789abcdef"


def name_of_producer(producer: str) -> str | None:
    """The name of a producer; None if it is a random id, such as clients use to number requests."""
    is_random = len(producer) == _RANDOM_ID_LENGTH and not producer.strip(_HEXADECIMAL)
    return None if is_random else producer


def name_at(names: Names | None, row: int) -> str | None:
    """The name of a row."""
    place = bisect_right(names, row, key=itemgetter(0)) if names else 0
    return names[place - 1][1] if names and place else None


def names_between(names: Names | None, start: int, end: int) -> Names | None:
    """The names of the rows from `start` to before `end`."""
    if names is None or (len(names) == 1 and not names[0][0]):
        return names
    later = [(row - start, name) for row, name in names if start < row < end]
    return joined_names([([(0, name_at(names, start)), *later], end - start)])


def names_of(names: Names | None, rows: Sequence[int]) -> Names | None:
    """The names of some rows, in the given order."""
    if names is None or (len(names) == 1 and not names[0][0]):
        return names
    return joined_names([([(place, name_at(names, row)) for place, row in enumerate(rows)], len(rows))])


def joined_names(parts: Iterable[tuple[Names | None, int]]) -> Names | None:
    """The names of several batches, each with its number of rows, as those of one."""
    whole: Names = []
    last: str | None = None
    base = 0
    for names, count in parts:
        before = [(0, None)] if not names or names[0][0] else []
        for row, name in (*before, *(names or ())):
            if name != last:
                whole.append((base + row, name))
                last = name
        base += count
    return whole or None
