"""What was published before, remembered so that publishing it again changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.model.errors import StaleSequence
from penstock.model.message import IdRun

HISTORY = 64  # how many of a producer's newest sequences can be repeated


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


class ProducerHistories:
    """The newest sequences of each producer of a topic, and where their messages went."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[str, dict[int, dict[int, IdRun]]] = {}  # idle for longest first

    def __len__(self) -> int:
        return len(self._producers)

    def find(self, producer: str, sequence: int) -> list[IdRun] | None:
        """Where the messages of a sequence went; None if it is new; an error if it is too old to tell."""
        history = self._producers.get(producer)
        if not history or sequence > max(history):
            return None
        if sequence in history:
            return list(history[sequence].values())
        raise StaleSequence(
            f"sequence {sequence} of producer {producer!r} is older than its newest ({max(history)}) and no longer "
            f"remembered: sequences must grow, and only the newest {HISTORY} can be repeated"
        )

    def remember(self, producer: str, sequence: int, run: IdRun) -> None:
        """Note one partition's part of a sequence."""
        history = self._producers.pop(producer, {})
        history.setdefault(sequence, {})[run.partition] = run
        while len(history) > HISTORY:
            del history[min(history)]
        self._producers[producer] = history

    def forget(self, producer: str, sequence: int) -> None:
        """The sequence was refused after all."""
        history = self._producers.get(producer, {})
        history.pop(sequence, None)
        if not history:
            self._producers.pop(producer, None)

    def drop_idlest(self) -> None:
        """Forget the producer that has been silent for longest."""
        del self._producers[next(iter(self._producers))]

    def entries(self) -> Iterator[tuple[str, int, IdRun]]:
        """Everything remembered, in an order in which it can be remembered again."""
        for producer, history in self._producers.items():
            for sequence in sorted(history):
                for run in history[sequence].values():
                    yield producer, sequence, run
