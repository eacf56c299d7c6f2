"""The bytes of a journal file. Little endian.

A file is a header and then groups, each group being what one commit wrote: all of it counts, or none.

    file header, 72 bytes
      8s   magic            "PENSTOCK"
      u32  check            CRC-32C of the rest of the header
      u16  version          1
      u16  (zero)
      u64  sequence         the number of this file; grows by one a file
      16s  broker           the identity of the broker that writes it
      u64  previous         the sequence of the file before, 0 if none
      u64  previous_end     how many bytes of that file were on disk when it was sealed
      16s  (zero)

    group header, 32 bytes
      u32  mark             made from broker and sequence: a recycled file's old groups never carry it
      u32  check            CRC-32C of the rest of this header and the directory
      u32  blocks           how many entries the directory has; 0: the body is void (a repaired place)
      u32  body_bytes       the length of all block bodies together
      u64  position         where in the file this group begins: it is valid nowhere else
      u64  synced           how much of the file was surely on disk when this group was written
    directory, 36 bytes for each block
      u8   kind             what the body is (BlockKind)
      u8   flags            of that kind; LOST 128: a repair found the body damaged, it is not read
      u16  partition
      u32  topic            number of the topic
      u64  base             the first offset
      i64  timestamp        µs since 1970 when the broker took it
      u32  count            how many offsets
      u32  length           bytes of the body
      u32  crc              CRC-32C of the body, so that each block can be checked when it is read alone
    bodies, one after the other, in the order of the directory

`synced` decides what an invalid group is. If a valid group after it says that those bytes were on disk, they
were damaged later: this is corruption, and nothing may be cut off. Otherwise they are the remains of a write
that was never acknowledged: a torn tail.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

MAGIC = b"PENSTOCK"
VERSION = 1
SEQUENCE_MAX = 10**16 - 1

_FILE = struct.Struct("<HHQ16sQQ16s")  # what `check` covers
_FILE_START = struct.Struct("<8sI")
_GROUP = struct.Struct("<IIQQ")  # what `check` covers, before the directory
_GROUP_START = struct.Struct("<II")
_ENTRY = struct.Struct("<BBHIQqIII")

FILE_HEADER_BYTES = _FILE_START.size + _FILE.size
GROUP_HEADER_BYTES = _GROUP_START.size + _GROUP.size
ENTRY_BYTES = _ENTRY.size
encode_entry = _ENTRY.pack  # the fields of a `BlockEntry`


LOST = 128  # of a block's flags; its offsets are not given again


class BlockKind(IntEnum):
    """What a block holds."""

    MESSAGES = 1  # an encoded batch
    EVENTS = 2  # an encoded batch of events
    TOPIC = 3  # a topic was created, changed or deleted
    STAGED = 4  # staged messages, which are in the same group, were published; of no topic (0)


class BlockEntry(NamedTuple):
    """One line of a directory."""

    kind: int
    flags: int
    partition: int
    topic: int
    base: int
    timestamp_us: int
    count: int  # type: ignore[assignment]
    length: int
    crc: int


class FileHeader(NamedTuple):
    """What a journal file says about itself and the one before."""

    sequence: int
    broker: bytes
    previous: int
    previous_end: int


class Group(NamedTuple):
    """A group in a file: where it is, what it holds, and how much was certainly on disk when it was written."""

    position: int
    end: int
    synced: int
    entries: list[BlockEntry]
    body: int  # position of the first body


def file_name(sequence: int) -> str:
    """The name of a journal file."""
    return f"journal/{sequence:016d}.journal"


def sequence_of(name: str) -> int | None:
    """The sequence in the name of a file; None if it is not a journal file."""
    stem, dot, ending = name.rpartition(".")
    return int(stem) if dot and ending == "journal" and len(stem) == 16 and stem.isdigit() else None


def mark_of(broker: bytes, sequence: int) -> int:
    """What every group of the file begins with."""
    return crc32c(broker + sequence.to_bytes(8, "little")) or 1


def encode_file_header(header: FileHeader) -> bytes:
    """The first bytes of a journal file."""
    rest = _FILE.pack(VERSION, 0, header.sequence, header.broker, header.previous, header.previous_end, bytes(16))
    return _FILE_START.pack(MAGIC, crc32c(rest)) + rest


def decode_file_header(data: bytes) -> FileHeader | None:
    """The header at the start of `data`, or None if it is not valid."""
    if len(data) < FILE_HEADER_BYTES:
        return None
    magic, check = _FILE_START.unpack_from(data)
    rest = data[_FILE_START.size : FILE_HEADER_BYTES]
    version, _, sequence, broker, previous, previous_end, _ = _FILE.unpack(rest)
    if magic != MAGIC or check != crc32c(rest) or version != VERSION:
        return None
    return FileHeader(sequence, broker, previous, previous_end)


def encode_group(mark: int, position: int, synced: int, entries: Sequence[BlockEntry]) -> bytes:
    """The header and directory of a group; the bodies follow."""
    body_bytes = sum(entry.length for entry in entries)
    return encode_head(mark, position, synced, body_bytes, [_ENTRY.pack(*entry) for entry in entries])


def encode_void(mark: int, position: int, end: int) -> bytes:
    """A header that makes readers skip everything up to `end`."""
    return encode_head(mark, position, 0, end - position - GROUP_HEADER_BYTES, ())


def encode_head(mark: int, position: int, synced: int, body_bytes: int, lines: Sequence[bytes]) -> bytes:
    """The same, with the lines of the directory as `encode_entry` made them."""
    rest = b"".join([_GROUP.pack(len(lines), body_bytes, position, synced), *lines])
    return _GROUP_START.pack(mark, crc32c(rest)) + rest


def decode_group(data: bytes, position: int, mark: int) -> Group | None:
    """The group at a position, if its header and directory are valid; bodies are not checked here."""
    if position + GROUP_HEADER_BYTES > len(data):
        return None
    found, check = _GROUP_START.unpack_from(data, position)
    start = position + _GROUP_START.size
    blocks, body_bytes, own_position, synced = _GROUP.unpack_from(data, start)
    body = start + _GROUP.size + blocks * ENTRY_BYTES
    if found != mark or own_position != position or body > len(data) or check != crc32c(data[start:body]):
        return None
    entries = [BlockEntry._make(line) for line in _ENTRY.iter_unpack(data[start + _GROUP.size : body])]
    return Group(position, body + body_bytes, synced, entries, body)


def claimed_bytes(data: bytes, position: int) -> int:
    """How long the group at a position is, according to its unchecked header."""
    if position + GROUP_HEADER_BYTES > len(data):
        return GROUP_HEADER_BYTES
    blocks, body_bytes, _, _ = _GROUP.unpack_from(data, position + _GROUP_START.size)
    return GROUP_HEADER_BYTES + int(blocks) * ENTRY_BYTES + int(body_bytes)


def bodies(group: Group) -> Iterator[tuple[BlockEntry, int]]:
    """The blocks of a group, each with the position of its body."""
    position = group.body
    for entry in group.entries:
        yield entry, position
        position += entry.length


def body_crc(buffers: Sequence[bytes]) -> int:
    """The checksum of a body given in parts."""
    check = 0
    for buffer in buffers:
        check = crc32c_extend(check, buffer)
    return int(check)
