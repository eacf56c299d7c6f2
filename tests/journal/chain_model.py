"""Processes that own a chain in turn, on a bucket that fails: they sleep, die and take over at any request.

Each process folds the chain into a list of values. What it has not put into a checkpoint of its own it knows by
reference only, and reads again when it does: so what was removed while somebody needed it is seen.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import msgspec

from penstock.journal.chain import Chain, Conversation, Create, Fenced, Found, Get, Request, Wait, read
from penstock.journal.chain_layout import Kind, Piece, decode_piece, encode_piece, piece_name
from penstock.journal.conversing import answer, carry_out
from penstock.storage.objects import StoreUnavailable
from penstock.testing import FaultyObjects

STEPS, PROCESSES = 700, 4
T = TypeVar("T")
Value = tuple[int, int, int]
"""Which process wrote it, in which epoch, and its number there."""


class Schedule:
    """One run: what was acknowledged, and what anybody saw that must not be."""

    def __init__(self, seed: int, chain: type[Chain] = Chain, often: float = 0.03) -> None:
        self.random = random.Random(seed)
        self.store = FaultyObjects(seed, often)
        self._chain = chain
        self.acked: list[Value] = []
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()
        self._owners: dict[int, int] = {}  # of epochs, by number of process
        self._running = {number: self._process(number) for number in range(PROCESSES)}
        self._born = PROCESSES

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
            number = numbers[now // 40 % len(numbers)] if is_busy else self.random.choice(numbers)
            next(self._running[number])
            fate = self.random.random()
            if fate < 0.004:
                del self._running[number]
                self._running[self._born] = self._process(self._born)
                self._born += 1
            elif fate < 0.02:
                sleeping[number] = now + self.random.randrange(20, 400), self._running.pop(number)
        self._check_end()
        return self

    def _check_end(self) -> None:
        self.store.is_calm = True
        values = _values_of(carry_out(read(0), self.store, lambda _: None))
        there = set(values)
        lost = [value for value in self.acked if value not in there]
        if lost:
            self.wrong.append(f"C2: {len(lost)} acknowledged values are lost, the first is {lost[0]}")
        if len(there) < len(values):
            self.wrong.append("C3: a value is there twice")
        last: dict[tuple[int, int], int] = {}
        for process, epoch, number in values:
            if last.get((process, epoch), 0) >= number:
                self.wrong.append("C13: values are not in the order in which they were written")
            last[process, epoch] = number

    # What a process does.

    def _process(self, number: int) -> Iterator[None]:
        chain = self._chain(0, number.to_bytes(16), f"process {number}")
        while True:
            try:
                found = yield from self._talk(chain.claim())
                self.seen["claims"] += 1
                yield from self._own(number, chain, found)
            except Fenced:
                self.seen["fenced"] += 1

    def _own(self, number: int, chain: Chain, found: Found) -> Iterator[None]:
        values = [] if found.checkpoint is None else msgspec.msgpack.decode(found.checkpoint, type=list[Value])
        pieces = list(found.pieces)
        written = 0
        while True:
            choice = self.random.random()
            if choice < 0.75:
                written += 1
                value = (number, chain.epoch, written)
                piece = yield from self._talk(chain.append(written, 0, msgspec.msgpack.encode(value)))
                pieces.append(piece)
                yield
                self.acked.append(value)
                if self._owners.setdefault(chain.epoch, number) != number:
                    self.wrong.append(f"C1: epoch {chain.epoch} has two owners")
                yield from self._remove(chain)
            elif choice < 0.97:
                values += [msgspec.msgpack.decode(body, type=Value) for body in (yield from self._again(chain, pieces))]
                pieces = []
                yield from self._talk(chain.checkpoint(msgspec.msgpack.encode(values), chain.end))
                self.seen["checkpoints"] += 1
                yield from self._remove(chain)
            else:
                other = self.random.choice(sorted(self._running))
                yield from self._talk(chain.hand_over(other.to_bytes(16), f"process {other}"))
                self.seen["handed over"] += 1
                return

    def _remove(self, chain: Chain) -> Iterator[None]:
        for name in chain.take_needless():
            yield
            with contextlib.suppress(StoreUnavailable):  # it stays, and does no harm
                self.store.delete([name])
            self.seen["removed"] += 1

    def _again(self, chain: Chain, pieces: list[Piece]) -> Generator[None, None, list[bytes]]:
        """The bodies of pieces, read again: nobody may have removed them from an owner."""
        bodies: list[bytes] = []
        for piece in pieces:
            [data] = yield from self._ask(Get([piece_name(piece.mark)]))
            if data is None or decode_piece(data, 0, piece.mark) != piece:  # a taker who slept may have sealed its name
                [end] = yield from self._ask(Get([piece_name(chain.end)]))
                if end is None:
                    self.wrong.append(f"C7: {piece.mark} is gone, and {chain.end} not sealed")
                    end = encode_piece(0, Piece(Kind.SEAL, chain.end, b"?" * 16, 0, 0, b"nobody"))
                raise Fenced(decode_piece(end, 0, chain.end))
            bodies.append(piece.body)
        return bodies

    def _talk(self, conversation: Conversation[T]) -> Generator[None, None, T]:
        """Hold a conversation, with a turn for each request."""
        try:
            request = next(conversation)
            while True:
                request = conversation.send((yield from self._ask(request)))
        except StopIteration as end:
            result: T = end.value
            return result

    def _ask(self, request: Request) -> Generator[None, None, Any]:
        """What the bucket answers, sooner or later; several objects are not read at one moment."""
        if isinstance(request, Get) and len(request.names) > 1:
            found: dict[str, bytes | None] = {}
            for name in self.random.sample(request.names, len(request.names)):
                [found[name]] = yield from self._ask(Get([name]))
            return [found[name] for name in request.names]
        while True:
            yield
            try:
                return answer(self.store, request, lambda _: None)
            except StoreUnavailable:
                self.seen["unavailable"] += 1


def _values_of(found: Found) -> list[Value]:
    values = [] if found.checkpoint is None else msgspec.msgpack.decode(found.checkpoint, type=list[Value])
    return values + [msgspec.msgpack.decode(piece.body, type=Value) for piece in found.pieces]


# Chains that break a rule.


class RemovesWithoutProof(Chain):
    """What a checkpoint makes needless is removed at once (rule 4)."""

    def checkpoint(self, *arguments: Any) -> Conversation[None]:
        yield from super().checkpoint(*arguments)
        self._proven = self._begun + 1


class RemovesSeals(Chain):
    """Seals go with the pieces before them (rule 5)."""

    def _seals(self, marks: Any) -> set[Any]:
        return set()


class LooksOnce(Chain):
    """Does not look at the checkpoints after its seal (rule 6)."""

    def _is_outdated(self, *_: Any) -> bool:
        return False


class BelievesInSilence(Chain):
    """Takes a create whose outcome is not known for done (rule 1)."""

    def _create(self, piece: Piece) -> Conversation[Piece]:
        yield Create(piece_name(piece.mark), encode_piece(self.shard, piece))
        return piece


class GivesUpInSilence(Chain):
    """Writes other bytes at the next place when the outcome of a create is not known (rule 1)."""

    def append(self, sequence: int, position: int, body: bytes) -> Conversation[Piece]:
        while True:
            piece = Piece(Kind.PIECE, self.end, self.incarnation, sequence, position, body)
            name = piece_name(piece.mark)
            yield Create(name, encode_piece(self.shard, piece))
            [there] = yield Get([name])
            self.end = self.end._replace(n=self.end.n + 1)
            if there is not None:
                found = decode_piece(there, self.shard, piece.mark)
                if found.incarnation != self.incarnation:
                    raise Fenced(found)
                self._proven = self._begun = self._begun + 1
                return piece
            yield Wait(1)


BROKEN = [RemovesWithoutProof, RemovesSeals, LooksOnce, BelievesInSilence, GivesUpInSilence]
"""Each breaks one rule."""
