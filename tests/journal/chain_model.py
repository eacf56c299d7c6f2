"""Processes that own a shard in turn, on a bucket that fails: they sleep, die and take over at any request.

Each process has what an owner has: pieces of journal files, bundles of files that are complete, and segments that
bundles were settled to. It knows them by reference only, and reads them again when it needs them: so what was removed
while somebody needed it is seen.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from penstock.journal.chain import Chain, Conversation, Fenced, Found, Get, List, Put, Request, read
from penstock.journal.chain_layout import Kind, Mark, Piece, decode_piece, mark_of_name, piece_name
from penstock.journal.conversing import answer, carry_out
from penstock.storage.objects import StoreUnavailable
from penstock.testing import FaultyObjects

STEPS, PROCESSES = 1200, 4
BUNDLES, SEGMENTS = "bundles/", "segments/"
T = TypeVar("T")
Value = tuple[int, int, int]
"""Which process wrote it, in which epoch, and its number there."""


class Habits(NamedTuple):
    """What an owner does around its chain: rules of `bucket_storage`, `settling` and `shard`."""

    bundles_first: bool = True
    """Complete files are bundles when a checkpoint says so."""
    segments_first: bool = True
    """And segments are there."""
    dooms_after: bool = True
    """What a checkpoint makes needless is handed to the chain when that is there."""
    names_are_own: bool = True
    """What is put has a name that no other process puts."""
    tidies_with_proof: bool = True
    """What nobody refers to goes with a proof, as all else."""


class State(msgspec.Struct, array_like=True):
    """What a checkpoint holds."""

    segments: list[str]
    bundles: list[tuple[int, str]]
    """By the sequence of their files."""

    @property
    def names(self) -> list[str]:
        """Of what it refers to, the oldest values first."""
        return [*self.segments, *(name for _, name in self.bundles)]


class Abandoned(Exception):
    """A process has given up what it was doing, and begins again; requests may be under way."""


class Schedule:
    """One run: what was acknowledged, and what anybody saw that must not be."""

    def __init__(
        self, seed: int, chain: type[Chain] = Chain, often: float = 0.03, habits: Habits | None = None
    ) -> None:
        self.random = random.Random(seed)
        self.store = FaultyObjects(seed, often)
        self._chain, self._habits = chain, habits or Habits()
        self.acked: list[Value] = []
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()
        self._owners: dict[int, int] = {}  # of epochs, by number of life
        self._lives = 0
        self._running = {number: self._process(number) for number in range(PROCESSES)}
        self._born = PROCESSES
        self._turn = 0  # of which process
        self._giving_up: set[int] = set()

    def run(self) -> Schedule:
        """Let everybody work, in turns, some slower than others; then look at what is left."""
        sleeping: dict[int, tuple[int, Iterator[None]]] = {}
        for now in range(STEPS):
            for number, (until, process) in list(sleeping.items()):
                if until <= now:
                    self._running[number] = process
                    del sleeping[number]
            if not self._running:
                continue
            numbers = sorted(self._running)
            is_busy = self.random.random() < 0.6  # one has most turns for a while
            self._turn = number = numbers[now // 40 % len(numbers)] if is_busy else self.random.choice(numbers)
            next(self._running[number])
            fate = self.random.random()
            if fate < 0.004:
                del self._running[number]
                self._running[self._born] = self._process(self._born)
                self._born += 1
            elif fate < 0.03:
                sleeping[number] = now + self.random.randrange(20, 400), self._running.pop(number)
            elif fate < 0.034:
                self._giving_up.add(number)
        self._check_end()
        return self

    def _check_end(self) -> None:
        self.store.is_calm = True
        found: Found = carry_out(read(0), self.store, lambda _: None)
        state = _state_of(found)
        gone = [name for name in state.names if self.store.get(name) is None]
        if gone:
            self.wrong.append(f"C7: the checkpoint refers to {gone[0]}, which is gone")
        values = [value for name in state.names for value in _values(self.store.get(name) or b"\x90")]
        values += [_value(piece.body) for piece in _unbundled(state, found.pieces)]
        self._check_values(values)
        last: dict[tuple[int, int], int] = {}
        for process, epoch, number in values:
            if last.get((process, epoch), 0) >= number:
                self.wrong.append("C13: values are not in the order in which they were written")
            last[process, epoch] = number

    def _check_values(self, values: list[Value]) -> None:
        there = set(values)
        lost = [value for value in self.acked if value not in there]
        if lost:
            self.wrong.append(f"C2: {len(lost)} acknowledged values are lost, the first is {lost[0]}")
        if len(there) < len(values):
            self.wrong.append("C3: a value is there twice")

    # What a process does.

    def _process(self, number: int) -> Iterator[None]:
        chain = self._chain(0, number.to_bytes(16), f"process {number}")
        while True:
            try:
                found = yield from self._talk(chain.claim())
                yield from _Owner(self, number, chain, found, self._begin(chain)).work()
            except Fenced:
                self.seen["fenced"] += 1
            except Abandoned:
                self.seen["given up"] += 1
                chain = self._chain(0, chain.incarnation, chain.address, chain.epoch)

    def _begin(self, chain: Chain) -> int:
        """Somebody owns an epoch from now on; which life of a process that is."""
        self.seen["claims"] += 1
        self._lives += 1
        if self._owners.setdefault(chain.epoch, self._lives) != self._lives:
            self.wrong.append(f"C1: epoch {chain.epoch} has two owners")
        return self._lives

    def ack(self, value: Value, life: int) -> None:
        """A value is in the chain, by its owner."""
        self.acked.append(value)
        if self._owners.get(value[1]) != life:
            self.wrong.append(f"C1: epoch {value[1]} has two owners")

    def other(self) -> int:
        """Any process."""
        return self.random.choice(sorted(self._running))

    @property
    def habits(self) -> Habits:
        return self._habits

    def remove(self, names: Iterable[str]) -> Iterator[None]:
        """Remove objects, one in a turn."""
        for name in names:
            yield
            with contextlib.suppress(StoreUnavailable):  # it stays, and does no harm
                self.store.delete([name])
            self.seen["removed"] += 1

    def _talk(self, conversation: Conversation[T]) -> Generator[None, None, T]:
        """Hold a conversation, with a turn for each request."""
        try:
            request = next(conversation)
            while True:
                request = conversation.send((yield from self.ask(request)))
        except StopIteration as end:
            result: T = end.value
            return result

    talk = _talk

    def ask(self, request: Request) -> Generator[None, None, Any]:
        """What the bucket answers, sooner or later; several objects are not read at one moment."""
        if isinstance(request, Get) and len(request.names) > 1:
            found: dict[str, bytes | None] = {}
            for name in self.random.sample(request.names, len(request.names)):
                [found[name]] = yield from self.ask(Get([name]))
            return [found[name] for name in request.names]
        while True:
            yield
            if self._turn in self._giving_up:
                self._giving_up.remove(self._turn)
                raise Abandoned
            try:
                return answer(self.store, request, lambda _: None)
            except StoreUnavailable:
                self.seen["unavailable"] += 1


class _Owner:
    """A process while it owns an epoch."""

    def __init__(self, schedule: Schedule, number: int, chain: Chain, found: Found, life: int) -> None:
        self._schedule, self._number, self._chain, self._life = schedule, number, chain, life
        self._random, self._habits = schedule.random, schedule.habits
        self._state = _state_of(found)
        self._files: dict[int, list[Piece]] = {}
        for piece in _unbundled(self._state, found.pieces):
            self._files.setdefault(piece.sequence, []).append(piece)
        newest = max((sequence for sequence, _ in self._state.bundles), default=0)
        self._current = max(self._files, default=newest + 1)
        self._written = 0
        self._is_leaving = False

    def work(self) -> Iterator[None]:
        """Write, and note the state now and then, until somebody else owns the next epoch."""
        acked = list(self._schedule.acked)
        values = yield from self._fold()
        if not set(acked) <= set(values):
            yield from self._check_is_owner("C2: a new owner does not have what was acknowledged")
        if self._random.random() < 0.5:
            yield from self._tidy()
        working = [self._write_often(), self._keep_house()]
        while working:  # two threads
            one = self._random.choice(working)
            try:
                next(one)
                yield
            except StopIteration:
                working.remove(one)
        other = self._schedule.other()
        yield from self._schedule.talk(self._chain.hand_over(other.to_bytes(16), f"process {other}"))
        self._schedule.seen["handed over"] += 1

    def _write_often(self) -> Iterator[None]:
        while self._random.random() < 0.97:
            yield from self._write()
            yield from self._schedule.remove(self._chain.take_needless())
        self._is_leaving = True

    def _keep_house(self) -> Iterator[None]:
        while not self._is_leaving:
            choice = self._random.random()
            if choice < 0.4:
                yield from self._note()
            elif choice < 0.7:
                yield from self._settle()
            elif choice < 0.8:
                yield from self._tidy()
            yield from self._schedule.talk(self._chain.sweep())
            yield from self._schedule.remove(self._chain.take_needless())
            yield

    def _write(self) -> Iterator[None]:
        self._written += 1
        value = (self._number, self._chain.epoch, self._written)
        body = msgspec.msgpack.encode(value)
        piece = yield from self._schedule.talk(self._chain.append(self._current, self._written, body))
        self._files.setdefault(self._current, []).append(piece)
        yield
        self._schedule.ack(value, self._life)
        if len(self._files[self._current]) >= self._random.randrange(1, 6):
            self._current += 1

    def _note(self, doomed: Iterable[str] = ()) -> Generator[None, None, None]:
        """A checkpoint, before which files that are complete become bundles."""
        if not self._habits.dooms_after:
            self._chain.doom(list(doomed))
        complete = sorted(self._files)[:-1]
        bundles: list[tuple[str, list[Value]]] = []
        for sequence in complete:
            values = yield from self._again(self._files.pop(sequence))
            name = self._name(f"{BUNDLES}{sequence:06d}")
            self._state.bundles.append((sequence, name))
            bundles.append((name, values))
        start = min((pieces[0].mark for pieces in self._files.values()), default=self._chain.end)
        if self._habits.bundles_first:
            yield from self._put(bundles)
        yield from self._schedule.talk(self._chain.checkpoint(msgspec.msgpack.encode(self._state), start))
        if self._habits.dooms_after:
            self._chain.doom(list(doomed))
        if not self._habits.bundles_first:
            yield from self._put(bundles)
        self._schedule.seen["checkpoints"] += 1

    def _settle(self) -> Iterator[None]:
        """Make a segment of all bundles."""
        values: list[Value] = []
        for _, name in self._state.bundles:
            values += yield from self._content(name)
        needless = [name for _, name in self._state.bundles]
        if not needless:
            return
        segment = [(self._name(f"{SEGMENTS}{len(self._state.segments):06d}"), values)]
        self._state = State([*self._state.segments, segment[0][0]], [])
        if self._habits.segments_first:
            yield from self._put(segment)
        yield from self._note(needless)
        if not self._habits.segments_first:
            yield from self._put(segment)
        self._schedule.seen["segments"] += 1

    def _tidy(self) -> Iterator[None]:
        """Remove what processes before have put, and nobody refers to."""
        found = []
        for prefix in (BUNDLES, SEGMENTS):
            found += yield from self._schedule.ask(List(prefix))
        strange = [name for name in found if name not in self._state.names]
        if self._habits.tidies_with_proof:
            self._chain.doom(strange)
        else:
            yield from self._schedule.remove(strange)
        self._schedule.seen["strange"] += len(strange)

    def _name(self, stem: str) -> str:
        return f"{stem}-{self._chain.epoch:06d}" if self._habits.names_are_own else stem

    def _put(self, objects: Iterable[tuple[str, list[Value]]]) -> Iterator[None]:
        for name, values in objects:
            yield from self._schedule.ask(Put(name, msgspec.msgpack.encode(values)))

    # Reading again.

    def _fold(self) -> Generator[None, None, list[Value]]:
        """All values, read from where they are."""
        values: list[Value] = []
        for name in self._state.names:
            values += yield from self._content(name)
        for _, pieces in sorted(self._files.items()):
            values += yield from self._again(pieces)
        return values

    def _content(self, name: str) -> Generator[None, None, list[Value]]:
        [data] = yield from self._schedule.ask(Get([name]))
        if data is None:
            yield from self._check_is_owner(f"C7: {name} is gone")
            return []
        return _values(data)

    def _again(self, pieces: list[Piece]) -> Generator[None, None, list[Value]]:
        """The values of pieces, read again: nobody may have removed them from an owner."""
        for piece in pieces:
            [data] = yield from self._schedule.ask(Get([piece_name(piece.mark)]))
            if data is None or decode_piece(data, 0, piece.mark) != piece:  # a taker who slept may have sealed its name
                yield from self._check_is_owner(f"C7: {piece.mark} is gone")
        return [_value(piece.body) for piece in pieces]

    def _check_is_owner(self, problem: str) -> Iterator[None]:
        """Something is not as an owner must find it: this must not be one any more, and a seal says so for ever.

        It may lie behind the end that is known here: a piece whose create was not answered may be there, or was.
        """
        epoch = self._chain.epoch
        for name in (yield from self._schedule.ask(List(piece_name(Mark(epoch, 0)).rpartition("/")[0] + "/"))):
            [data] = yield from self._schedule.ask(Get([name]))
            mark = mark_of_name(name)
            assert mark is not None
            there = None if data is None else decode_piece(data, 0, mark)
            if there is not None and there.kind == Kind.SEAL:
                raise Fenced(there)
        self._schedule.wrong.append(f"{problem}, and epoch {epoch} has no seal")
        raise Fenced(Piece(Kind.SEAL, self._chain.end, b"?" * 16, 0, 0, b"nobody"))


def _state_of(found: Found) -> State:
    return State([], []) if found.checkpoint is None else msgspec.msgpack.decode(found.checkpoint, type=State)


def _unbundled(state: State, pieces: Iterable[Piece]) -> list[Piece]:
    bundled = {sequence for sequence, _ in state.bundles}
    return [piece for piece in pieces if piece.sequence not in bundled]


def _values(data: bytes) -> list[Value]:
    return msgspec.msgpack.decode(data, type=list[Value])


def _value(body: bytes) -> Value:
    value: Value = msgspec.msgpack.decode(body, type=Value)
    return value
