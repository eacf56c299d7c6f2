"""What a checkpoint of the chain holds: which journal files are bundles, and the shard's own checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from penstock.journal.chain_layout import Piece
from penstock.model.errors import CorruptData

BUNDLES = "bundles/"


class Bundle(msgspec.Struct, array_like=True, frozen=True):
    """A journal file that is one object."""

    sequence: int
    epoch: int
    """Of who put it."""
    size_bytes: int

    @property
    def name(self) -> str:
        """Of the object."""
        return f"{BUNDLES}{self.sequence:016d}-{self.epoch:010d}.journal"


class BucketState(msgspec.Struct, array_like=True):
    """What a checkpoint of the chain holds."""

    bundles: list[Bundle]
    checkpoint: bytes
    """As on a disk."""

    def unbundled(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces of journal files that are no bundles; some belong to no file, and only prove something."""
        bundled = {bundle.sequence for bundle in self.bundles}
        return (piece for piece in pieces if piece.sequence and piece.sequence not in bundled)


def decode_state(data: bytes | None, address: str) -> BucketState:
    """What the checkpoint of a chain says; an empty state where there is none."""
    if data is None:
        return BucketState([], b"")
    try:
        return msgspec.msgpack.decode(data, type=BucketState)
    except msgspec.MsgspecError as error:
        raise CorruptData(address, 0, f"the checkpoint is not what was written: {error}") from error
