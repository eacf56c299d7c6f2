"""Order by key: at most one message of a key is out at a time, and the others of the key wait for it."""

from __future__ import annotations

import heapq

from penstock.delivery.index import NO_KEY, PartitionIndex
from penstock.delivery.offsets import Offsets
from penstock.delivery.progress import Progress

_PARKED_MAX = 1_000_000


class KeyOrder:
    """Which keys are busy in one group and partition, and what waits for them."""

    __slots__ = ("_busy", "_index", "_parked", "parked_count")

    def __init__(self, index: PartitionIndex) -> None:
        self._index = index
        self._busy: dict[int, int] = {}  # key -> the offset that is leased, or waits to be tried again
        self._parked: dict[int, dict[int, list[int]]] = {}  # key -> lane -> a heap of offsets
        self.parked_count = 0

    def is_full(self) -> bool:
        """Whether so much is parked that nothing more should be looked at."""
        return self.parked_count >= _PARKED_MAX

    def claim(self, lane: int, offset: int) -> bool:
        """Take the key of a message for it; if another message has it, park this one."""
        key = self._index.key_of(offset)
        if key == NO_KEY:
            return True
        if key not in self._busy:
            self._busy[key] = offset
            return True
        heapq.heappush(self._parked.setdefault(key, {}).setdefault(lane, []), offset)
        self.parked_count += 1
        return False

    def reserve(self, offset: int) -> None:
        """Keep the key of a failed message for it, after a restart; the one that waits for longest is asked first.

        Others of its key may have failed before, and were overtaken when they could be tried again.
        """
        key = self._index.key_of(offset)
        if key != NO_KEY:
            self._busy.setdefault(key, offset)

    def free(self, offset: int, progress: Progress) -> Offsets:
        """A message is done or was given back: the first that wait for its key, one of each lane, wait no longer.

        So while a key is free, no message of it that is ready can overtake one that is still parked in its lane.
        """
        following = Offsets()
        key = self._index.key_of(offset)
        if self._busy.get(key) == offset:
            del self._busy[key]
        elif key in self._busy:
            return following
        lanes = self._parked.get(key)
        if lanes is None:
            return following
        for lane, parked in list(lanes.items()):
            while parked:
                first = heapq.heappop(parked)
                self.parked_count -= 1
                if progress.undone(Offsets([first])):
                    following.add(first)
                    break
            if not parked:
                del lanes[lane]
        if not lanes:
            del self._parked[key]
        return following

    def parked(self) -> Offsets:
        """Everything that waits for its key."""
        return Offsets(offset for lanes in self._parked.values() for heap in lanes.values() for offset in heap)
