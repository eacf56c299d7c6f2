"""The dedupe ids of a topic, remembered so that publishing one again changes nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from msgspec import msgpack

from penstock.log.pieces import Pieces, array_head

_RUN = 1000
_encode = msgpack.Encoder().encode

_Seen = tuple[int, int, int]
"""Partition, offset, time."""


class _Run:
    """Ids in the order in which they came; the oldest ones may be forgotten."""

    __slots__ = ("entries", "ids", "noted")

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids
        self.noted: bytes | None = None  # these, encoded, once it is full
        self.entries = 0  # how many are encoded


class DedupeWindow:
    """The dedupe ids of a topic, for as long as its window lasts.

    What is on disk (`remember`) and what is on the way there (`expect`) are kept apart. Neither finding the oldest one
    nor encoding those that came since the last time depends on how many there are.
    """

    __slots__ = ("_coming", "_forgotten", "_newest_us", "_runs", "_seen", "_sorted", "window_us")

    def __init__(self, window_s: float) -> None:
        self.window_us = round(window_s * 1_000_000)
        self._seen: dict[str, _Seen] = {}  # oldest first
        self._coming: dict[str, _Seen] = {}
        self._runs: deque[_Run] = deque()  # all that are seen, in the same order; none: it is found out when needed
        self._forgotten = 0  # how many ids of the first run are forgotten
        self._newest_us = 0
        self._sorted = True  # whether they came in the order of their times

    def __len__(self) -> int:
        return len(self._seen) + len(self._coming)

    def find(self, identity: str, now_us: int) -> tuple[int, int] | None:
        """The partition and offset of the message that has this id, inside the window; the oldest beyond it go."""
        self._expire(now_us)
        for known in (self._coming, self._seen):
            found = known.get(identity)
            if found is not None and found[2] + self.window_us > now_us:
                return found[0], found[1]
        return None

    def expect(self, identity: str, partition: int, offset: int, time_us: int) -> None:
        """Note a message that is on its way to the disk."""
        self._coming[identity] = (partition, offset, time_us)

    def arrive(self, identity: str, partition: int, offset: int) -> None:
        """It is not on its way any more: it is remembered now, or was refused."""
        coming = self._coming.get(identity)
        if coming is not None and coming[:2] == (partition, offset):
            del self._coming[identity]

    def remember(self, identity: str, partition: int, offset: int, time_us: int) -> None:
        """Note a message; a newer one of the same id takes the place of the old, never the reverse."""
        if identity in self._seen:
            if self._seen[identity][2] > time_us:
                return
            del self._seen[identity]
            self._runs.clear()
        if time_us < self._newest_us:
            self._sorted = False
        else:
            self._newest_us = time_us
        if self._runs:
            newest = self._runs[-1].ids
            if len(newest) < _RUN:
                newest.append(identity)
            else:
                self._runs.append(_Run([identity]))
        self._seen[identity] = (partition, offset, time_us)

    def _expire(self, now_us: int) -> None:
        """Drop what the window has left."""
        seen, runs = self._seen, self._arranged()
        while runs:
            ids = runs[0].ids
            oldest = ids[self._forgotten]
            if seen[oldest][2] + self.window_us > now_us:
                break
            del seen[oldest]
            self._forgotten += 1
            if self._forgotten == len(ids):
                runs.popleft()
                self._forgotten = 0

    def _arranged(self) -> deque[_Run]:
        """The runs, made anew if ids were taken out of their midst."""
        if not self._runs and self._seen:
            ids = iter(self._seen)
            while some := list(islice(ids, _RUN)):
                self._runs.append(_Run(some))
            self._forgotten = 0
        return self._runs

    def has_room(self, ids_max: int, now_us: int) -> bool:
        """Whether fewer than so many are known; else it drops whatever the window has left, and looks again."""
        if len(self) >= ids_max:
            if not self._sorted:  # what left may stand behind one that a wrong clock stamped too late
                self._seen = dict(sorted(self._seen.items(), key=lambda entry: entry[1][2]))
                self._runs.clear()
                self._sorted = True
            self._expire(now_us)
        return len(self) < ids_max

    def entries(self) -> Iterator[tuple[str, int, int, int]]:
        """Everything remembered, oldest first: (id, partition, offset, time)."""
        return ((identity, *place) for identity, place in self._seen.items())

    def encode_changed(self) -> Iterator[None]:
        """Encode what has come since the last time, in small steps; it may change in between."""
        for run in list(self._arranged()):
            if run.noted is None and len(run.ids) == _RUN:
                run.noted, run.entries = self._encode(run.ids)
                yield

    def encoded(self) -> Pieces:
        """The same as `entries`, as pieces of one encoded array; some that have left the window may still be there."""
        for _ in self.encode_changed():
            pass
        pieces, length = [b""], 0
        for run in self._runs:
            noted, entries = (run.noted, run.entries) if run.noted is not None else self._encode(run.ids)
            pieces.append(noted)
            length += entries
        pieces[0] = array_head(length)
        return pieces

    def _encode(self, ids: list[str]) -> tuple[bytes, int]:
        seen = self._seen
        encoded = [_encode((identity, *seen[identity])) for identity in ids if identity in seen]
        return b"".join(encoded), len(encoded)
