"""Chains, and habits of owners, that break a rule each: the model must find that out."""

from __future__ import annotations

from typing import Any

from penstock.journal.chain import Chain, Conversation, Create, Fenced, Get, Wait
from penstock.journal.chain_layout import Kind, Mark, Piece, decode_piece, encode_piece, piece_name
from tests.journal.chain_model import Habits


class RemovesWithoutProof(Chain):
    """What a checkpoint makes needless is removed at once (rule 4)."""

    def checkpoint(self, *arguments: Any) -> Conversation[None]:
        yield from super().checkpoint(*arguments)
        self._proven = self._begun + 1


class RemovesBeforeItsOwnCheckpoint(Chain):
    """What earlier owners have left goes when this one has proven that it is one (rule 7)."""

    def take_needless(self) -> list[str]:
        was_swept, self.is_swept = self.is_swept, True
        needless = super().take_needless()
        self.is_swept = was_swept
        return needless


class RemovesSeals(Chain):
    """Seals go with the pieces before them (rule 5)."""

    def _seals(self, marks: Any) -> set[Any]:
        return set()


class LooksOnce(Chain):
    """Does not look at the checkpoints after its seal (rule 6)."""

    def _is_outdated(self, *_: Any) -> bool:
        return False


class LooksOnceWhenGiven(Chain):
    """Who was handed an epoch does not look at the checkpoints again (rule 6)."""

    _was_given = False

    def _is_given(self, last: Piece, end: Mark) -> bool:
        self._was_given = super()._is_given(last, end)
        return self._was_given

    def _is_outdated(self, *arguments: Any) -> bool:
        return not self._was_given and super()._is_outdated(*arguments)


class TakesUpWhatItHad(Chain):
    """Goes on in an epoch that it owned before, when it has nothing in it."""

    def _is_given(self, last: Piece, end: Mark) -> bool:
        return last.incarnation == self.incarnation and end == (last.next_epoch, 0)


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


BROKEN = [
    RemovesWithoutProof,
    RemovesBeforeItsOwnCheckpoint,
    RemovesSeals,
    LooksOnce,
    LooksOnceWhenGiven,
    TakesUpWhatItHad,
    BelievesInSilence,
    GivesUpInSilence,
]
"""Each breaks one rule."""
BAD_HABITS = [Habits()._replace(**{name: False}) for name in Habits._fields]
"""And so does each of these."""
