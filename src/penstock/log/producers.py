"""What producers published before, remembered so that publishing it again changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from msgspec import Raw, msgpack

from penstock.model.batch import Origin
from penstock.model.errors import StaleSequence
from penstock.model.message import IdRun

HISTORY = 1024  # how many of a producer's newest sequences can be repeated
_SEQUENCES_EACH = 16  # what a producer has on average, when there are as many as there may be
_FORGOTTEN = IdRun(0, 0, 0)
_ARRAY_32 = b"\xdd"  # of msgpack: an array whose length follows, in 32 bits
_encode = msgpack.Encoder().encode


_Singles = tuple[int, int, int]
"""Consecutive sequences of one message each, at consecutive offsets: the first, the partition, the first offset."""
_Sequences = dict[int, _Singles | list[IdRun]]
"""Where messages went, by sequence, first published first."""
_Run = tuple[int, int, int, int]
"""As `_Singles`, with its end: the first sequence, the one behind the last, the partition, the first offset."""


class _History:
    """What one producer published lately; everything up to `floor` that is not in it is forgotten."""

    __slots__ = ("floor", "noted", "published")

    def __init__(self) -> None:
        self.floor = -1
        self.published: _Sequences = {}
        self.noted: tuple[int, bytes] | None = None  # how many entries, and these encoded, until it changes


class ProducerHistories:
    """The newest sequences of each producer of a topic, and where their messages went.

    What is on disk (`remember`) and what is on the way there (`expect`) are kept apart: so what is remembered, and
    who is forgotten, depends on the journal alone, and is the same after a restart (F1).
    """

    __slots__ = ("_coming", "_coming_runs", "_producers", "_sequences")

    def __init__(self) -> None:
        self._producers: dict[str, _History] = {}  # idle for longest first
        self._sequences = 0
        self._coming: dict[str, _Sequences] = {}
        self._coming_runs: dict[str, list[_Run]] = {}  # few: those of the commits that are under way

    def __len__(self) -> int:
        return len(self._producers)

    def find(self, producer: str, sequence: int) -> list[IdRun] | None:
        """Where the messages of a sequence went; None if it is new; an error if it is too old to tell."""
        coming, history = self._coming.get(producer), self._producers.get(producer)
        known = None if coming is None else coming.get(sequence)
        for first, end, partition, base in self._coming_runs.get(producer, ()):
            if first <= sequence < end:
                known = (first, partition, base)
        if known is None and history is not None:
            known = history.published.get(sequence)
        if known is None and history is not None and sequence <= history.floor:
            raise StaleSequence(
                f"sequence {sequence} of producer {producer!r} is no longer remembered, nor whether it was ever "
                f"published: only the newest {HISTORY} of a producer can be repeated"
            )
        if isinstance(known, tuple):
            first, partition, base = known
            return [IdRun(partition, base + sequence - first, 1)]
        return known

    def has_any(self, origins: Iterable[Origin]) -> bool:
        """Whether one of these sequences is known, or too old to tell, or there twice."""
        ends: dict[str, int] = {}
        for _, producer, first, count in origins:
            if first < ends.get(producer, 0):
                return True
            ends[producer] = first + count
            coming, history = self._coming.get(producer), self._producers.get(producer)
            if coming is not None and _has_any(coming, first, count):
                return True
            for known, end, _, _ in self._coming_runs.get(producer, ()):
                if known < first + count and first < end:
                    return True
            if history is not None and (first <= history.floor or _has_any(history.published, first, count)):
                return True
        return False

    def expect(self, producer: str, sequence: int, run: IdRun) -> None:
        """Note one partition's part of a sequence that is on its way to the disk."""
        coming = self._coming.get(producer)
        if coming is None:
            coming = self._coming[producer] = {}
        known = coming.get(sequence)
        if known is None:
            coming[sequence] = [run]
        else:
            assert isinstance(known, list)
            known.append(run)

    def expect_singles(self, producer: str, first: int, partition: int, base: int, count: int) -> None:
        """Note such messages that were published one by one, with consecutive sequences and offsets."""
        if count > 1:
            self._coming_runs.setdefault(producer, []).append((first, first + count, partition, base))
            return
        coming = self._coming.get(producer)
        if coming is None:
            coming = self._coming[producer] = {}
        coming[first] = (first, partition, base)

    def arrive(self, producer: str, sequence: int, count: int = 1) -> None:
        """So many sequences are not on their way any more: they are remembered now, or were refused."""
        left = count
        if count > 1 and producer in self._coming_runs:
            left -= self._arrive_as_runs(producer, sequence, sequence + count)
        coming = self._coming.get(producer)
        if not left or coming is None:
            return
        if count == 1:
            coming.pop(sequence, None)  # another partition's part of it may have been here before
        else:
            for arrived in range(sequence, sequence + count):
                coming.pop(arrived, None)
        if not coming:
            del self._coming[producer]

    def _arrive_as_runs(self, producer: str, start: int, end: int) -> int:
        """Let go of the runs between two sequences; how many sequences that were."""
        runs = self._coming_runs[producer]
        others = [run for run in runs if not start <= run[0] < end]
        if others:
            self._coming_runs[producer] = others
        else:
            del self._coming_runs[producer]
        return sum(run[1] - run[0] for run in runs) - sum(run[1] - run[0] for run in others)

    def remember(self, producer: str, sequence: int, run: IdRun) -> None:
        """Note one partition's part of a sequence; a run of no messages says that it is forgotten."""
        history = self._latest(producer)
        if not run.count:
            history.floor = max(history.floor, sequence)
            return
        known = history.published.get(sequence)
        if isinstance(known, list):
            history.published[sequence] = [other for other in known if other.partition != run.partition] + [run]
            return
        history.published[sequence] = [run]
        self._sequences += known is None
        if len(history.published) > 2 * HISTORY:
            self._trim(history)

    def remember_singles(self, producer: str, first: int, partition: int, base: int, count: int) -> None:
        """Note messages that were published one by one, with consecutive sequences and offsets."""
        history = self._latest(producer)
        published = history.published
        before = len(published)
        if count == 1:
            published[first] = (first, partition, base)
        else:
            published.update(dict.fromkeys(range(first, first + count), (first, partition, base)))
        self._sequences += len(published) - before
        if len(published) > 2 * HISTORY:
            self._trim(history)

    def _latest(self, producer: str) -> _History:
        history = self._producers.pop(producer, None) or _History()
        self._producers[producer] = history
        history.noted = None
        return history

    def _trim(self, history: _History) -> None:
        """Forget the oldest, many at a time: taking the first of a dict again and again is slow."""
        sequences = list(history.published)
        history.floor = max(history.floor, *sequences[:-HISTORY])
        self._sequences -= len(sequences) - HISTORY
        history.published = {sequence: history.published[sequence] for sequence in sequences[-HISTORY:]}

    def keep_to(self, producers_max: int) -> None:
        """Forget those who have been silent for longest, until no more than so many are left."""
        while len(self._producers) > producers_max or self._sequences > 2 * HISTORY + _SEQUENCES_EACH * producers_max:
            idlest = next(iter(self._producers))
            self._sequences -= len(self._producers.pop(idlest).published)

    def entries(self) -> Iterator[tuple[str, int, IdRun]]:
        """Everything remembered, in an order in which `restore` can take it; singles have a count below 0."""
        for producer, history in self._producers.items():
            yield from _entries(producer, history)

    def encoded(self) -> Raw:
        """The same, encoded as one array; what a producer has in it is kept until it publishes again."""
        parts: list[tuple[int, bytes]] = []
        for producer, history in self._producers.items():
            if history.noted is None:
                entries = list(map(_encode, _entries(producer, history)))
                history.noted = (len(entries), b"".join(entries))
            parts.append(history.noted)
        head = _ARRAY_32 + sum(count for count, _ in parts).to_bytes(4, "big")
        return Raw(b"".join([head, *(encoded for _, encoded in parts)]))

    def restore(self, producer: str, sequence: int, run: IdRun) -> None:
        """Take one of the `entries` back."""
        if run.count < 0:
            self.remember_singles(producer, sequence, run.partition, run.base, -run.count)
        else:
            self.remember(producer, sequence, run)


def _entries(producer: str, history: _History) -> Iterator[tuple[str, int, IdRun]]:
    if history.floor >= 0:
        yield producer, history.floor, _FORGOTTEN
    for known, sequences in itertools.groupby(history.published, history.published.__getitem__):
        if isinstance(known, tuple):
            start, partition, base = known
            first, count = next(sequences), 1 + sum(1 for _ in sequences)
            yield producer, first, IdRun(partition, base + first - start, -count)
        else:
            sequence = next(sequences)
            for run in known:
                yield producer, sequence, run


def _has_any(sequences: _Sequences, first: int, count: int) -> bool:
    return first in sequences or (count > 1 and not sequences.keys().isdisjoint(range(first, first + count)))
