"""The chain of numbered objects that is a shard's journal on a bucket: who owns it, where it ends, and what may go.

Everything here is a conversation: a generator asks for requests, is told what became of them, and touches nothing
itself. So the same code runs on a bucket, in a model that tries thousands of schedules, and in simulations.

The rules; a model loses messages without any one of them:

1. Pieces of an epoch are written by its owner alone, by create, one after the other, and acknowledged in that order.
2. A seal in the first hole is the end of its epoch and makes somebody the owner of the next, in one create.
3. The checkpoint with the greatest name counts, whoever wrote it: a late one is a true beginning of the chain too.
4. What a checkpoint makes needless is removed only after one more piece of the same owner, which it began to write when
   the checkpoint was there: so it was the owner still when that was there for all to see.
5. Seals stay for ever: a name that was removed could be created again, by somebody who slept meanwhile.
6. Whoever has put a seal looks at the checkpoints again. If there is a greater one, the hole may have been a piece that
   was removed: it begins again, and has written nothing.
7. Nothing that earlier owners have left goes before an own checkpoint: a late one of theirs could need it.
8. An epoch that was given up is not taken up again: a late answer to a request of then finds a seal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from penstock.journal.chain_layout import (
    CHECKPOINTS,
    PIECES,
    CheckpointName,
    Kind,
    Mark,
    Piece,
    checkpoint_name,
    checkpoint_of_name,
    decode_checkpoint,
    decode_piece,
    encode_checkpoint,
    encode_piece,
    mark_of_name,
    piece_name,
)
from penstock.model.errors import CorruptData, PenstockError
from penstock.storage.objects import Outcome

READ_AT_ONCE = 32
"""So many pieces are asked for at a time."""
READ_AGAIN = 100
"""So often whoever only reads begins again when there is a newer checkpoint."""


# What a conversation asks for. Requests that fail are made again by whoever has the conversation, but for a create.


class Create(NamedTuple):
    """Answered with an Outcome."""

    name: str
    data: bytes


class Put(NamedTuple):
    """Answered with None, when it is there."""

    name: str
    data: bytes


class Get(NamedTuple):
    """Answered with a list of what each of them is, or None."""

    names: Sequence[str]


class List(NamedTuple):
    """Answered with all names that begin so, sorted."""

    prefix: str


class Wait(NamedTuple):
    """Answered when a moment has passed: the longer, the more often it was asked for."""

    attempt: int


Request = Create | Put | Get | List | Wait
T = TypeVar("T")
Conversation = Generator[Request, Any, T]


class Fenced(Exception):
    """Another process owns the chain from here on: nothing was written."""

    def __init__(self, seal: Piece) -> None:
        super().__init__(f"epoch {seal.mark.epoch} has ended: {seal.address} owns epoch {seal.next_epoch}")
        self.seal = seal


class Restless(PenstockError):
    """A chain could not be read: its checkpoints follow one another too quickly."""


class Found(NamedTuple):
    """What a chain holds: the state at its newest checkpoint, and every piece behind."""

    name: CheckpointName | None
    checkpoint: bytes | None
    pieces: list[Piece]
    seals: list[Piece]
    end: Mark
    """The first hole."""


def read(shard: int) -> Conversation[Found]:
    """All that a chain holds at some moment since this began; writes nothing. Raises Restless if there is none."""
    for _ in range(READ_AGAIN):
        newest = _newest((yield List(CHECKPOINTS)))
        found = yield from _read_from(shard, newest)
        if found is not None and newest == _newest((yield List(CHECKPOINTS))):
            return found
    raise Restless(f"the state of the shard was noted again each of {READ_AGAIN} times while it was read: try again")


def _read_from(shard: int, newest: CheckpointName | None) -> Conversation[Found | None]:
    """All behind a checkpoint, up to the first hole; None if the checkpoint is not there any more."""
    start, body = Mark(0, 0), None
    if newest is not None:
        name = checkpoint_name(newest)
        [data] = yield Get([name])
        if data is None:
            return None
        start, body = decode_checkpoint(data, shard, name)
    found = Found(newest, body, [], [], start)
    end = yield from _walk(shard, start, found.pieces, found.seals)
    return found._replace(end=end)


def _walk(shard: int, mark: Mark, pieces: list[Piece], seals: list[Piece]) -> Conversation[Mark]:
    """Add what there is from a place on, to the first hole."""
    at_once = 1
    while True:
        marks = [Mark(mark.epoch, mark.n + number) for number in range(at_once)]
        for own, data in zip(marks, (yield Get([piece_name(own) for own in marks])), strict=True):
            if data is None:
                return own
            piece = decode_piece(data, shard, own)
            if piece.kind == Kind.SEAL:
                seals.append(piece)
                mark, at_once = Mark(piece.next_epoch, 0), 1
                break
            pieces.append(piece)
        else:
            mark, at_once = Mark(mark.epoch, mark.n + at_once), min(READ_AT_ONCE, 4 * at_once)


def _newest(names: Sequence[str]) -> CheckpointName | None:
    return max(filter(None, map(checkpoint_of_name, names)), default=None)


class Chain:
    """A chain as one process knows it that wants to own it, and then does, until it is Fenced.

    One thread at a time may append, and another one meanwhile put a checkpoint.
    """

    def __init__(self, shard: int, incarnation: bytes, address: str, owned: int = 0) -> None:
        """`incarnation`: of this process, and of no other one ever; `owned`: the last epoch that it had."""
        self.shard, self.incarnation, self.address = shard, incarnation, address
        self.end = Mark(owned, 0)
        """Where the next piece goes."""
        self._newest: CheckpointName | None = None
        self._start: Mark | None = None  # where reading begins by the newest own checkpoint
        self.is_swept = False
        """Whether what owners before have left goes too."""
        self._removed_to = 0  # pieces of this epoch before are removed, or are about to be
        self._begun = self._proven = 0  # pieces that it has begun to write, and the number of the last that is there
        self._doomed: deque[tuple[int, Sequence[str]]] = deque()  # how many were begun then, and names

    @property
    def epoch(self) -> int:
        """Which it owns."""
        return self.end.epoch

    # Becoming the owner.

    def claim(self, dead_epoch: int | None = None) -> Conversation[Found]:
        """Own the chain from now on, and know all that it holds.

        With `dead_epoch`, only as long as nobody owns a later one: raises Fenced if somebody does.
        """
        while True:
            found = yield from _read_from(self.shard, _newest((yield List(CHECKPOINTS))))
            if found is None:
                continue
            last = found.seals[-1] if found.seals else None
            if last is None or not self._is_given(last, found.end):
                if dead_epoch is not None and found.end.epoch > dead_epoch:
                    raise Fenced(last or (yield from self._seal_of(found.end.epoch)))
                seal = self._seal(found.end, self.incarnation, self.address)
                if (yield from self._create(seal)) != seal:
                    continue
                found.seals.append(seal)
                found = found._replace(end=Mark(seal.next_epoch, 0))
            if not self._is_outdated(found.name, (yield List(CHECKPOINTS))):
                break
        self.end, self._newest = found.end, found.name
        self._start, self.is_swept, self._removed_to = None, False, 0
        self._doomed.clear()
        return found

    def _seal_of(self, epoch: int) -> Conversation[Piece]:
        """The seal that began an epoch, where reading began behind it; it is the last of what came before."""
        marks = [mark for name in (yield List(PIECES)) if (mark := mark_of_name(name)) is not None]
        mark = max(mark for mark in marks if mark.epoch < epoch)
        [data] = yield Get([piece_name(mark)])
        if data is None:
            raise CorruptData(piece_name(mark), 0, "a seal was removed: seals stay for ever")
        return decode_piece(data, self.shard, mark)

    def hand_over(self, incarnation: bytes, address: str) -> Conversation[None]:
        """Make another process the owner of the next epoch."""
        while True:
            seal = self._seal(self.end, incarnation, address)
            there = yield from self._create(seal)
            if there == seal:
                return
            if there.kind == Kind.SEAL:
                raise Fenced(there)
            self.end = self.end._replace(n=self.end.n + 1)  # a piece of its own, of which it never heard

    def _is_given(self, last: Piece, end: Mark) -> bool:
        """Whether the last seal says that this process owns what comes, which it has not yet begun to use."""
        is_own = last.incarnation == self.incarnation and last.next_epoch > self.epoch
        return is_own and end == (last.next_epoch, 0)

    def _seal(self, mark: Mark, incarnation: bytes, address: str) -> Piece:
        return Piece(Kind.SEAL, mark, incarnation, mark.epoch + 1, 0, address.encode())

    def _is_outdated(self, name: CheckpointName | None, names: Sequence[str]) -> bool:
        """Whether there is a greater checkpoint than the one that was read from (rule 6)."""
        newest = _newest(names)
        return newest is not None and (name is None or newest > name)

    # As the owner.

    def append(self, sequence: int, position: int, body: bytes) -> Conversation[Piece]:
        """Write the next piece; raises Fenced if it is not written and never will be."""
        piece = Piece(Kind.PIECE, self.end, self.incarnation, sequence, position, body)
        self._begun += 1
        there = yield from self._create(piece)
        if there != piece:
            raise Fenced(there)
        self.end = Mark(piece.mark.epoch, piece.mark.n + 1)
        self._proven = self._begun
        return piece

    def _create(self, piece: Piece) -> Conversation[Piece]:
        """What lies at the place of a piece for good: that one, or what another process has put there."""
        name, data = piece_name(piece.mark), encode_piece(self.shard, piece)
        attempt = 0
        while True:
            if (yield Create(name, data)) == Outcome.DONE:
                return piece
            [there] = yield Get([name])
            if there is not None:
                return piece if there == data else decode_piece(there, self.shard, piece.mark)
            attempt += 1
            yield Wait(attempt)

    # What is not needed any more.

    def checkpoint(self, body: bytes, start: Mark) -> Conversation[None]:
        """Put the state as it is after the pieces that were written; reading needs no piece before `start` any more."""
        number = self._newest.number + 1 if self._newest is not None and self._newest[:2] == self.end else 0
        name = CheckpointName(*self.end, number)
        yield Put(checkpoint_name(name), encode_checkpoint(self.shard, start, body))
        doomed: list[str] = []
        if self._start is not None:
            assert self._newest is not None
            doomed.append(checkpoint_name(self._newest))
        removed_to = start.n if start.epoch == self.epoch else 0
        doomed += [piece_name(Mark(self.epoch, n)) for n in range(self._removed_to, removed_to)]
        self._newest, self._start, self._removed_to = name, start, removed_to
        self.doom(doomed)

    def sweep(self) -> Conversation[None]:
        """Have what earlier owners have left go too, once, when there is an own checkpoint (rule 7)."""
        if self.is_swept or self._start is None or self._newest is None:
            return
        doomed = yield from self._left_by_others(self._newest, self._start)
        while self._doomed:  # what was needless before has to be proven from now on
            doomed += self._doomed.popleft()[1]
        self.is_swept = True
        self.doom(doomed)

    def doom(self, names: Sequence[str]) -> None:
        """Have objects go that the last checkpoint has made needless."""
        self._doomed.append((self._begun, names))

    def _left_by_others(self, name: CheckpointName, start: Mark) -> Conversation[list[str]]:
        """Checkpoints before, and pieces of earlier epochs that are not needed; of each epoch the last is its seal."""
        earlier = [found for other in (yield List(CHECKPOINTS)) if (found := checkpoint_of_name(other)) is not None]
        marks = [mark for other in (yield List(PIECES)) if (mark := mark_of_name(other)) is not None]
        marks = [mark for mark in marks if mark.epoch < self.epoch]
        seals = self._seals(marks)
        doomed = [checkpoint_name(other) for other in earlier if other < name]
        return doomed + [piece_name(mark) for mark in marks if mark < start and mark not in seals]

    def _seals(self, marks: Sequence[Mark]) -> set[Mark]:
        """The last of each epoch (rule 5)."""
        return set({mark.epoch: mark for mark in sorted(marks)}.values())

    @property
    def awaits_proof(self) -> bool:
        """Whether something could go if one more piece came, and none has been begun."""
        return self.is_swept and bool(self._doomed) and self._doomed[-1][0] == self._begun

    def take_needless(self) -> list[str]:
        """Names that may go, now and at any later time."""
        needless: list[str] = []
        while self.is_swept and self._doomed and self._doomed[0][0] < self._proven:
            needless += self._doomed.popleft()[1]
        return needless
