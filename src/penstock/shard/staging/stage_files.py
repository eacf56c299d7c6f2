"""The files of stages: batches that wait, invisible, to be published together. Little endian.

    staging/<stage>~<16 hexadecimal digits>.open     while batches are added
    staging/<stage>~<16 hexadecimal digits>.sealed   complete, and on disk

    header, 12 bytes
      8s   magic          "PENSTAGE"
      u32  version        1
    records, one a batch
      u32  head_bytes
      u32  payload_bytes
      u32  check          CRC-32C of the two lengths, head and payload
      …    head           msgpack of [topic, count, size_bytes, partitions or nil, columns]
      …    payload        msgpack of [keys or nil, values, headers or nil], as it will be in the journal
    seal, 28 bytes: a record with no head
      u64  messages       how many are in all records
      u64  end            where the seal itself begins

`columns` is an encoded batch (`model/batch.py`) without its payload. The digits make every stage another file, also
when its name is used again: what is noted of one is never taken for a note of another. A file is synced before it gets
the name that says so; one that is still `.open` when the broker starts was never promised to anybody, and is not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Self

import msgspec

from penstock.journal.layout import body_crc
from penstock.model.batch import decode_payload, decode_tags
from penstock.model.errors import CorruptData, StageNotFound, StorageFailed
from penstock.model.intake import Intake
from penstock.model.names import check_stage_name
from penstock.model.stored import STAGES
from penstock.storage import Storage
from penstock.storage.refusals import refusal_of

OPEN, SEALED = ".open", ".sealed"
HEADER = b"PENSTAGE" + (1).to_bytes(4, "little")
FIRST = len(HEADER)  # where the first record begins

_LENGTHS = struct.Struct("<II")
_START = struct.Struct("<III")
_SEAL = struct.Struct("<QQ")
_SEAL_BYTES = _START.size + _SEAL.size


class _Head(msgspec.Struct, array_like=True, gc=False):
    topic: str
    count: int
    size_bytes: int
    partitions: list[int | None] | None
    columns: bytes


_encode_head = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(_Head).decode


def new_file(stage: str, digits: bytes) -> str:
    """The name of the file of a new stage, without its ending; the digits are 8 random bytes."""
    return f"{stage}~{digits.hex()}"


def name_of(file: str) -> str:
    """The name of the stage that a file belongs to; empty if it is not such a file."""
    return file.rpartition("~")[0]


def path_of(file: str, ending: str) -> str:
    """The path of the file of a stage; its name is checked, because it may come from a journal."""
    check_stage_name(name_of(file))
    return f"{STAGES}/{file}{ending}"


def encode_record(topic: str, intake: Intake) -> list[bytes]:
    """The record of a batch."""
    *columns, payload = intake.batch.encode()
    head = _Head(topic, len(intake.batch), intake.size_bytes, intake.partitions, b"".join(columns))
    return _record(_encode_head(head), payload)


def encode_seal(messages: int, end: int) -> list[bytes]:
    """The last record of a file, which begins at `end`."""
    return _record(b"", _SEAL.pack(messages, end))


def _record(head: bytes, payload: bytes) -> list[bytes]:
    lengths = _LENGTHS.pack(len(head), len(payload))
    return [lengths + body_crc((lengths, head, payload)).to_bytes(4, "little"), head, payload]


class Stage:
    """What is known of one stage."""

    __slots__ = (
        "claimed",
        "end",
        "file",
        "lost",
        "messages",
        "name",
        "put_end",
        "sealed",
        "sealing",
        "touched_s",
        "writers",
    )

    def __init__(self, name: str, file: str, touched_s: float) -> None:
        self.name = name
        self.file = file
        self.touched_s = touched_s
        self.end = FIRST
        self.put_end = 0  # up to where it was put in parts, on a bucket
        self.messages = 0
        self.sealing = False
        self.sealed = False
        self.claimed = False  # it is being published
        self.lost = ""  # why it can only be dropped
        self.writers: dict[str, int] = {}  # how many requests of each were done

    def begin_put(self, most_bytes: int) -> bool:
        """Whether this much of it is in memory only, as on a bucket; whoever asks puts it then."""
        is_much = self.end - self.put_end >= most_bytes
        if is_much:
            self.put_end = self.end
        return is_much

    def check_kept(self) -> None:
        """Raise if what was staged is not there any more."""
        if self.lost:
            raise StageNotFound(f"the stage {self.name!r} is lost: {self.lost}; drop it, and stage under another name")


class SealedFile:
    """The file of a sealed stage, open for reading; everything read is checked."""

    def __init__(self, storage: Storage, file: str) -> None:
        self._name = path_of(file, SEALED)
        try:
            self._file = storage.open(self._name)
        except FileNotFoundError:
            raise CorruptData(self._name, 0, "the stage is missing") from None
        except OSError as error:
            refusal = refusal_of(error, f"{self._name} was not opened; try again later")
            raise refusal or StorageFailed(f"{self._name} cannot be opened: {error}") from error
        try:
            self.messages, self.end = self._read_seal()
        except BaseException:
            self._file.close()
            raise

    def _read_seal(self) -> tuple[int, int]:
        try:
            self._size = self._file.size()
        except OSError as error:
            raise StorageFailed(f"{self._name} cannot be read: {error}") from error
        end = self._size - _SEAL_BYTES
        if end < FIRST or self._read(0, FIRST) != HEADER:
            raise CorruptData(self._name, 0, "it is no file of a stage, or of another version of Penstock")
        head, payload = self._parts(end)
        if head or len(payload) != _SEAL.size or _SEAL.unpack(payload)[1] != end:
            raise CorruptData(self._name, end, "the seal of the stage is wrong")
        return int(_SEAL.unpack(payload)[0]), end

    def lengths(self) -> Iterator[tuple[int, int]]:
        """The position and length of each record; nothing else is read."""
        position = FIRST
        while position < self.end:
            length = self.length_at(position)
            yield position, length
            position += length

    def length_at(self, position: int) -> int:
        """How long the record at a position is."""
        head_bytes, payload_bytes, _ = self._start(position)
        return _START.size + head_bytes + payload_bytes

    def check(self, position: int) -> None:
        """Raise if the record at a position is not what was written."""
        self._parts(position)

    def batch(self, position: int) -> tuple[str, Intake]:
        """The topic and the batch of the record at a position."""
        head_bytes, payload = self._parts(position)
        try:
            head = _decode_head(head_bytes)
            batch = decode_tags(head.columns, head.count)
            batch.keys, batch.values, batch.headers = decode_payload(payload)
        except (msgspec.MsgspecError, ValueError) as error:
            raise CorruptData(self._name, position, f"it is no staged batch: {error}") from error
        batch.payload = payload
        return head.topic, Intake(batch, head.partitions, head.size_bytes)

    def _start(self, position: int) -> tuple[int, int, int]:
        """The lengths and the checksum of a record, which is inside the file."""
        start = self._read(position, _START.size)
        if len(start) == _START.size:
            head_bytes, payload_bytes, check = _START.unpack(start)
            if position + _START.size + head_bytes + payload_bytes <= self._size:
                return head_bytes, payload_bytes, check
        raise CorruptData(self._name, position, "a staged batch is longer than its file")

    def _parts(self, position: int) -> tuple[bytes, bytes]:
        head_bytes, payload_bytes, check = self._start(position)
        body = self._read(position + _START.size, head_bytes + payload_bytes)
        if check != body_crc((_LENGTHS.pack(head_bytes, payload_bytes), body)):
            raise CorruptData(self._name, position, "a staged batch does not match its checksum")
        return body[:head_bytes], body[head_bytes:]

    def _read(self, position: int, length: int) -> bytes:
        try:
            return self._file.read(position, length)
        except OSError as error:
            raise StorageFailed(f"{self._name} cannot be read: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
