"""The checkpoint on disk: two copies, written one after the other.

A rotten bit in one leaves the other, and journal files go only when both copies are on disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.log.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from penstock.log.pieces import Pieces
from penstock.model.errors import CorruptData
from penstock.storage import Storage, put_file, read_file

COPIES = ("checkpoint-a", "checkpoint-b")


def write_checkpoint(storage: Storage, checkpoint: Checkpoint, topics: Sequence[Pieces] = ()) -> int:
    """Put both copies on disk, with topics that are encoded already; how large each is."""
    buffers = encode_checkpoint(checkpoint, topics)
    for name in COPIES:
        put_file(storage, name, buffers)
    return sum(map(len, buffers))


def read_checkpoint(storage: Storage) -> Checkpoint | None:
    """The newest valid copy; None if there never was one."""
    found: list[Checkpoint] = []
    damaged = ""
    names = storage.list("")
    for name in COPIES:
        if name in names:
            checkpoint = decode_checkpoint(read_file(storage, name))
            if checkpoint is None:
                damaged = name
            else:
                found.append(checkpoint)
    if not found and damaged:
        raise CorruptData(damaged, 0, "no copy of the checkpoint matches its checksum")
    return max(found, key=lambda checkpoint: checkpoint.number, default=None)
