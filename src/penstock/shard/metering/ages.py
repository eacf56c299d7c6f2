"""When messages were published, from what is in memory: the places of blocks, and the infos of segments.

A block in the journal has one time, and that is exact. Of a segment the lowest and the highest time are known: those
between are taken to lie in proportion to their offsets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

from penstock.log.partition_log import Log
from penstock.model.stored import SegmentInfo

_BLOCKS_MAX = 64  # how many blocks of one run are looked at: those in between are as old as their neighbours
_end = attrgetter("end")


Published = tuple[int, int, int]
"""Messages of one time: that time in µs, their number, and their bytes by their share of the block or segment."""


def published(log: Log, first: int, last: int, offsets: Sequence[int] | None = None) -> list[Published]:
    """When the messages from `first` to `last` were published, or only those at `offsets`, ascending.

    Messages that were removed are left out.
    """
    settled_end = log.settled_end
    found = _settled(log, first, last, offsets) if first < settled_end else []
    place = log.find(max(first, settled_end)) if last >= settled_end else len(log)
    if place >= len(log):
        return found
    block = log.block(place)
    end = place + 1 if block.end > last else min(log.find(last) + 1, len(log))
    step = 1 + (end - place) // _BLOCKS_MAX
    while True:
        behind = block.end if step == 1 else log.block(min(place + step, end) - 1).end
        inside = _inside(block.base, behind, first, last, offsets)
        if inside > 0:
            found.append((block.timestamp_us, inside, block.length * inside // (block.count or 1)))
        place += step
        if place >= end:
            return found
        block = log.block(place)


def _settled(log: Log, first: int, last: int, offsets: Sequence[int] | None) -> list[Published]:
    found: list[Published] = []
    for place in range(bisect_right(log.segments, first, key=_end), len(log.segments)):
        segment = log.segments[place]
        if segment.base > last:
            break
        inside = _inside(segment.base, segment.end, first, last, offsets)
        if inside > 0:
            middle = (max(first, segment.base) + min(last, segment.end - 1)) // 2
            found.append((_time_us(segment, middle), inside, segment.size_bytes * inside // (segment.rows or 1)))
    return found


def published_us(log: Log, offset: int) -> int | None:
    """When the message at an offset was published, or the next one that is there; None without any."""
    if offset < log.settled_end:
        place = bisect_right(log.segments, offset, key=_end)
        if place < len(log.segments):
            return _time_us(log.segments[place], max(offset, log.segments[place].base))
    place = log.find(offset)
    return log.block(place).timestamp_us if place < len(log) else None


def _inside(base: int, end: int, first: int, last: int, offsets: Sequence[int] | None) -> int:
    """How many of them are from `base` to before `end`; 0 or less if none is."""
    if offsets is None:
        return (end if end <= last else last + 1) - (base if base > first else first)
    return bisect_left(offsets, end) - bisect_left(offsets, base)


def _time_us(segment: SegmentInfo, offset: int) -> int:
    width = max(1, segment.end - segment.base - 1)
    return segment.first_us + (segment.last_us - segment.first_us) * (offset - segment.base) // width
