"""The chain of a shard on a bucket: its seals, the pieces behind the newest checkpoint, and the checkpoints.

Owners may go on meanwhile: what is needed behind a checkpoint stays for a while after it is needed no more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.journal.bucket_state import decode_state
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
    mark_of_name,
    piece_name,
)
from penstock.model.errors import CorruptData
from penstock.shard.checking.report import EVERYTHING, KEEP_SEALS, RESTORE, ChainCounts, CheckReport, Problem
from penstock.storage.objects import ObjectStore

_AT_ONCE = 32
Progress = Callable[[str, int, int], None]


class _Run(NamedTuple):
    """Names of one epoch that are there."""

    epoch: int
    numbers: list[int]


class ChainCheck:
    """One check of a chain; nothing is written."""

    def __init__(self, objects: ObjectStore, shard: int, report: CheckReport, progress: Progress) -> None:
        self._objects, self._shard, self._report, self._progress = objects, shard, report, progress
        self._epoch = 0  # of the newest checkpoint
        self.is_readable = True
        """Whether all is there that the state is folded from."""

    def run(self) -> None:
        """Check everything that is only there on a bucket."""
        start, bundles = self._checkpoints()
        marks = sorted(mark for name in self._objects.list(PIECES) if (mark := mark_of_name(name)) is not None)
        runs = [
            _Run(epoch, [mark.n for mark in found])
            for epoch, found in itertools.groupby(marks, lambda mark: mark.epoch)
        ]
        self._seals(start, runs)
        pieces = self._pieces(start, runs)
        self._report.chain = ChainCounts(marks[-1].epoch if marks else 0, pieces, bundles)

    def _tell(self, file: str, wrong: str, affected: list[str], repair: str) -> None:
        self._report.problems.append(Problem(file, 0, wrong, affected, repair, repairable=False))

    def _lost(self, file: str, wrong: str, affected: list[str]) -> None:
        """Something that the state is folded from."""
        self.is_readable = False
        self._tell(file, wrong, affected, RESTORE)

    # The checkpoints.

    def _checkpoints(self) -> tuple[Mark, int]:
        """Where reading begins, and how many bundles the newest one lists."""
        names = sorted(filter(None, map(checkpoint_of_name, self._objects.list(CHECKPOINTS))))
        start, bundles = Mark(0, 0), 0
        self._epoch = names[-1].epoch if names else 0
        for number, name in enumerate(names):
            self._progress(checkpoint_name(name), number, len(names))
            data = self._objects.get(checkpoint_name(name))
            if data is not None:  # else it is removed, because a later one is there
                start, bundles = self._checkpoint(name, data, is_newest=name == names[-1]) or (start, bundles)
        return start, bundles

    def _checkpoint(self, name: CheckpointName, data: bytes, is_newest: bool) -> tuple[Mark, int] | None:
        shown = checkpoint_name(name)
        try:
            start, body = decode_checkpoint(data, self._shard, shown)
            return start, len(decode_state(body, shown).bundles)
        except CorruptData as error:
            if is_newest:
                self._lost(shown, error.problem, [EVERYTHING])
            else:
                self._report.notes.append(f"{shown}: {error.problem}; a later one is there, so nobody needs it")
            return None

    # The seals.

    def _seals(self, start: Mark, runs: Sequence[_Run]) -> None:
        """From the first epoch on, each must end with a seal that leads to the next (C1, C4)."""
        expected = 0
        last = [Mark(run.epoch, run.numbers[-1]) for run in runs]
        for mark, data in zip(last, self._read(last), strict=True):
            if mark.epoch > expected:
                self._tell_missing(expected, mark.epoch - 1, start)
            is_last = mark == last[-1]
            piece = None if data is None else self._decoded(mark, data)
            if piece is not None and piece.kind == Kind.SEAL:
                expected = piece.next_epoch
            else:
                expected = mark.epoch + 1
                if not is_last:
                    self._tell_missing(mark.epoch, mark.epoch, start)
        if self._epoch > expected:
            self._tell_missing(expected, self._epoch - 1, start)

    def _tell_missing(self, first: int, last: int, start: Mark) -> None:
        name = f"{PIECES}{first:010d}/"
        wrong = f"the seal of epoch {first} is missing" if first == last else f"no seals of epochs {first} to {last}"
        if last < start.epoch:
            self._tell(name, wrong, [], KEEP_SEALS)
        else:
            self._lost(name, wrong, [f"what was committed after epoch {max(first, start.epoch)}"])

    # The pieces.

    def _pieces(self, start: Mark, runs: Sequence[_Run]) -> int:
        """From where reading begins, there is a piece at each place, and at the end of each epoch its seal (C2)."""
        needed = [Mark(run.epoch, number) for run in runs for number in run.numbers if (run.epoch, number) >= start]
        for epoch, found in itertools.groupby(needed, lambda mark: mark.epoch):
            self._gaps(start.n if epoch == start.epoch else 0, [mark.n for mark in found], epoch)
        count = 0
        for number, (mark, data) in enumerate(zip(needed, self._read(needed), strict=True)):
            self._progress(piece_name(mark), number, len(needed))
            affected = [f"what was committed since piece {mark.n} of epoch {mark.epoch}"]
            if data is None:
                self._lost(piece_name(mark), "it is missing", affected)
            elif (piece := self._decoded(mark, data)) is None:
                self._lost(piece_name(mark), "it does not match its checksum, or belongs elsewhere", affected)
            else:
                count += piece.kind == Kind.PIECE
        return count

    def _gaps(self, first: int, numbers: Sequence[int], epoch: int) -> None:
        for before, after in itertools.pairwise([first - 1, *numbers]):
            if after > before + 1:
                name = piece_name(Mark(epoch, before + 1))
                wrong = "it is missing" + (f", and all up to number {after - 1}" if after > before + 2 else "")
                self._lost(name, wrong, [f"what was committed since piece {before + 1} of epoch {epoch}"])

    def _decoded(self, mark: Mark, data: bytes) -> Piece | None:
        try:
            return decode_piece(data, self._shard, mark)
        except CorruptData:
            return None

    def _read(self, marks: Sequence[Mark]) -> Iterator[bytes | None]:
        for first in range(0, len(marks), _AT_ONCE):
            yield from self._objects.get_many([piece_name(mark) for mark in marks[first : first + _AT_ONCE]])
