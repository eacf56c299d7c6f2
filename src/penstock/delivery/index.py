"""What one partition has for delivery, the same for all its groups: which lane each message is in, and from when.

Derived from the message log alone (and the times that messages were moved to), so it is built when a group first
needs it and never written down. Publishing a batch of one priority adds one run to one lane.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import compress

from penstock.delivery.offsets import Offsets, from_range
from penstock.delivery.partition import PartitionState
from penstock.delivery.timers import Timers

NO_KEY = -1
"""Stands for no key: a number that `hash` never gives."""


class Columns:
    """What delivery must know of a run of messages; a column is None where it says nothing."""

    __slots__ = ("base", "count", "deliver_at", "expires_at", "keys", "priorities", "priority")

    def __init__(
        self,
        base: int,
        count: int,
        priority: int,
        priorities: bytes | None = None,
        deliver_at: Sequence[int] | None = None,
        expires_at: Sequence[int] | None = None,
        keys: Sequence[bytes | None] | None = None,
    ) -> None:
        self.base, self.count, self.priority, self.priorities = base, count, priority, priorities
        self.deliver_at, self.expires_at, self.keys = deliver_at, expires_at, keys


class PartitionIndex:
    """The lanes of a partition, what is not due yet, and what is not wanted any more."""

    __slots__ = (
        "_delays",
        "_expiries",
        "_key_bases",
        "_key_hashes",
        "_made_us",
        "_state",
        "_undecided",
        "by_key",
        "end",
        "hidden",
        "holes",
        "lanes",
        "lapsed",
        "on_due",
        "start",
    )

    def __init__(self, start: int, state: PartitionState, by_key: bool = False, now_us: int = 0) -> None:
        self._state = state
        self._made_us = now_us
        self.by_key = by_key
        self.start = self.end = start
        self.lanes: dict[int, Offsets] = {}
        self.holes = Offsets()  # nothing is known of them: a repair lost them, or they are gone
        self.hidden = Offsets()  # delayed, and not due
        self._undecided = Offsets()  # of these, what is being cancelled or moved
        self.lapsed = Offsets()  # their time to live has ended
        self.on_due: Callable[[int, list[int]], None] | None = None  # is told the times of what fell due, and when
        self._delays: Timers | None = None
        self._expiries: Timers | None = None
        self._key_bases: list[int] = []
        self._key_hashes: list[array[int] | None] = []

    def add(self, columns: Columns) -> None:
        """Take in the next messages; offsets that nothing is known of are skipped."""
        base, end = columns.base, columns.base + columns.count
        if base > self.end:
            self.holes.add_range(self.end, base)
        if columns.priorities is None:
            self._lane(columns.priority).add_range(base, end)
        else:
            for lane in set(columns.priorities):
                inside = columns.priorities.translate(_only(lane))
                self._lane(lane).update(compress(range(base, end), inside))
        if columns.deliver_at is not None:
            self._delay(base, columns.deliver_at)
        if columns.expires_at is not None:
            if self._expiries is None:
                self._expiries = Timers(self._made_us)
            self._expiries.add_many(base, columns.expires_at)
        if self.by_key:
            self._key_bases.append(base)
            self._key_hashes.append(None if columns.keys is None else _key_numbers(columns.keys))
        self.end = max(self.end, end)

    def reach(self, end: int) -> None:
        """The log ends here, whatever is known of its last messages."""
        if end > self.end:
            self.holes.add_range(self.end, end)
            self.end = end

    def add_below(self, older: list[Columns]) -> None:
        """Take in messages from before the start: a replay reads them from the archive."""
        bases, hashes = self._key_bases, self._key_hashes
        self._key_bases, self._key_hashes = [], []
        for columns in older:
            self.add(columns)
            self.start = min(self.start, columns.base)
        self._key_bases += bases
        self._key_hashes += hashes

    def split_by_lane(self, offsets: Offsets) -> list[tuple[int, Offsets]]:
        """The same offsets, lane by lane; those that are gone from the log are left out."""
        if len(self.lanes) == 1:
            ((lane, known),) = self.lanes.items()
            return [(lane, offsets & known)]
        return [(lane, inside) for lane, known in self.lanes.items() if (inside := offsets & known)]

    def key_of(self, offset: int) -> int:
        """A number that stands for the message's key; NO_KEY: it has none."""
        place = bisect_right(self._key_bases, offset) - 1
        hashes = self._key_hashes[place] if place >= 0 else None
        return NO_KEY if hashes is None else hashes[offset - self._key_bases[place]]

    # Time.

    def fall_due(self, now_us: int) -> Offsets:
        """The delayed messages whose time has come, unless they lapsed before; they are in their lanes from now on."""
        due, times_us = Offsets(), list[int]()
        for due_us, offset in self._delays.pop_due(now_us) if self._delays is not None else ():
            if offset in self.hidden and self._state.moved.get(offset, due_us) == due_us:
                due.add(offset)
                if due_us > self._made_us:  # what was due before is not late: nobody wanted it
                    times_us.append(due_us)
        if times_us and self.on_due is not None:
            self.on_due(now_us, times_us)
        due -= self._undecided
        due -= self.lapsed
        self.hidden -= due
        return due

    def lapse(self, now_us: int) -> Offsets:
        """The messages whose time to live has ended by now, and had not before."""
        ended = (
            Offsets(offset for _, offset in self._expiries.pop_due(now_us)) if self._expiries is not None else Offsets()
        )
        self.lapsed |= ended
        return ended

    def next_time_us(self) -> int | None:
        """When to look again: nothing changes before."""
        times = [timers.next_due_us for timers in (self._delays, self._expiries) if timers is not None]
        return min((time_us for time_us in times if time_us is not None), default=None)

    def delayed(self, from_us: int = 0) -> Iterator[tuple[int, int]]:
        """What is not due yet: (time, offset), in the order of the times; those before a time may be left out."""
        moved, before = self._state.moved, (-1, -1)
        for entry in self._delays.entries(from_us) if self._delays is not None else ():
            due_us, offset = entry
            if entry != before and offset in self.hidden and moved.get(offset, due_us) == due_us:
                yield entry
            before = entry

    def is_delayed(self, offset: int) -> bool:
        """Whether it is not due yet, and nobody is deciding otherwise."""
        return offset in self.hidden and offset not in self._undecided and offset not in self.lapsed

    def hold(self, offset: int) -> bool:
        """Keep a delayed message from falling due while its fate is being decided; whether it was delayed."""
        if not self.is_delayed(offset):
            return False
        self._undecided.add(offset)
        return True

    def delay_again(self, offset: int, due_us: int) -> None:
        """Give a message that was held a time to fall due."""
        assert self._delays is not None
        self._undecided.discard(offset)
        self._delays.add(offset, due_us)

    def uncover(self, offsets: Offsets) -> None:
        """They will never fall due."""
        self.hidden -= offsets
        self._undecided -= offsets

    def _lane(self, lane: int) -> Offsets:
        known = self.lanes.get(lane)
        if known is None:
            known = Offsets()
            self.lanes = dict(sorted([*self.lanes.items(), (lane, known)]))
        return known

    def _delay(self, base: int, dues_us: Sequence[int]) -> None:
        if self._delays is None:
            self._delays = Timers(self._made_us)
        if self._state.moved or self._state.withdrawn:
            dues_us = [
                0 if offset in self._state.withdrawn else self._state.moved.get(offset, due_us)
                for offset, due_us in enumerate(dues_us, base)
            ]
        self._delays.add_many(base, dues_us)
        if 0 in dues_us:
            self.hidden.update([offset for offset, due_us in enumerate(dues_us, base) if due_us])
        else:
            self.hidden |= from_range(base, base + len(dues_us))

    def forget(self, offsets: Offsets) -> None:
        """They are gone from the log."""
        for known in (*self.lanes.values(), self.hidden, self.lapsed):
            known.difference_update(offsets)
        self.start = max(self.start, min((lane.min() for lane in self.lanes.values() if lane), default=self.end))
        while self._key_bases[1:] and self._key_bases[1] <= self.start:
            del self._key_bases[0], self._key_hashes[0]


@cache
def _only(lane: int) -> bytes:
    """A table that translates one priority to 1 and all others to 0."""
    return bytes(number == lane for number in range(256))


def _key_numbers(keys: Sequence[bytes | None]) -> array[int]:
    """A number for each key: 61 bits that are the same in every process, as `hash` of bytes is not."""
    if None in keys:
        return array("q", [NO_KEY if key is None else hash(int.from_bytes(key)) for key in keys])
    return array("q", map(hash, map(int.from_bytes, keys)))  # type: ignore[arg-type]
