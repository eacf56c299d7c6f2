"""What was published before, remembered so that publishing it again changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.model.errors import StaleSequence
from penstock.model.message import IdRun

HISTORY = 1024  # how many of a producer's newest sequences can be repeated
_SEQUENCES_EACH = 16  # what a producer has on average, when there are as many as there may be
_FORGOTTEN = IdRun(0, 0, 0)


class DedupeWindow:
    """The dedupe ids of a topic, for as long as its window lasts."""

    __slots__ = ("_seen", "window_us")

    def __init__(self, window_s: float) -> None:
        self.window_us = round(window_s * 1_000_000)
        self._seen: dict[str, tuple[int, int, int]] = {}  # id: partition, offset, time; oldest first

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, identity: str, now_us: int) -> tuple[int, int] | None:
        """The partition and offset of the message that has this id, inside the window."""
        found = self._seen.get(identity)
        if found is None or found[2] + self.window_us <= now_us:
            return None
        return found[0], found[1]

    def remember(self, identity: str, partition: int, offset: int, time_us: int) -> None:
        """Note a message; a newer one of the same id takes the place of the old, never the reverse."""
        if identity in self._seen and self._seen[identity][2] > time_us:
            return
        self._seen.pop(identity, None)
        self._seen[identity] = (partition, offset, time_us)

    def forget(self, identity: str, offset: int) -> None:
        """The message was refused after all."""
        if identity in self._seen and self._seen[identity][1] == offset:
            del self._seen[identity]

    def expire(self, now_us: int) -> int:
        """Drop what the window has left; how many went."""
        gone = 0
        while self._seen:
            oldest = next(iter(self._seen))
            if self._seen[oldest][2] + self.window_us > now_us:
                break
            del self._seen[oldest]
            gone += 1
        return gone

    def sweep(self, now_us: int) -> None:
        """Drop whatever the window has left, also behind one that a wrong clock stamped too late."""
        self._seen = {key: seen for key, seen in self._seen.items() if seen[2] + self.window_us > now_us}

    def entries(self) -> Iterator[tuple[str, int, int, int]]:
        """Everything remembered, oldest first: (id, partition, offset, time)."""
        return ((identity, *place) for identity, place in self._seen.items())


class _History:
    """What one producer published lately; everything up to `floor` that is not in it is forgotten."""

    __slots__ = ("floor", "runs")

    def __init__(self) -> None:
        self.floor = -1
        self.runs: dict[int, list[IdRun]] = {}  # by sequence, first published first


class ProducerHistories:
    """The newest sequences of each producer of a topic, and where their messages went."""

    __slots__ = ("_producers", "_sequences")

    def __init__(self) -> None:
        self._producers: dict[str, _History] = {}  # idle for longest first
        self._sequences = 0

    def __len__(self) -> int:
        return len(self._producers)

    def find(self, producer: str, sequence: int) -> list[IdRun] | None:
        """Where the messages of a sequence went; None if it is new; an error if it is too old to tell."""
        history = self._producers.get(producer)
        if history is None:
            return None
        known = history.runs.get(sequence)
        if known is None and sequence <= history.floor:
            raise StaleSequence(
                f"sequence {sequence} of producer {producer!r} is no longer remembered, nor whether it was ever "
                f"published: only the newest {HISTORY} of a producer can be repeated"
            )
        return known

    def remember(self, producer: str, sequence: int, run: IdRun) -> None:
        """Note one partition's part of a sequence; a run of no messages says that it is forgotten."""
        history = self._producers.pop(producer, None) or _History()
        self._producers[producer] = history
        if not run.count:
            history.floor = max(history.floor, sequence)
            return
        known = history.runs.get(sequence)
        if known is not None:
            history.runs[sequence] = [other for other in known if other.partition != run.partition] + [run]
            return
        history.runs[sequence] = [run]
        self._sequences += 1
        if len(history.runs) > HISTORY:
            self._trim(history)

    def _trim(self, history: _History) -> None:
        oldest = next(iter(history.runs))
        del history.runs[oldest]
        history.floor = max(history.floor, oldest)
        self._sequences -= 1

    def forget(self, producer: str, sequence: int) -> None:
        """The sequence was refused after all."""
        history = self._producers.get(producer)
        if history is not None and history.runs.pop(sequence, None) is not None:
            self._sequences -= 1
            if not history.runs and history.floor < 0:
                del self._producers[producer]

    def keep_to(self, producers_max: int) -> None:
        """Forget those who have been silent for longest, until no more than so many are left."""
        while len(self._producers) > producers_max or self._sequences > HISTORY + _SEQUENCES_EACH * producers_max:
            idlest = next(iter(self._producers))
            self._sequences -= len(self._producers.pop(idlest).runs)

    def entries(self) -> Iterator[tuple[str, int, IdRun]]:
        """Everything remembered, in an order in which it can be remembered again."""
        for producer, history in self._producers.items():
            if history.floor >= 0:
                yield producer, history.floor, _FORGOTTEN
            for sequence, runs in history.runs.items():
                for run in runs:
                    yield producer, sequence, run
