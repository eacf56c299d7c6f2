"""A copy on a bucket."""

from __future__ import annotations

import errno
from collections.abc import Collection
from operator import attrgetter

import msgspec

from penstock.cluster.copying.targets import refuse_other
from penstock.cluster.directory import DIVISION, Step, copying, decode_division, encode_division, part_name
from penstock.journal.bucket_reading import ReadOnlyShard
from penstock.journal.bucket_state import BUNDLES, BucketState, Bundle
from penstock.journal.chain_layout import (
    CHECKPOINTS,
    INCARNATION_BYTES,
    PIECES,
    CheckpointName,
    Kind,
    Mark,
    Piece,
    checkpoint_name,
    encode_checkpoint,
    encode_piece,
    piece_name,
)
from penstock.log.checkpoint import Checkpoint
from penstock.log.checkpoint import encode_checkpoint as encode_state
from penstock.model.errors import InvalidArgument
from penstock.model.stored import STAGES
from penstock.storage.buckets import is_bucket
from penstock.storage.objects import ObjectStore, Outcome, StoreUnavailable

_COPY = b"penstock copy".ljust(INCARNATION_BYTES, b"\0")
"""Who has written what is there before the first owner."""
_PIECE_BYTES = 8 << 20
_ATTEMPTS = 9
_MARKS = (PIECES, CHECKPOINTS, BUNDLES)


class BucketTarget:
    """A place in a bucket that holds nothing but the copy."""

    def __init__(self, objects: ObjectStore) -> None:
        """`objects`: asked again when they do not answer."""
        self._objects = objects
        self._shards = 1

    @property
    def address(self) -> str:
        return self._objects.address

    def begin(self, source: str, shards: int) -> None:
        self._shards = shards
        known = self._objects.get(DIVISION)
        division = None if known is None else decode_division(known)
        if division == copying(source, shards):
            return
        if known is not None or self._objects.list(""):
            refuse_other(self.address, division)
        self._create(encode_division(shards, Step.COPYING, source=source))

    def _create(self, division: bytes) -> None:
        """Say that this is a copy: by create, which cannot be done late when it is complete."""
        for _ in range(_ATTEMPTS):
            if self._objects.create(DIVISION, division) == Outcome.DONE or self._objects.get(DIVISION) == division:
                return
        raise StoreUnavailable(errno.EIO, f"{self.address}: {DIVISION} cannot be made, or somebody else has made it")

    def check_archive(self, archive: str) -> None:
        if not is_bucket(archive):
            raise InvalidArgument(
                f"segments are archived in {archive}, a directory of this machine, which brokers on other machines "
                "cannot reach: only an archive inside the data directory (a relative path) is copied to a bucket"
            )

    def shard(self, number: int) -> BucketShard:
        return BucketShard(self._objects, number)

    def finish(self) -> None:
        self._objects.put(DIVISION, encode_division(self._shards))

    def close(self) -> None:
        """There is no lock."""


class BucketShard:
    """A shard on a bucket, which nobody has owned yet.

    What an earlier attempt has left is removed only if it has no place in this one: a request to remove may be done
    late, and must not meet what was put since.
    """

    def __init__(self, root: ObjectStore, number: int) -> None:
        self._root, self._number = root, number
        self._objects = root.part(f"{part_name(number)}/")
        self._epoch = 0
        self._bundles: list[Bundle] = []
        self._names: set[str] = set()  # of what was put

    def begin(self, epoch: int) -> None:
        self._epoch, self._bundles, self._names = epoch, [], set()

    def put_journal(self, sequence: int, data: bytes, is_newest: bool) -> None:
        if not is_newest:
            bundle = Bundle(sequence, self._epoch, len(data))
            self._put(bundle.name, data)
            self._bundles.append(bundle)
            return
        for n, position in enumerate(range(0, len(data), _PIECE_BYTES)):  # its next owner goes on with it
            body = data[position : position + _PIECE_BYTES]
            self._put_piece(Piece(Kind.PIECE, Mark(self._epoch, n), _COPY, sequence, position, body))

    def put_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._put_piece(Piece(Kind.SEAL, Mark(0, 0), _COPY, self._epoch, 0, b""))
        state = BucketState(sorted(self._bundles, key=attrgetter("sequence")), b"".join(encode_state(checkpoint)))
        name = CheckpointName(self._epoch, 0, 0)
        body = encode_checkpoint(self._number, Mark(self._epoch, 0), msgspec.msgpack.encode(state))
        self._put(checkpoint_name(name), body)
        self.clear()

    def clear(self) -> None:
        there = {found for prefix in _MARKS for found in self._objects.list(prefix)}
        self._objects.delete(sorted(there - self._names))

    def _put_piece(self, piece: Piece) -> None:
        self._put(piece_name(piece.mark), encode_piece(self._number, piece))

    def _put(self, name: str, data: bytes) -> None:
        self._objects.put(name, data)
        self._names.add(name)

    def files(self) -> set[str]:
        return {name for top in ("topics", STAGES) for name in self._objects.list(f"{top}/")}

    def put_file(self, archive: str | None, name: str, data: bytes) -> None:
        place = self._objects if archive is None else self._root.part(f"{archive}/")
        place.put(name, data)

    def remove(self, names: Collection[str]) -> None:
        self._objects.delete(sorted(names))

    def open(self) -> ReadOnlyShard:
        return ReadOnlyShard(self._objects, self._number, self._root)
