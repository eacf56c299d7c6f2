"""Order by key: at most one message of a key is out at a time, and the others of the key wait for it."""

from __future__ import annotations

import heapq

from penstock.delivery.index import PartitionIndex
from penstock.delivery.offsets import Offsets

_PARKED_MAX = 1_000_000
_LANE_SHIFT = 56


class KeyOrder:
    """Which keys are busy in one group and partition, and what waits for them."""

    __slots__ = ("_busy", "_index", "_parked", "parked_count")

    def __init__(self, index: PartitionIndex) -> None:
        self._index = index
        self._busy: dict[int, int] = {}  # key -> the offset that is leased, or waits to be tried again
        self._parked: dict[int, list[int]] = {}  # key -> a heap of lanes with offsets
        self.parked_count = 0

    def is_full(self) -> bool:
        """Whether so much is parked that nothing more should be looked at."""
        return self.parked_count >= _PARKED_MAX

    def claim(self, lane: int, offset: int) -> bool:
        """Take the key of a message for it; if another message has it, park this one."""
        key = self._index.key_of(offset)
        if not key:
            return True
        if key not in self._busy:
            self._busy[key] = offset
            return True
        heapq.heappush(self._parked.setdefault(key, []), lane << _LANE_SHIFT | offset)
        self.parked_count += 1
        return False

    def free(self, offset: int) -> None:
        """A message was given back: its key is free, and it is the first to take it again."""
        key = self._index.key_of(offset)
        if self._busy.get(key) == offset:
            del self._busy[key]

    def finish(self, offset: int, done: Offsets) -> int | None:
        """A message is done: the offset of the one of its key that may go next."""
        key = self._index.key_of(offset)
        if self._busy.get(key) == offset:
            del self._busy[key]
        elif key in self._busy:
            return None
        parked = self._parked.get(key)
        following: int | None = None
        while parked and following is None:
            following = heapq.heappop(parked) & (1 << _LANE_SHIFT) - 1
            self.parked_count -= 1
            if following in done:
                following = None
        if parked is not None and not parked:
            del self._parked[key]
        return following

    def parked(self) -> Offsets:
        """Everything that waits for its key."""
        return Offsets(entry & (1 << _LANE_SHIFT) - 1 for heap in self._parked.values() for entry in heap)
