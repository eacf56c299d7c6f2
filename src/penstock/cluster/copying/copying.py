"""Copies a data directory or a bucket, and declares the copy complete when all of it was read back."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from penstock.cluster.copying.bucket_target import BucketTarget
from penstock.cluster.copying.directory_target import DirectoryTarget
from penstock.cluster.copying.shard_copy import ShardCopied, ShardCopy
from penstock.cluster.copying.shard_cut import Tell, check_kept
from penstock.cluster.copying.targets import Target
from penstock.cluster.copying.verification import verify
from penstock.cluster.directory import part_name, readable_by, shards_of
from penstock.journal.bucket_reading import open_root_for_reading, pause_of_readers
from penstock.log.state import State
from penstock.model.clock import ShardClock, SystemClock
from penstock.model.errors import InvalidArgument
from penstock.model.placement import Place
from penstock.model.schedules import SCHEDULES
from penstock.model.units import Time, parse_time_us
from penstock.shard.checkpoint_files import read_checkpoint
from penstock.shard.operations.groups import group_names
from penstock.storage.buckets import is_bucket, open_objects
from penstock.storage.persistent import PersistentObjects
from penstock.storage.read_only import ReadableStorage

_TOKENS = "tokens.json"


@dataclass
class Copied:
    """What the copy has."""

    shards: int
    topics: set[str] = field(default_factory=set)
    partitions: int = 0
    messages: int = 0
    """How many the logs hold, in segments, archives and the journal."""
    groups: set[tuple[str, str]] = field(default_factory=set)
    size_bytes: int = 0
    """Of segments and journal."""
    copied_bytes: int = 0
    """How much of that was not there from an earlier run."""
    elsewhere: set[str] = field(default_factory=set)
    """Archives that the copy refers to, as the source does."""

    def add(self, state: State, copied: ShardCopied) -> None:
        """Count a shard."""
        for topic in state.catalog.by_id.values():
            if topic.name == SCHEDULES:
                continue
            self.topics.add(topic.name)
            self.groups |= {(topic.name, group) for group in group_names(topic)}
            self.partitions += len(topic.own_partitions)
            for partition in topic.partitions:
                log = partition.messages
                self.messages += sum(segment.rows for segment in log.segments) + sum(
                    block.count for block in log.blocks()
                )
        journal_bytes = sum(file.size_bytes for file in copied.cut.journal)
        self.size_bytes += copied.files.size_bytes + journal_bytes
        self.copied_bytes += copied.copied_bytes + journal_bytes
        self.elsewhere |= copied.files.elsewhere


def copy(source: str, target: str, tell: Tell, clock: ShardClock | None = None, until: Time | None = None) -> Copied:
    """Copy what is at one path or address to another one, which must be new, or an unfinished copy of the same.

    The source may be in use. Called again after it was interrupted, at whatever moment, it goes on. With `until`, what
    was committed later is left out, as far as it is behind the last checkpoint.
    """
    root = open_root_for_reading(source)
    if root.is_shared:
        root.check_readable()  # a directory may be in use, and is read all the same
    _check_apart(root.path, target)
    with_mode = "owner" if is_bucket(source) else readable_by(Path(source))
    place = open_target(target, with_mode)
    try:
        return copy_root(root, place, tell, clock or SystemClock(), None if until is None else parse_time_us(until))
    finally:
        place.close()


def open_target(address: str, readable_by: str = "owner") -> Target:
    """Where a copy can be written."""
    if is_bucket(address):
        return BucketTarget(PersistentObjects(open_objects(address), pause_of_readers()))
    return DirectoryTarget(address, readable_by)


def copy_root(
    root: ReadableStorage, target: Target, tell: Tell, clock: ShardClock, until_us: int | None = None
) -> Copied:
    """Copy all shards, read them back, and declare the copy complete."""
    count = shards_of(root)
    if until_us is not None:
        _check_kept(root, count, until_us)
    target.begin(root.path, count or 1)
    copies = [
        ShardCopy(
            partial(_place, root, count, number), target.shard(number), Place(number, count or 1), clock, until_us
        )
        for number in range(count or 1)
    ]
    found = [shard.copy(target.check_archive, partial(_tell_of, tell, shard)) for shard in copies]
    result = Copied(count or 1)
    for shard, copied in zip(copies, found, strict=True):
        if copied is not None:
            result.add(verify(shard, copied, partial(_tell_of, tell, shard)), copied)
    if isinstance(target, DirectoryTarget) and not root.is_shared and _TOKENS in root.list(""):
        shutil.copy2(os.path.join(root.path, _TOKENS), os.path.join(target.address, _TOKENS))
    target.finish()
    return result


def _check_kept(root: ReadableStorage, count: int | None, until_us: int) -> None:
    """Raise, before anything is made, if the state of a time is not kept in every shard."""
    checkpoints = [read_checkpoint(_place(root, count, number)) for number in range(count or 1)]
    newest = max(filter(None, checkpoints), key=lambda checkpoint: checkpoint.time_us, default=None)
    if newest is not None:
        check_kept(newest, until_us)


def _place(root: ReadableStorage, count: int | None, number: int) -> ReadableStorage:
    """A shard as it is now."""
    return root if count is None else root.part(part_name(number))


def _tell_of(tell: Tell, shard: ShardCopy, what: str, done: int, total: int) -> None:
    tell(what if shard.place.shards == 1 else f"shard {shard.place.number}: {what}", done, total)


def _check_apart(source: str, target: str) -> None:
    """Raise if one is in the other."""
    places = [address if is_bucket(address) else Path(address).absolute().as_uri() for address in (source, target)]
    first, second = (f"{place.rstrip('/')}/" for place in places)
    if first.startswith(second) or second.startswith(first):
        raise InvalidArgument(f"{target} is not apart from {source}: give a place outside of it")
