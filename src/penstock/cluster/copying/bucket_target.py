"""A copy on a bucket."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter

import msgspec

from penstock.cluster.directory import DIVISION, Step, decode_division, encode_division, part_name
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
from penstock.storage.objects import ObjectStore

_COPY = b"penstock copy".ljust(INCARNATION_BYTES, b"\0")
"""Who has written what is there before the first owner."""
_PIECE_BYTES = 8 << 20
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

    def begin(self, source: str, shards: int | None) -> None:
        known = self._objects.get(DIVISION)
        division = None if known is None else decode_division(known)
        begun = division is not None and division.resharding is Step.COPYING and division.source == source
        if not begun and (known is not None or self._objects.list("")):
            other = f", but for an unfinished copy of {division.source}" if division and division.source else ""
            raise InvalidArgument(f"{self.address} is not empty{other}: give a place in the bucket that is new")
        self._shards = shards or 1  # a bucket is always divided
        self._objects.put(DIVISION, encode_division(self._shards, Step.COPYING, source=source))

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
    """A shard on a bucket, which nobody has owned yet."""

    def __init__(self, root: ObjectStore, number: int) -> None:
        self._root, self._number = root, number
        self._objects = root.part(f"{part_name(number)}/")
        self._epoch = 0
        self._bundles: list[Bundle] = []

    def begin(self, epoch: int) -> None:
        self._epoch, self._bundles = epoch, []
        self._objects.delete([name for prefix in _MARKS for name in self._objects.list(prefix)])

    def put_journal(self, sequence: int, data: bytes, is_newest: bool) -> None:
        if not is_newest:
            bundle = Bundle(sequence, self._epoch, len(data))
            self._objects.put(bundle.name, data)
            self._bundles.append(bundle)
            return
        for n, position in enumerate(range(0, len(data), _PIECE_BYTES)):  # its next owner goes on with it
            body = data[position : position + _PIECE_BYTES]
            self._put(Piece(Kind.PIECE, Mark(self._epoch, n), _COPY, sequence, position, body))

    def put_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._put(Piece(Kind.SEAL, Mark(0, 0), _COPY, self._epoch, 0, b""))
        state = BucketState(sorted(self._bundles, key=attrgetter("sequence")), b"".join(encode_state(checkpoint)))
        name = CheckpointName(self._epoch, 0, 0)
        body = encode_checkpoint(self._number, Mark(self._epoch, 0), msgspec.msgpack.encode(state))
        self._objects.put(checkpoint_name(name), body)

    def _put(self, piece: Piece) -> None:
        self._objects.put(piece_name(piece.mark), encode_piece(self._number, piece))

    def files(self) -> set[str]:
        return {name for top in ("topics", STAGES) for name in self._objects.list(f"{top}/")}

    def put_file(self, archive: str | None, name: str, data: bytes) -> None:
        place = self._objects if archive is None else self._root.part(f"{archive}/")
        place.put(name, data)

    def remove(self, names: Collection[str]) -> None:
        self._objects.delete(sorted(names))

    def open(self) -> ReadOnlyShard:
        return ReadOnlyShard(self._objects, self._number, self._root)
