"""A part of a log: by offset, by time, or both; and the rows found in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.batch import Batch
from penstock.model.units import TIME_US_MAX

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


class Rows(NamedTuple):
    """Messages with their places: a batch as it is read."""

    offsets: Sequence[int]
    timestamps_us: Sequence[int]
    batch: Batch
