"""Puts the copy in the place of the original, inside the data directory.

Not beside it: the directory may be mounted, and who runs a broker may not be allowed to write beside it.

    step in penstock.json    what a crash leaves, and what the next run does
    none                     the original, perhaps with a part of a copy: the copy is made anew
    moving out               a complete copy, and a part of the original in `before-reshard`: the rest follows
    moving in                the original in `before-reshard`, and a part of the copy in its place: the rest follows
    none                     the copy, perhaps with an empty `resharding`, which is removed

A broker refuses to open the directory while `penstock.json` has a step.
"""

from __future__ import annotations

from penstock.cluster.directory import DIVISION, Step, read_division, settle_division, write_division
from penstock.model.stored import STAGES
from penstock.shard.checkpoint_files import COPIES
from penstock.shard.interrupts import uninterrupted
from penstock.storage import Storage

BEFORE = "before-reshard"
"""The directory of the original, which is a data directory itself."""
COPY = "resharding"
"""The directory of the copy, until it is complete."""
_OLD = ("shards", "journal", "topics", STAGES, "quarantine", *COPIES)


@uninterrupted
def swap(root: Storage, before: int, shards: int) -> None:
    """Put the copy, which is complete, in the place of the original, which had so many shards."""
    write_division(root, shards, Step.MOVING_OUT, before)
    finish_swap(root)


@uninterrupted
def finish_swap(root: Storage) -> bool:
    """Do the rest of a swap; False if none was begun."""
    division = read_division(root)
    if division is None or division.resharding not in (Step.MOVING_OUT, Step.MOVING_IN):
        return False
    shards, before = division.shards, division.before
    if division.resharding is Step.MOVING_OUT:
        aside = root.part(BEFORE)
        _move(root, "", BEFORE, [name for name in root.list("") if name in _OLD])
        if before > 1:
            write_division(aside, before)
        write_division(root, shards, Step.MOVING_IN, before)
    _move(root, COPY, "", [name for name in root.list(COPY) if name != DIVISION])
    settle_division(root, shards)
    return True


def _move(root: Storage, source: str, target: str, names: list[str]) -> None:
    for name in names:
        root.rename(f"{source}/{name}" if source else name, f"{target}/{name}" if target else name)
    root.sync_directory(source)
    root.sync_directory(target)
