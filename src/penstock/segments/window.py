"""A part of a log: by offset, by time, or both; and the rows found in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.batch import Batch
from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument
from penstock.model.units import TIME_US_MAX, Time, parse_time_us

OFFSET_MAX = 2**63 - 1


class Window:
    """What to read: offsets from `start` to before `end`, timestamps from `from_us` to before `to_us`."""

    __slots__ = ("end", "from_us", "start", "to_us")

    def __init__(self, start: int = 0, end: int = OFFSET_MAX, from_us: int = 0, to_us: int = TIME_US_MAX + 1) -> None:
        self.start, self.end, self.from_us, self.to_us = start, end, from_us, to_us

    @property
    def timed(self) -> bool:
        """Whether the timestamps matter."""
        return self.from_us > 0 or self.to_us <= TIME_US_MAX

    def meets(self, first: int, last: int, first_us: int, last_us: int) -> bool:
        """Whether rows with these lowest and highest offsets and timestamps may be inside."""
        return first < self.end and last >= self.start and first_us < self.to_us and last_us >= self.from_us


def parse_window(offset: object, from_time: Time | None, to_time: Time | None) -> Window:
    """What a caller wants to read: from an offset on, and between two times, where they are given."""
    if offset is not None and (not isinstance(offset, int) or isinstance(offset, bool) or offset < 0):
        raise InvalidArgument(f"{shown(offset)} is not an offset: they are whole numbers from 0")
    window = Window(start=offset or 0)
    if from_time is not None:
        window.from_us = parse_time_us(from_time)
    if to_time is not None:
        window.to_us = parse_time_us(to_time)
    return window


class Rows(NamedTuple):
    """Messages with their places: a batch as it is read."""

    offsets: Sequence[int]
    timestamps_us: Sequence[int]
    batch: Batch
