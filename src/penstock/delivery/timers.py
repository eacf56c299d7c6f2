"""When things fall due: a wheel of packed buckets that holds millions of timers in a few bytes each."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

NEAR_BITS = 17  # a near bucket is 131 ms wide
FAR_BITS = 32  # a far bucket is 71 minutes wide
AHEAD_US = 1 << (FAR_BITS - 2)  # how long before its start a far bucket begins to be split into near ones
SLICE = 2048  # how many entries one pop splits ahead of time
PACKED_MIN = 16  # fewer entries are quicker added one by one

Bucket: TypeAlias = "array[int]"  # due, offset, due, offset, …
Rows: TypeAlias = list[tuple[int, int]]  # (due, offset), in order


class Timers:
    """Which offsets fall due when, in integer µs of wall time (never negative).

    Nothing can be taken out before it is due: owners cancel lazily, by checking each entry when it fires.

    Entries wait unsorted, near ones in narrow buckets and far ones in wide buckets; a bucket is sorted when
    its time comes. No part relies on time going forward only: an entry may be in a near bucket or in the far
    bucket around it, and a far bucket is always split before any of its time is popped.
    """

    __slots__ = (
        "_earliest_us",
        "_far",
        "_far_order",
        "_near",
        "_near_end_us",
        "_near_order",
        "_now_us",
        "_opened",
        "_size",
    )

    def __init__(self, now_us: int = 0) -> None:
        self._near: dict[int, Bucket] = {}
        self._opened: dict[int, Rows] = {}  # what is left of near buckets that were popped in part
        self._near_order: list[int] = []  # heap of the numbers in `_near` or `_opened`
        self._far: dict[int, Bucket] = {}
        self._far_order: list[int] = []  # heap of the numbers in `_far`
        self._earliest_us: int | None = None  # no near entry is due before this; None where it is not known
        self._size = 0
        self._set_now(now_us)

    def __len__(self) -> int:
        return self._size

    def add(self, offset: int, due_us: int) -> None:
        """Let an offset fall due; at the next pop if that time has passed."""
        bucket = self._bucket(due_us)
        bucket.append(due_us)
        bucket.append(offset)
        self._size += 1
        self._note_earliest(due_us)

    def add_many(self, base: int, dues_us: Sequence[int]) -> None:
        """Let the offsets from `base` on fall due, one for each of the times; a time of 0 stands for none."""
        low = min(dues_us, default=0)
        if low and len(dues_us) >= PACKED_MIN and self._in_one_bucket(low, dues_us):
            self._bucket(low).extend(_packed(base, dues_us))
            self._size += len(dues_us)
        else:
            self._add_each(base, dues_us)
            self._size += len(dues_us) - dues_us.count(0)
            low = low or min(filter(None, dues_us), default=0)
        if low:
            self._note_earliest(low)

    def pop_due(self, now_us: int) -> Rows:
        """Take out what is due by now, as (due, offset) in order."""
        self._set_now(now_us)
        due: Rows = []
        while self._far_order and self._far_order[0] <= now_us >> FAR_BITS:
            number = heappop(self._far_order)
            self._split(self._far.pop(number))
            self._take(min(now_us, ((number + 1) << FAR_BITS) - 1), due)
        self._take(now_us, due)
        self._split_ahead()
        if due:
            self._size -= len(due)
            self._earliest_us = None
        return due

    @property
    def next_due_us(self) -> int | None:
        """When to pop next: nothing falls due before. None if there is nothing.

        This is the earliest due if that is near. It can be sooner while far entries remain, so that they are
        sorted bit by bit rather than all at once; a pop at this time always moves it on.
        """
        wakes = [wake for wake in (self._near_due_us(), self._far_wake_us()) if wake is not None]
        return min(wakes, default=None)

    def entries(self, from_us: int = 0) -> Iterator[tuple[int, int]]:
        """All (due, offset) in order, sorted bucket by bucket as each is reached, but not all from before a time."""
        order = sorted(self._near_order)
        for far_number in sorted({number >> (FAR_BITS - NEAR_BITS) for number in order} | self._far.keys()):
            if far_number < from_us >> FAR_BITS:
                continue
            first, end = (number << (FAR_BITS - NEAR_BITS) for number in (far_number, far_number + 1))
            parts: dict[int, Bucket] = {}
            _scatter(self._far.get(far_number, array("Q")), parts)
            for number in sorted(parts.keys() | set(order[bisect_left(order, first) : bisect_left(order, end)])):
                if number < from_us >> NEAR_BITS:
                    continue
                rows = list(self._opened.get(number, ()))
                for buckets in (self._near, parts):
                    if number in buckets:
                        rows += _rows(buckets[number])
                rows.sort()
                yield from rows

    def _set_now(self, now_us: int) -> None:
        self._now_us = now_us
        self._near_end_us = (((now_us + AHEAD_US) >> FAR_BITS) + 1) << FAR_BITS

    def _note_earliest(self, due_us: int) -> None:
        if self._earliest_us is not None and due_us < self._earliest_us:
            self._earliest_us = due_us

    def _bucket(self, due_us: int) -> Bucket:
        """The bucket for a time, which the caller must not leave empty."""
        if due_us < self._near_end_us:
            number = due_us >> NEAR_BITS
            bucket = self._near.get(number)
            if bucket is None:
                bucket = self._near[number] = array("Q")
                self._note_new(number)
            return bucket
        number = due_us >> FAR_BITS
        bucket = self._far.get(number)
        if bucket is None:
            bucket = self._far[number] = array("Q")
            heappush(self._far_order, number)
        return bucket

    def _note_new(self, number: int) -> None:
        if number not in self._opened:
            heappush(self._near_order, number)

    def _in_one_bucket(self, low_us: int, dues_us: Sequence[int]) -> bool:
        bits = NEAR_BITS if low_us < self._near_end_us else FAR_BITS
        number = low_us >> bits
        return dues_us[0] >> bits == number == dues_us[-1] >> bits and max(dues_us) >> bits == number

    def _add_each(self, base: int, dues_us: Sequence[int]) -> None:
        near_end_us, near, far = self._near_end_us, self._near.get, self._far.get
        for offset, due_us in enumerate(dues_us, base):
            if not due_us:
                continue
            bucket = near(due_us >> NEAR_BITS) if due_us < near_end_us else far(due_us >> FAR_BITS)
            if bucket is None:
                bucket = self._bucket(due_us)
            bucket.append(due_us)
            bucket.append(offset)

    def _take(self, until_us: int, due: Rows) -> None:
        """Move the near entries that are due by then to the end of `due`."""
        order, current = self._near_order, until_us >> NEAR_BITS
        while order and order[0] < current:
            due += self._open(heappop(order))
        if order and order[0] == current:
            rows = self._open(current)
            count = bisect_left(rows, (until_us + 1, 0))
            due += rows[:count]
            del rows[:count]
            if rows:
                self._opened[current] = rows
            else:
                heappop(order)

    def _open(self, number: int) -> Rows:
        """Take out all of a near bucket, sorted."""
        rows = self._opened.pop(number, [])
        if number in self._near:
            rows += _rows(self._near.pop(number))
            rows.sort()
        return rows

    def _split(self, block: Bucket) -> None:
        """Put far entries into near buckets."""
        for number in _scatter(block, self._near):
            self._note_new(number)
        self._earliest_us = None

    def _split_ahead(self) -> None:
        """Split a slice of the next far bucket if its time is near, so that little is left when it starts."""
        if self._far_order and self._far_order[0] << FAR_BITS < self._near_end_us:
            bucket = self._far[self._far_order[0]]
            self._split(bucket[-2 * SLICE :])
            del bucket[-2 * SLICE :]
            if not bucket:
                del self._far[heappop(self._far_order)]

    def _near_due_us(self) -> int | None:
        if self._earliest_us is None and self._near_order:
            number = self._near_order[0]
            opened, waiting = self._opened.get(number), self._near.get(number)
            firsts = [opened[0][0]] if opened else []
            if waiting:
                firsts.append(min(waiting[::2]))
            self._earliest_us = min(firsts)
        return self._earliest_us

    def _far_wake_us(self) -> int | None:
        """When the next slice of far entries should be split to be done by their start, which may come first."""
        if not self._far_order:
            return None
        start_us = self._far_order[0] << FAR_BITS
        slices = len(self._far[self._far_order[0]]) // (2 * SLICE)
        if not slices:
            return start_us
        begin_us = max(start_us - AHEAD_US, self._now_us)
        return begin_us + (start_us - begin_us) // (slices + 1)


def _packed(base: int, dues_us: Sequence[int]) -> Bucket:
    """A block of the offsets from `base` on."""
    block = array("Q", bytes(16 * len(dues_us)))
    block[::2] = array("Q", dues_us)
    block[1::2] = array("Q", range(base, base + len(dues_us)))
    return block


def _rows(bucket: Bucket) -> Iterator[tuple[int, int]]:
    return zip(bucket[::2], bucket[1::2], strict=True)


def _scatter(block: Bucket, buckets: dict[int, Bucket]) -> list[int]:
    """Put the entries of a block into near buckets; the numbers of those that are new."""
    new: list[int] = []
    for due_us, offset in _rows(block):
        bucket = buckets.get(due_us >> NEAR_BITS)
        if bucket is None:
            number = due_us >> NEAR_BITS
            bucket = buckets[number] = array("Q")
            new.append(number)
        bucket.append(due_us)
        bucket.append(offset)
    return new
