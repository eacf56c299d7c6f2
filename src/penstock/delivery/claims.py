"""What one group may take from one partition now: the volatile side of its progress.

The rule of order is one: of everything that is ready, the lowest lane, and in it the lowest offset. A cursor in
each lane stands behind what was looked at; what became ready again behind it (returned, fallen due) is kept as a
set and goes first, so a returned message keeps its place.
"""

from __future__ import annotations

from penstock.delivery.index import PartitionIndex
from penstock.delivery.keys import KeyOrder
from penstock.delivery.offsets import Offsets, from_range
from penstock.delivery.progress import Progress
from penstock.delivery.timers import Timers

_OFFSET_MAX = 2**63 - 1
_LOOK_AT_MAX = 1 << 20
_NOTHING = Offsets()


class Claims:
    """The cursors of a group in the lanes of a partition, and what is ready behind them."""

    __slots__ = (
        "_behind",
        "_cursors",
        "_floor",
        "_keys",
        "_retries",
        "_until",
        "_waiting",
        "era",
        "held",
        "index",
        "lapsing",
        "paused",
        "progress",
    )

    def __init__(self, index: PartitionIndex, progress: Progress) -> None:
        self.index = index
        self.progress = progress
        self._until = _OFFSET_MAX if progress.settings.until is None else progress.settings.until
        self.paused = 0  # how many moves of the group are under way
        self.era = 0  # grows with every move
        self.reset()

    def reset(self) -> None:
        """Begin again from the progress: what is not done and does not wait is ready."""
        self._floor = self.progress.floor
        self._cursors: dict[int, int] = {}
        self._behind: dict[int, Offsets] = {}
        self._retries: Timers | None = None
        self._waiting = Offsets()
        self._keys = KeyOrder(self.index) if self.index.by_key else None
        self.held = 0  # leased, or finished and not committed yet
        self.lapsing = self.index.lapsed & self.progress.pending(self.end())
        for offset, due_us in sorted(self.progress.waiting.items(), key=lambda item: -item[1]):
            if offset not in self.lapsing:
                self.retry_at(Offsets([offset]), due_us)
            if self._keys is not None:
                self._keys.reserve(offset)

    @property
    def by_key(self) -> bool:
        """Whether the messages of a key wait for each other."""
        return self._keys is not None

    def lanes(self) -> list[int]:
        """The lanes in which something may be ready, best first."""
        if self.paused:
            return []
        return [lane for lane, known in self.index.lanes.items() if self._behind.get(lane) or self._ahead(lane, known)]

    def take(self, lane: int, count: int) -> Offsets:
        """The first `count` ready messages of a lane; they are held from now on."""
        taken = self._take_by_key(lane, count) if self._keys is not None else self._take(lane, count)
        self.held += len(taken)
        return taken

    def ready(self) -> int:
        """How many messages are ready now, counted from the structures that deliveries are taken from."""
        ahead = sum(len(self._unseen(lane, known)) for lane, known in self.index.lanes.items())
        parked = 0 if self._keys is None else len(self.progress.undone(self._keys.parked()))
        return ahead + parked + sum(map(len, self._behind.values()))

    def ready_by_lane(self) -> dict[int, int]:
        """The same, lane by lane."""
        counts = {lane: len(self._unseen(lane, known)) for lane, known in self.index.lanes.items()}
        parked = Offsets() if self._keys is None else self.progress.undone(self._keys.parked())
        for lane, some in (*self._behind.items(), *self.index.split_by_lane(parked)):
            counts[lane] = counts.get(lane, 0) + len(some)
        return counts

    def waiting(self) -> int:
        """How many failed and wait to be tried again."""
        return len(self._waiting)

    def delayed(self) -> int:
        """How many are not due yet."""
        if not self.index.hidden:
            return 0
        return len(self.index.hidden & self.progress.pending(self.end()) - self.index.lapsed)

    def unknown(self) -> int:
        """How many are neither done nor there: a repair lost them."""
        return len(self.index.holes & self.progress.pending(self.end())) if self.index.holes else 0

    def give_back(self, offsets: Offsets) -> None:
        """They are ready again, each in its lane and place."""
        self._free_keys(offsets)
        self._make_ready(offsets)

    def show(self, due: Offsets) -> None:
        """Delayed messages fell due."""
        self._make_ready(due & self.progress.pending(self.end()))

    def retry_at(self, offsets: Offsets, due_us: int) -> None:
        """They failed and wait."""
        if self._retries is None:
            self._retries = Timers()
        offsets = self.progress.undone(offsets)
        self._waiting |= offsets
        for offset in offsets:
            self._retries.add(offset, due_us)

    def retry(self, now_us: int) -> None:
        """What has waited long enough is ready again."""
        if self._retries is None:
            return
        waiting = self.progress.waiting
        over = Offsets(offset for due_us, offset in self._retries.pop_due(now_us) if waiting.get(offset) == due_us)
        over &= self._waiting
        if over:
            self._waiting -= over
            self.give_back(over)

    def next_time_us(self) -> int | None:
        """When something that waits may be ready."""
        return self._retries.next_due_us if self._retries is not None else None

    def lapse(self, ended: Offsets) -> None:
        """Their time to live is over: nothing of it that is not held may be taken any more."""
        for lane, inside in self.index.split_by_lane(ended & self.progress.pending(self.end())):
            ready = inside & (self._waiting | self.index.hidden)
            ready |= inside - from_range(0, self._cursors.get(lane, self._floor))
            behind = self._behind.get(lane)
            if behind and (returned := inside & behind):
                ready |= returned
                behind.difference_update(returned)
                self._free_keys(returned)
            self._waiting -= ready
            self.lapsing |= ready

    def withdraw(self, offsets: Offsets) -> None:
        """They are done for everybody."""
        for behind in self._behind.values():
            behind.difference_update(offsets)
        self._waiting -= offsets
        self.lapsing -= offsets
        self.finished(offsets)

    def finished(self, offsets: Offsets) -> None:
        """They are done: the next of their keys may go."""
        self._free_keys(offsets)

    def _free_keys(self, offsets: Offsets) -> None:
        """They are not out any more: the first that waits for each of their keys is ready, in every lane."""
        if self._keys is None:
            return
        ready, freed = Offsets(), list(offsets)
        while freed:
            following = self._keys.free(freed.pop(), self.progress)
            ready |= following
            freed += following & self.index.lapsed  # others may go in their place
        self._make_ready(ready)

    def _make_ready(self, offsets: Offsets) -> None:
        """What a cursor has passed is ready behind it; what is ahead of it will be found there."""
        offsets = self.progress.undone(offsets)
        if self.index.lapsed and (ended := offsets & self.index.lapsed):
            self.lapsing |= ended
            offsets = offsets - ended
        for lane, inside in self.index.split_by_lane(offsets):
            passed = inside & from_range(0, self._cursors.get(lane, self._floor))
            if passed:
                self._behind[lane] = passed | self._behind.get(lane, _NOTHING)

    def end(self) -> int:
        """Behind everything that concerns the group."""
        return min(self._until, self.index.end)

    def _ahead(self, lane: int, known: Offsets) -> bool:
        """Whether the cursor of a lane may have something before it."""
        cursor = self._cursors.get(lane, self._floor)
        found = known.next_set_bit(cursor) if known and known.max() >= cursor else None
        return found is not None and found < self._until

    def _unseen(self, lane: int, known: Offsets) -> Offsets:
        """What is ready before the cursor of a lane."""
        found = known & from_range(self._cursors.get(lane, self._floor), self.end())
        return self._without_unready(found)

    def _without_unready(self, found: Offsets) -> Offsets:
        progress, index = self.progress, self.index
        if found and found.min() < progress.floor:
            found.remove_range(0, progress.floor)
        if progress.done:
            found -= progress.done
        if index.hidden:
            found -= index.hidden
        if index.lapsed:
            found -= index.lapsed
        if self._waiting:
            found -= self._waiting
        return found

    def _take(self, lane: int, count: int) -> Offsets:
        taken = self._take_behind(lane, count)
        known = self.index.lanes[lane]
        while len(taken) < count and (found := self._next(lane, known, count - len(taken))):
            taken |= found
        return taken

    def _take_behind(self, lane: int, count: int) -> Offsets:
        behind = self._behind.get(lane)
        if not behind:
            return Offsets()
        if len(behind) <= count:
            del self._behind[lane]
            return behind
        taken = behind[:count]
        behind -= taken
        return taken

    def _next(self, lane: int, known: Offsets, count: int) -> Offsets | None:
        """The next ready messages from the cursor on, which moves behind them; None at the end of the lane."""
        look_at = count
        while True:
            cursor = self._cursors.get(lane, self._floor)
            if not known or known.max() < cursor:
                return None
            rank = known.rank(cursor - 1) if cursor else 0
            seen = known[rank : rank + look_at]
            if seen.max() >= self._until:
                seen.remove_range(self._until, _OFFSET_MAX)
                if not seen:
                    return None
            end = seen.max() + 1
            found = self._without_unready(seen)
            if len(found) > count:
                found = found[:count]
                end = found.max() + 1
            self._cursors[lane] = end
            if found:
                return found
            look_at = min(2 * look_at + 64, _LOOK_AT_MAX)  # nothing here is ready: it may be long until something is

    def _take_by_key(self, lane: int, count: int) -> Offsets:
        """As `_take`, but only messages whose key nobody holds; the others are parked until it is free."""
        keys = self._keys
        assert keys is not None
        taken: list[int] = []
        while len(taken) < count:
            found = self._take_behind(lane, count - len(taken))
            if not found and not keys.is_full():
                found = self._next(lane, self.index.lanes[lane], count - len(taken)) or found
            if not found:
                break
            taken += [offset for offset in found if keys.claim(lane, offset)]
        return Offsets(taken)
