"""The dedupe ids of a topic, remembered so that publishing one again changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

_Seen = tuple[int, int, int]
"""Partition, offset, time."""


class DedupeWindow:
    """The dedupe ids of a topic, for as long as its window lasts.

    What is on disk (`remember`) and what is on the way there (`expect`) are kept apart.
    """

    __slots__ = ("_coming", "_seen", "window_us")

    def __init__(self, window_s: float) -> None:
        self.window_us = round(window_s * 1_000_000)
        self._seen: dict[str, _Seen] = {}  # oldest first
        self._coming: dict[str, _Seen] = {}

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
        if identity in self._seen and self._seen[identity][2] > time_us:
            return
        self._seen.pop(identity, None)
        self._seen[identity] = (partition, offset, time_us)

    def _expire(self, now_us: int) -> None:
        """Drop what the window has left."""
        while self._seen:
            oldest = next(iter(self._seen))
            if self._seen[oldest][2] + self.window_us > now_us:
                break
            del self._seen[oldest]

    def has_room(self, ids_max: int, now_us: int) -> bool:
        """Whether fewer than so many are known; else it drops whatever the window has left, and looks again."""
        if len(self) >= ids_max:  # what left may stand behind an id that a wrong clock stamped too late
            self._seen = {key: seen for key, seen in self._seen.items() if seen[2] + self.window_us > now_us}
        return len(self) < ids_max

    def entries(self) -> Iterator[tuple[str, int, int, int]]:
        """Everything remembered, oldest first: (id, partition, offset, time)."""
        return ((identity, *place) for identity, place in self._seen.items())
