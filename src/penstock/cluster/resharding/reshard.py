"""Copies a data directory to another number of shards, and puts the copy in its place; the original is kept."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.cluster.directory import (
    DIVISION,
    Step,
    part_name,
    read_division,
    readable_by,
    settle_division,
    shards_of,
    write_division,
)
from penstock.cluster.resharding.comparison import Compared, CopyDiffers, Tell, compare
from penstock.cluster.resharding.shard_copy import ShardCopy
from penstock.cluster.resharding.shard_plan import plan_shards
from penstock.cluster.resharding.stage_copy import staged_messages, write_stages
from penstock.cluster.resharding.stage_plan import plan_stages
from penstock.cluster.resharding.stored_shard import StoredShard
from penstock.cluster.resharding.swap import BEFORE, COPY, finish_swap, swap
from penstock.model.clock import ShardClock, SystemClock
from penstock.model.errors import InvalidArgument
from penstock.model.options import whole
from penstock.model.placement import SHARDS_MAX, Place
from penstock.shard.interrupts import uninterrupted
from penstock.storage import FileStorage
from penstock.storage.read_only import ReadOnlyStorage

_LOCK, _TOKENS = "LOCK", "tokens.json"


@dataclass(frozen=True)
class Resharded:
    """What was done."""

    shards: int
    """How many there are now."""
    compared: Compared | None
    """What was copied and compared; None if an earlier run had done that, or if there was nothing to do."""
    aside: Path | None
    """Where the original is now; None if it is still in its place."""


def reshard(directory: Path, shards: int, tell: Tell, clock: ShardClock | None = None) -> Resharded:
    """Give a directory so many shards; the original stays inside it, in `before-reshard`.

    When it was killed, at whatever moment, another call finishes it. On any error the directory is as it was.
    """
    wanted = whole(1, SHARDS_MAX)(shards)
    with _locked(_existing(directory)) as root:
        _check_owner(root)
        if finish_swap(root):
            _remove(Path(root.path) / COPY)
            return Resharded(shards_of(root) or 1, None, directory / BEFORE)
        before = shards_of(root) or 1
        _remove(Path(root.path) / COPY)
        if before == wanted:
            return Resharded(wanted, None, None)
        if BEFORE in root.list(""):
            raise InvalidArgument(
                f"{directory / BEFORE} is there, the directory as it was before it was last resharded: remove it, or "
                "move it elsewhere"
            )
        try:
            compared = _copy(root, before, root.part(COPY), wanted, tell, clock or SystemClock())
        except BaseException:
            _remove(Path(root.path) / COPY)
            raise
        with contextlib.suppress(KeyboardInterrupt):  # raised when it is done: it came too late
            swap(root, before, wanted)
        _remove(Path(root.path) / COPY)
        return Resharded(wanted, compared, directory / BEFORE)


def copy_resharded(
    directory: Path, shards: int, target: Path, tell: Tell, clock: ShardClock | None = None
) -> Resharded:
    """Make a copy of a directory that has so many shards; the original is not changed."""
    wanted = whole(1, SHARDS_MAX)(shards)
    with _locked(_existing(directory)) as root:
        before = shards_of(root) or 1
        is_made = not target.exists()
        with _locked(FileStorage(target, readable_by(directory))) as copy:
            _clear_unfinished(copy)
            try:
                compared = _copy(root, before, copy, wanted, tell, clock or SystemClock())
                if _TOKENS in root.list(""):
                    shutil.copy2(directory / _TOKENS, target / _TOKENS)
            except BaseException:
                _remove(target) if is_made else _clear_unfinished(copy)
                raise
            settle_division(copy, wanted)
    return Resharded(wanted, compared, None)


def _copy(root: FileStorage, before: int, target: FileStorage, wanted: int, tell: Tell, clock: ShardClock) -> Compared:
    """Write the copy, and compare it with the original."""
    write_division(target, wanted, Step.COPYING)
    with contextlib.ExitStack() as open_here:
        originals: list[StoredShard] = []
        for number, storage in enumerate(_places(root, before)):
            tell("reading the original", number, before)
            if before > 1:
                open_here.enter_context(_locked(storage))
            originals.append(StoredShard(Place(number, before), _read_only(storage), clock))
            open_here.callback(originals[-1].close)
        stages = plan_stages(originals, clock)
        plans = plan_shards(originals, wanted, stages, clock)
        places = _places(target, wanted)
        total, done = sum(len(plan.moves) for plan in plans), itertools.count()
        for plan, place in zip(plans, places, strict=True):
            ShardCopy(place, plan, clock).write(lambda name: tell(f"copying {name}", next(done), total))
        staged = write_stages(stages, places)
        copies = list(map(_read_only, places))
        compared = compare(plans, originals, copies, clock, tell)
        if staged_messages(stages, copies) != staged:
            raise CopyDiffers("the stages: the copy is not as the original")
        return compared


def _places(root: FileStorage, shards: int) -> list[FileStorage]:
    return [root] if shards == 1 else [root.part(part_name(number)) for number in range(shards)]


def _read_only(place: FileStorage) -> ReadOnlyStorage:
    return ReadOnlyStorage(place.path, place.base_path)


def _existing(directory: Path) -> FileStorage:
    if not directory.is_dir():
        raise InvalidArgument(f"{directory} is not a directory")
    return FileStorage(directory, readable_by(directory))


def _check_owner(root: FileStorage) -> None:
    """Raise if the broker that owns the directory could not open what is made here."""
    owner = os.stat(root.path).st_uid
    if owner != os.geteuid():
        raise InvalidArgument(f"{root.path} belongs to another user (number {owner}): reshard it as that user")


@contextlib.contextmanager
def _locked(storage: FileStorage) -> Iterator[FileStorage]:
    storage.lock()
    try:
        yield storage
    finally:
        storage.close()


def _clear_unfinished(copy: FileStorage) -> None:
    """Empty a directory that holds nothing but a copy that was not finished; raises if it holds anything else."""
    names = [name for name in copy.list("") if name != _LOCK]
    division = read_division(copy)
    if names and (division is None or division.resharding is not Step.COPYING or division.source):
        raise InvalidArgument(f"{copy.path} is not empty: give a directory that is new")
    for name in sorted(names, key=lambda name: name == DIVISION):  # it says until the end what this is
        _remove(Path(copy.path) / name)


@uninterrupted
def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
