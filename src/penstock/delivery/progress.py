"""How far one group is with one partition: the part of delivery that is durable.

Folded from events and from nothing else, so that a restart finds it again: what is done, how often the rest was
delivered and failed, and what waits for another try. Leases are not here: they end with the process.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.delivery.offsets import Offsets, first_absent, from_range, offsets_of
from penstock.model.events import Event, EventKind
from penstock.model.group_settings import GroupSettings

_ONCE = (1, 0)
_NEVER = (0, 0)
_REASONS = {
    EventKind.ACKED: "acked",
    EventKind.DEAD: "dead",
    EventKind.LAPSED: "lapsed",
    EventKind.SKIPPED: "skipped",
}


_encode = msgspec.msgpack.Encoder().encode


class Tally(msgspec.Struct, array_like=True):
    """How many messages are done, by the reason."""

    acked: int = 0
    dead: int = 0
    lapsed: int = 0
    skipped: int = 0
    withdrawn: int = 0
    """Cancelled, purged or redriven for all groups."""
    lost: int = 0
    """Removed by retention before anyone had acked them."""

    def total(self) -> int:
        """All that are done."""
        return self.acked + self.dead + self.lapsed + self.skipped + self.withdrawn + self.lost


class ProgressState(msgspec.Struct, array_like=True):
    """Progress as the checkpoint keeps it."""

    start: int
    floor: int
    done: bytes
    dead: bytes
    touched: bytes
    counts: list[tuple[int, int, int]]
    waiting: list[tuple[int, int]]
    tally: Tally
    settings: GroupSettings


class Progress:
    """What one group has done with one partition."""

    __slots__ = ("counts", "dead", "done", "floor", "noted", "settings", "start", "tally", "touched", "waiting")

    def __init__(self, start: int, settings: GroupSettings) -> None:
        self.settings = settings
        self.begin(start)

    def begin(self, start: int) -> None:
        """Start at an offset, with everything from there on still to be done."""
        self.noted: msgspec.Raw | None = None  # as the last checkpoint has it, until it changes
        self.start = self.floor = start
        self.done = Offsets()  # from the floor on; everything below the floor is done
        self.dead = Offsets()
        self.touched = Offsets()  # delivered at least once, and not done
        self.counts: dict[int, tuple[int, int]] = {}  # (deliveries, failures) where they are not (1, 0)
        self.waiting: dict[int, int] = {}  # failed, and when to try again
        self.tally = Tally()

    def apply(self, event: Event) -> None:
        """Take in what happened; the only way in which this changes."""
        self.noted = None
        if event.offsets is None and self._apply_to_run(event):
            return
        offsets = offsets_of(event)
        match event.kind:
            case EventKind.DELIVERED:
                self._delivered(offsets, event.attempt)
            case EventKind.ACKED | EventKind.DEAD | EventKind.LAPSED | EventKind.SKIPPED:
                self.finish(offsets, _REASONS[event.kind])
            case EventKind.FAILED | EventKind.EXPIRED:
                self._failed(offsets, event.due_us)
            case EventKind.REDRIVEN:
                self._reopen(offsets)

    def _apply_to_run(self, event: Event) -> bool:
        """As below, for the ordinary life of a run of messages, with no set made for it; whether this was that."""
        first, end, kind = event.offset, event.offset + event.count, event.kind
        if first < self.floor or first >= end or self.counts or self.waiting or self.within(end) < end:
            return False
        if self.done and (end - first > 1 or first in self.done):
            return False
        if kind is EventKind.DELIVERED and event.attempt <= 1:
            self.touched.add_range(first, end)
            return True
        if kind is EventKind.ACKED:
            self.tally.acked += end - first
            self.touched.remove_range(first, end)
            if first == self.floor and not self.done:
                self.floor = end
            else:
                self.done.add_range(first, end)
                self._raise_floor()
            return True
        return False

    def _raise_floor(self) -> None:
        if self.floor in self.done:
            self.floor = first_absent(self.done, self.floor)
            self.done.remove_range(0, self.floor)

    def counts_of(self, offset: int) -> tuple[int, int]:
        """How often a message was delivered, and how often that failed."""
        return self.counts.get(offset) or (_ONCE if offset in self.touched else _NEVER)

    def pending(self, end: int) -> Offsets:
        """What is not done of everything before `end`."""
        return from_range(self.floor, self.within(end)) - self.done

    def undone(self, offsets: Offsets) -> Offsets:
        """Those of them that are not done."""
        found = offsets - self.done
        if found and found.min() < self.floor:
            found.remove_range(0, self.floor)
        return found

    def has_done(self, offsets: Offsets) -> bool:
        """Whether all of them are done; there is at least one."""
        return offsets.max() < self.floor or not self.undone(offsets)

    def backlog(self, end: int) -> int:
        """How many messages before `end` are not done."""
        return max(0, self.within(end) - self.floor) - len(self.done)

    def published(self, end: int) -> int:
        """How many messages before `end` concern the group."""
        return max(0, self.within(end) - self.start)

    def finish(self, offsets: Offsets, reason: str) -> None:
        """They are done, unless they were before."""
        new = self.undone(offsets)
        if self.settings.until is not None and new:
            new &= from_range(0, self.settings.until)
        if not new:
            return
        self.noted = None
        self.done |= new
        if reason == "dead":
            self.counts.update(dict.fromkeys(new - self.touched, _NEVER))  # else it would count as delivered once
        self.touched -= new
        setattr(self.tally, reason, getattr(self.tally, reason) + len(new))
        self._forget(new, keep_counts=reason == "dead")
        if reason == "dead":
            self.dead |= new
        self._raise_floor()

    def lose(self, offsets: Offsets) -> None:
        """Retention removed them; what was not done is lost to this group."""
        self.noted = None
        self.finish(offsets, "lost")
        for offset in self.dead & offsets:
            self.counts.pop(offset, None)
        self.dead -= offsets

    def state(self) -> ProgressState:
        """Everything, for the checkpoint."""
        return ProgressState(
            self.start,
            self.floor,
            self.done.serialize(),
            self.dead.serialize(),
            self.touched.serialize(),
            [(offset, *counts) for offset, counts in self.counts.items()],
            list(self.waiting.items()),
            msgspec.structs.replace(self.tally),
            self.settings,
        )

    def encoded(self) -> msgspec.Raw:
        """The same, encoded; kept until something changes."""
        if self.noted is None:
            self.noted = msgspec.Raw(_encode(self.state()))
        return self.noted

    def configure(self, settings: GroupSettings) -> None:
        """It has other settings from now on."""
        self.noted = None
        self.settings = settings

    @classmethod
    def restore(cls, state: ProgressState) -> Progress:
        """The progress of a checkpoint."""
        progress = cls(state.start, state.settings)
        progress.floor = state.floor
        progress.done, progress.dead, progress.touched = map(
            Offsets.deserialize, (state.done, state.dead, state.touched)
        )
        progress.counts = {offset: (deliveries, failures) for offset, deliveries, failures in state.counts}
        progress.waiting = dict(state.waiting)
        progress.tally = state.tally
        return progress

    def within(self, end: int) -> int:
        """Where what concerns the group ends, if the log ends at `end`."""
        return end if self.settings.until is None else min(end, self.settings.until)

    def _delivered(self, offsets: Offsets, attempt: int) -> None:
        offsets = self.undone(offsets)
        self.touched |= offsets
        if attempt > 1:
            for offset in offsets:
                self.counts[offset] = (attempt, self.counts.get(offset, _ONCE)[1])
        for offset in self._known(self.waiting, offsets):
            del self.waiting[offset]

    def _failed(self, offsets: Offsets, due_us: int) -> None:
        offsets = self.undone(offsets)
        self.touched |= offsets
        for offset in offsets:
            deliveries, failures = self.counts_of(offset)
            self.counts[offset] = (max(deliveries, failures + 1), failures + 1)  # its delivery may not be written
            if due_us:
                self.waiting[offset] = due_us

    def _reopen(self, offsets: Offsets) -> None:
        """Dead messages live again, with their failures forgiven."""
        again = offsets & self.dead
        if not again:
            return
        first = again.min()
        if first < self.floor:
            self.done.add_range(first, self.floor)
            self.floor = first
        self.done -= again
        self.dead -= again
        self.tally.dead -= len(again)
        for offset in again:
            deliveries, _ = self.counts.pop(offset, _ONCE)
            if deliveries:
                self.touched.add(offset)
                self.counts[offset] = (deliveries, 0)

    def _forget(self, offsets: Offsets, keep_counts: bool = False) -> None:
        if not keep_counts:
            for offset in self._known(self.counts, offsets):
                del self.counts[offset]
        for offset in self._known(self.waiting, offsets):
            del self.waiting[offset]

    @staticmethod
    def _known(
        table: dict[int, object] | dict[int, int] | dict[int, tuple[int, int]], offsets: Offsets
    ) -> Iterable[int]:
        """The offsets that a table knows, looked up from whichever side is smaller."""
        if not table:
            return ()
        if len(table) < len(offsets):
            return [offset for offset in table if offset in offsets]
        return [offset for offset in offsets if offset in table]
