"""Reads a copied shard back: every byte of it, as a broker would find it."""

from __future__ import annotations

from google_crc32c import value as crc32c

from penstock.cluster.copying.needed_files import NeededSegment, read_listed
from penstock.cluster.copying.shard_copy import ShardCopied, ShardCopy, in_parallel, storage_of
from penstock.cluster.copying.shard_cut import Tell
from penstock.cluster.resharding.stored_shard import StoredShard
from penstock.journal.layout import file_name
from penstock.log.invariants import violations
from penstock.log.state import State
from penstock.model.errors import CorruptData, PenstockError
from penstock.model.stored import STAGES
from penstock.shard.checking.segments import read_segment
from penstock.shard.checkpoint_files import read_checkpoint
from penstock.shard.staging.stage_files import SEALED, SealedFile
from penstock.storage import Storage, read_file


class CopyDiffers(PenstockError):
    """What is in the copy is not what was written there."""


def verify(shard: ShardCopy, copied: ShardCopied, tell: Tell) -> State:
    """The state of the copy, if all is there as it should be; segments that are not are copied once more."""
    storage = shard.target.open()
    _verify_state(storage, copied)
    for name in copied.files.stages:
        if name.endswith(SEALED):
            _verify_stage(storage, name.removeprefix(f"{STAGES}/").removesuffix(SEALED))
    done, total = 0, copied.files.size_bytes
    for segment in in_parallel(lambda segment: _verify_segment(shard, storage, segment), copied.files.segments):
        done += segment.info.size_bytes
        tell(f"verifying {segment.name}", done, total)
    copy = StoredShard(shard.place, storage, shard.clock)
    copy.close()
    for problem in violations(copy.state):
        raise CopyDiffers(problem)
    return copy.state


def _verify_state(storage: Storage, copied: ShardCopied) -> None:
    if read_checkpoint(storage) != copied.cut.checkpoint:
        raise CopyDiffers("the checkpoint is not what was written")
    for file in copied.cut.journal:
        data = read_file(storage, file_name(file.sequence))
        if (len(data), crc32c(data)) != (file.size_bytes, file.crc):
            raise CopyDiffers(f"{file_name(file.sequence)} is not what was written")


def _verify_stage(storage: Storage, file: str) -> None:
    with SealedFile(storage, file) as sealed:
        for position, _ in sealed.lengths():
            sealed.check(position)


def _verify_segment(shard: ShardCopy, storage: Storage, segment: NeededSegment) -> None:
    """Read a segment of the copy. If it is damaged, and the original is not, it is copied once more."""
    place = storage_of(storage, segment)
    try:
        read_segment(place, segment.name, segment.table, segment.info)
    except (CorruptData, FileNotFoundError):
        source = storage_of(shard.source(), segment)
        read_segment(source, segment.name, segment.table, segment.info)
        data = read_listed(source, segment.name, segment.info)
        shard.target.put_file(segment.archive, segment.name, data)
        read_segment(place, segment.name, segment.table, segment.info)
