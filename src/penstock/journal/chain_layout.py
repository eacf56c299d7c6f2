"""The names and bytes of the objects that are a shard's journal on a bucket. Little endian.

Numbers in names have ten digits, so that names are in the order of what they say.

    journal/<epoch>/<n>                     a piece, or the seal that ends the epoch; always by create; n from 0
    checkpoints/<epoch>-<n>-<number>        the state when n pieces of the epoch were there

    piece or seal, 64 bytes and its body
      4s   magic         "PNPC"
      u32  check         CRC-32C of the rest of the header and the body
      u16  version       1
      u8   kind          1 piece, 2 seal
      u8   (zero)
      u32  shard
      u64  epoch         where it lies: an object that was copied to another name is not valid there
      u64  n
      16s  incarnation   of the process that wrote it; of a seal: that owns the next epoch
      u64  sequence      the journal file that the body belongs to; of a seal: the next epoch
      u64  position      where in that file; of a seal: 0
      body               bytes of the journal file; of a seal: the address of the next owner, UTF-8

    checkpoint, 40 bytes and its body
      4s   magic         "PNCP"
      u32  check         CRC-32C of the rest of the header and the body
      u16  version       1
      6x
      u32  shard
      u32  (zero)
      u64  epoch         where reading begins: pieces before are not needed, and may be gone
      u64  n
      body

The next epoch is one more. Only the first seal of a shard that was copied (`cluster/copying`) leads further, to where
the epochs of the original were.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from typing import NamedTuple

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from penstock.model.errors import CorruptData

PIECES, CHECKPOINTS = "journal/", "checkpoints/"
INCARNATION_BYTES = 16
VERSION = 1
_PIECE_MAGIC, _CHECKPOINT_MAGIC = b"PNPC", b"PNCP"
_START = struct.Struct("<4sI")
_PIECE = struct.Struct("<HBxIQQ16sQQ")
_CHECKPOINT = struct.Struct("<H6xIIQQ")
PIECE_HEADER_BYTES = _START.size + _PIECE.size
CHECKPOINT_HEADER_BYTES = _START.size + _CHECKPOINT.size
_PIECE_NAME = re.compile(rf"{PIECES}(\d{{10}})/(\d{{10}})")
_CHECKPOINT_NAME = re.compile(rf"{CHECKPOINTS}(\d{{10}})-(\d{{10}})-(\d{{10}})")


class Mark(NamedTuple):
    """A place in the chain."""

    epoch: int
    n: int


class Kind(IntEnum):
    """What lies at a place in the chain."""

    PIECE = 1
    SEAL = 2


class Piece(NamedTuple):
    """What lies at a place in the chain: a piece of a journal file, or a seal."""

    kind: Kind
    mark: Mark
    incarnation: bytes
    sequence: int
    position: int
    body: bytes

    @property
    def next_epoch(self) -> int:
        """Of a seal: which epoch begins."""
        return self.sequence

    @property
    def address(self) -> str:
        """Of a seal: where the owner of the next epoch is."""
        return self.body.decode(errors="replace")


class CheckpointName(NamedTuple):
    """What the name of a checkpoint says; the greatest counts."""

    epoch: int
    n: int
    number: int


def piece_name(mark: Mark) -> str:
    """The name of what lies at a place in the chain."""
    return f"{PIECES}{mark.epoch:010d}/{mark.n:010d}"


def mark_of_name(name: str) -> Mark | None:
    """The place in the chain that a name is of; None if it is of none."""
    found = _PIECE_NAME.fullmatch(name)
    return Mark(int(found[1]), int(found[2])) if found else None


def checkpoint_name(name: CheckpointName) -> str:
    """The name of a checkpoint."""
    return f"{CHECKPOINTS}{name.epoch:010d}-{name.n:010d}-{name.number:010d}"


def checkpoint_of_name(name: str) -> CheckpointName | None:
    """What the name of a checkpoint says; None if it is of none."""
    found = _CHECKPOINT_NAME.fullmatch(name)
    return CheckpointName(int(found[1]), int(found[2]), int(found[3])) if found else None


def encode_piece(shard: int, piece: Piece) -> bytes:
    """The bytes of a piece or a seal."""
    rest = _PIECE.pack(VERSION, piece.kind, shard, *piece.mark, piece.incarnation, piece.sequence, piece.position)
    return b"".join((_START.pack(_PIECE_MAGIC, crc32c_extend(crc32c(rest), piece.body)), rest, piece.body))


def decode_piece(data: bytes, shard: int, mark: Mark) -> Piece:
    """What lies at a place in the chain; raises CorruptData if that is nothing that belongs there."""
    rest, body = data[_START.size : PIECE_HEADER_BYTES], data[PIECE_HEADER_BYTES:]
    if len(rest) == _PIECE.size:
        magic, check = _START.unpack_from(data)
        version, kind, own_shard, epoch, n, incarnation, sequence, position = _PIECE.unpack(rest)
        is_sound = magic == _PIECE_MAGIC and check == crc32c_extend(crc32c(rest), body) and kind in (1, 2)
        if is_sound and version == VERSION and (own_shard, epoch, n) == (shard, *mark):
            return Piece(Kind(kind), mark, incarnation, sequence, position, body)
    raise CorruptData(piece_name(mark), 0, "this is no piece of the journal at this place")


def encode_checkpoint(shard: int, start: Mark, body: bytes) -> bytes:
    """The bytes of a checkpoint; reading begins at `start`."""
    rest = _CHECKPOINT.pack(VERSION, shard, 0, *start)
    return b"".join((_START.pack(_CHECKPOINT_MAGIC, crc32c_extend(crc32c(rest), body)), rest, body))


def decode_checkpoint(data: bytes, shard: int, name: str) -> tuple[Mark, bytes]:
    """Where reading begins, and the body; raises CorruptData if it is not what was written."""
    rest, body = data[_START.size : CHECKPOINT_HEADER_BYTES], data[CHECKPOINT_HEADER_BYTES:]
    if len(rest) == _CHECKPOINT.size:
        magic, check = _START.unpack_from(data)
        version, own_shard, _, epoch, n = _CHECKPOINT.unpack(rest)
        is_sound = magic == _CHECKPOINT_MAGIC and check == crc32c_extend(crc32c(rest), body)
        if is_sound and version == VERSION and own_shard == shard:
            return Mark(epoch, n), body
    raise CorruptData(name, 0, "this checkpoint does not match its checksum")
