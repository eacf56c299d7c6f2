"""Sets of offsets: compressed bitmaps in which a run of a million costs as much as one offset."""

from __future__ import annotations

from pyroaring import BitMap64 as Offsets

from penstock.model.events import Event

__all__ = ["Offsets", "first_absent", "from_range", "lowest", "offsets_of", "written"]

_STEP_FIRST, _STEP_MAX = 1 << 10, 1 << 20


def from_range(start: int, end: int) -> Offsets:
    """The offsets from `start` to before `end`."""
    found = Offsets()
    if start < end:
        found.add_range(start, end)
    return found


def lowest(offsets: Offsets, count: int) -> Offsets:
    """The first `count` of them, as a set of its own."""
    return Offsets(offsets) if len(offsets) <= count else offsets[:count]


def first_absent(offsets: Offsets, start: int) -> int:
    """The first offset at or after `start` that is not in the set."""
    if start not in offsets:
        return start
    last = int(offsets.max())
    before = offsets.rank(start - 1) if start else 0
    if last - start + 1 == len(offsets) - before:  # as most often: all from `start` on are there
        return last + 1
    step = _STEP_FIRST
    while True:
        missing = from_range(start, start + step) - offsets
        if missing:
            return int(missing.min())
        start += step
        step = min(4 * step, _STEP_MAX)


def offsets_of(event: Event) -> Offsets:
    """The offsets that an event speaks of."""
    if event.offsets is not None:
        return Offsets(event.offsets)
    return from_range(event.offset, event.offset + event.count)


def written(offsets: Offsets) -> tuple[int, int, list[int] | None]:
    """A set that is not empty as an event holds it: the first, their number, and all where they have gaps."""
    first, count = offsets.min(), len(offsets)
    if offsets.max() - first + 1 == count:
        return first, count, None
    return first, count, offsets.to_array().tolist()
