"""What producers published before, remembered so that publishing it again changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from msgspec import msgpack

from penstock.log.pieces import Pieces, array_head
from penstock.model.batch import Origin
from penstock.model.errors import StaleSequence
from penstock.model.message import IdRun

HISTORY = 1024  # how many of a producer's newest sequences can be repeated
_SEQUENCES_EACH = 16  # what a producer has on average, when there are as many as there may be
_FORGOTTEN = IdRun(0, 0, 0)
_STRETCH_SEQUENCES = 1024  # those of producers that are encoded together
_encode = msgpack.Encoder().encode


_Singles = tuple[int, int, int]
"""Consecutive sequences of one message each, at consecutive offsets: the first, the partition, the first offset."""
_Sequences = dict[int, _Singles | list[IdRun]]
"""Where messages went, by sequence, first published first."""
_Run = tuple[int, int, int, int]
"""As `_Singles`, with its end: the first sequence, the one behind the last, the partition, the first offset."""


class _History:
    """What one producer published lately; everything up to `floor` that is not in it is forgotten."""

    __slots__ = ("end", "entries", "floor", "noted", "producer", "published", "stretch")

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self.floor = -1
        self.end = 0  # no sequence from here on was published, nor forgotten
        self.published: _Sequences = {}
        self.noted: bytes | None = None  # its entries, encoded, until it changes
        self.entries = 0  # how many these are
        self.stretch: _Stretch | None = None  # that has it encoded with its neighbours, until it changes

    def changes(self) -> None:
        """What is encoded of it holds no longer."""
        if self.stretch is not None:
            self.stretch.noted = None
            self.noted = self.stretch = None

    def encode(self) -> bytes:
        """Its entries, encoded; kept until it changes."""
        if self.noted is None:
            entries = list(map(_encode, _entries(self)))
            self.noted, self.entries = b"".join(entries), len(entries)
        return self.noted


class _Stretch:
    """Neighbours in the order of the producers, encoded together: so a million of them are few pieces."""

    __slots__ = ("entries", "members", "noted", "sequences")

    def __init__(self) -> None:
        self.members: list[_History] = []  # also those that have changed since, until it is encoded again
        self.noted: bytes | None = None  # their entries, encoded, until one of them changes
        self.entries = 0
        self.sequences = 0

    def take(self, history: _History) -> None:
        """Have one more, behind the others."""
        self.noted = None
        self.members.append(history)
        self.sequences += 1 + len(history.published)
        history.stretch = self

    def take_over(self, other: _Stretch) -> None:
        """Have all that another one has, behind the others."""
        for history in other._left():
            self.take(history)
        other.noted = None

    def encode(self) -> bytes:
        """The entries of those that have not changed since; kept until one of them does."""
        if self.noted is None:
            self.members = self._left()
            self.noted = b"".join([history.encode() for history in self.members])
            self.entries = sum(history.entries for history in self.members)
            self.sequences = sum(1 + len(history.published) for history in self.members)
        return self.noted

    def _left(self) -> list[_History]:
        return [history for history in self.members if history.stretch is self]


class ProducerHistories:
    """The newest sequences of each producer of a topic, and where their messages went.

    What is on disk (`remember`) and what is on the way there (`expect`) are kept apart: so what is remembered, and
    who is forgotten, depends on the journal alone, and is the same after a restart (F1).
    """

    __slots__ = ("_coming", "_coming_run", "_producers", "_sequences", "_stretches")

    def __init__(self) -> None:
        self._producers: dict[str, _History] = {}  # idle for longest first
        self._sequences = 0
        self._coming_run: dict[str, _Run] = {}  # of each producer the first singles on their way, and what follows them
        self._coming: dict[str, _Sequences] = {}  # everything else
        self._stretches: list[_Stretch] = []  # those who published after they were made stand behind them

    def __len__(self) -> int:
        return len(self._producers)

    def find(self, producer: str, sequence: int) -> list[IdRun] | None:
        """Where the messages of a sequence went; None if it is new; an error if it is too old to tell."""
        run = self._coming_run.get(producer)
        if run is not None and run[0] <= sequence < run[1]:
            return [IdRun(run[2], run[3] + sequence - run[0], 1)]
        coming, history = self._coming.get(producer), self._producers.get(producer)
        known = None if coming is None else coming.get(sequence)
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

    def expect_new_singles(self, producer: str, first: int, partition: int, base: int, count: int) -> bool:
        """As `expect_singles`, unless one of these sequences is known, or too old to tell: then nothing is noted."""
        history = self._producers.get(producer)
        if producer in self._coming_run or producer in self._coming or (history and first < history.end):
            if self._has_any(producer, first, count):
                return False
            self.expect_singles(producer, first, partition, base, count)
        else:
            self._coming_run[producer] = (first, first + count, partition, base)
        return True

    def _has_any(self, producer: str, first: int, count: int) -> bool:
        run = self._coming_run.get(producer)
        if run is not None and run[0] < first + count and first < run[1]:
            return True
        coming, history = self._coming.get(producer), self._producers.get(producer)
        if coming is not None and _has_any(coming, first, count):
            return True
        return history is not None and (first <= history.floor or _has_any(history.published, first, count))

    def expect_singles(self, producer: str, first: int, partition: int, base: int, count: int) -> None:
        """Note messages that were published one by one, with consecutive sequences and offsets."""
        run = self._coming_run.get(producer)
        if run is None:
            self._coming_run[producer] = (first, first + count, partition, base)
        elif run[1:3] == (first, partition) and base - run[3] == first - run[0]:
            self._coming_run[producer] = (run[0], first + count, partition, run[3])
        else:
            places = dict.fromkeys(range(first, first + count), (first, partition, base))
            self._coming.setdefault(producer, {}).update(places)

    def arrive(self, producer: str, sequence: int, count: int = 1) -> None:
        """So many sequences are not on their way any more: they are remembered now, or were refused."""
        run, end = self._coming_run.get(producer), sequence + count
        if run is not None:
            if run[0] == sequence and run[1] == end:
                del self._coming_run[producer]
                return
            if run[0] < end and sequence < run[1]:
                self._shorten(producer, run, sequence, end)
        coming = self._coming.get(producer)
        if coming is not None:
            for arrived in range(sequence, end):
                coming.pop(arrived, None)  # another partition's part of it may have been here before
            if not coming:
                del self._coming[producer]

    def _shorten(self, producer: str, run: _Run, sequence: int, end: int) -> None:
        """Let go of the first sequences of a run, or (refused ones: the newest first) of its last ones."""
        first, last_end, partition, base = run
        if end < last_end:
            assert sequence <= first, "L7: what was published first arrives first"
            self._coming_run[producer] = (end, last_end, partition, base + end - first)
        elif sequence > first:
            self._coming_run[producer] = (first, sequence, partition, base)
        else:
            del self._coming_run[producer]

    def remember(self, producer: str, sequence: int, run: IdRun) -> None:
        """Note one partition's part of a sequence; a run of no messages says that it is forgotten."""
        history = self._latest(producer)
        history.end = max(history.end, sequence + 1)
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

    def arrive_singles(self, origins: Iterable[Origin], partition: int, base: int) -> None:
        """Messages that were published one by one are on disk, from an offset on: remember them."""
        for row, producer, first, count in origins:
            if self._coming_run or self._coming:
                self.arrive(producer, first, count)
            self.remember_singles(producer, first, partition, base + row, count)

    def remember_singles(self, producer: str, first: int, partition: int, base: int, count: int) -> None:
        """Note messages that were published one by one, with consecutive sequences and offsets."""
        history = self._producers.get(producer)
        if history is None or len(self._producers) > 1:
            history = self._latest(producer)
        elif history.stretch is not None:
            history.changes()
        published, end = history.published, first + count
        if first >= history.end:
            history.end = end
            self._sequences += count
        else:
            history.end = max(history.end, end)
            self._sequences += count - len(published.keys() & range(first, end))
        if count == 1:
            published[first] = (first, partition, base)
        else:
            published.update(dict.fromkeys(range(first, end), (first, partition, base)))
        if len(published) > 2 * HISTORY:
            self._trim(history)

    def _latest(self, producer: str) -> _History:
        """The history of a producer, which has published last of all."""
        history = self._producers.pop(producer, None)
        if history is None:
            history = _History(producer)
        elif history.stretch is not None:
            history.changes()
        self._producers[producer] = history
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
            idlest = self._producers.pop(next(iter(self._producers)))
            idlest.changes()
            self._sequences -= len(idlest.published)

    def entries(self) -> Iterator[tuple[str, int, IdRun]]:
        """Everything remembered, in an order in which `restore` can take it; singles have a count below 0."""
        return itertools.chain.from_iterable(map(_entries, self._producers.values()))

    def encode_changed(self) -> Iterator[None]:
        """Encode what has changed, in small steps; it may change again in between."""
        new = _Stretch()
        for history in self._new():
            new.take(history)
            if new.sequences >= _STRETCH_SEQUENCES:
                self._stretches.append(new)
                new = _Stretch()
        self._stretches.append(new)
        kept: list[_Stretch] = []
        for stretch in self._stretches:
            if stretch.noted is None:
                stretch.encode()
                yield
            if kept and kept[-1].sequences + stretch.sequences <= _STRETCH_SEQUENCES:
                kept[-1].take_over(stretch)
            elif stretch.members:
                kept.append(stretch)
        self._stretches = kept

    def _new(self) -> list[_History]:
        """Those who are in no stretch: they published last."""
        new = list(itertools.takewhile(lambda history: history.stretch is None, reversed(self._producers.values())))
        new.reverse()
        return new

    def encoded(self) -> Pieces:
        """The same as `entries`, as pieces of one encoded array; those are kept until their producers publish again."""
        for _ in self.encode_changed():
            pass
        pieces = [stretch.encode() for stretch in self._stretches]
        return [array_head(sum(stretch.entries for stretch in self._stretches)), *pieces]

    def restore(self, producer: str, sequence: int, run: IdRun) -> None:
        """Take one of the `entries` back."""
        if run.count < 0:
            self.remember_singles(producer, sequence, run.partition, run.base, -run.count)
        else:
            self.remember(producer, sequence, run)


def _entries(history: _History) -> Iterator[tuple[str, int, IdRun]]:
    producer = history.producer
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
