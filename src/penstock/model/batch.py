"""The batch codec: many messages as a few columns, opaque to the journal.

Layout of an encoded batch (little endian); its message count is kept beside it, not in it:

    u8   flags           PRIORITIES 1, DELIVER_AT 2, TAGS 4, EXPIRES 8: which optional columns follow
    u8   priority        of every message, unless the PRIORITIES column is there
    u8   × count         priorities                       if PRIORITIES
    i64  × count         deliver-at, µs since 1970, 0 = at once   if DELIVER_AT
    i64  × count         expires-at, µs since 1970, 0 = never     if EXPIRES
    u32  length, bytes   msgpack of [dedupe ids or nil, producer or nil, sequence, origins, names]   if TAGS
    …    payload         msgpack of [keys or nil, values, headers or nil], each a list of count

What the broker needs for delivery (priorities, times) comes first, as plain arrays, which are left out if all
messages have the same value; the payload is decoded only by readers and by settling. A batch has one producer and
sequence; if messages were published one by one and merged, it has `origins` instead: runs of [row, producer,
sequence, count]. `names` says who published them (see `producers`); batches of earlier versions end before it.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from penstock.model.bounds import BATCH_HEADERS_MAX, BATCH_MESSAGES_MAX, check_memory
from penstock.model.errors import InvalidArgument, LimitExceeded
from penstock.model.names import NORMAL
from penstock.model.producers import Names, joined_names, names_between, names_of
from penstock.model.shapes import array_length, map_length, map_memory_bytes

Item = TypeVar("Item")

PRIORITIES, DELIVER_AT, TAGS, EXPIRES = 1, 2, 4, 8

_HEAD = struct.Struct("<BB")  # flags, uniform priority
_LENGTH = struct.Struct("<I")  # bytes of the tags
_TAGGED_HEAD = struct.Struct("<BBI")  # both
_JOINED_BYTES_MAX = 4096  # a payload of more is not copied to be in one piece with what stands before it

Payload = tuple[list[bytes | None] | None, list[bytes], list[dict[str, str] | None] | None]
Origin = tuple[int, str, int, int]
"""First row, producer, first sequence, count: of messages that were published one by one, in order."""


class _Tags(msgspec.Struct, array_like=True, gc=False):
    dedupe_ids: list[str | None] | None
    producer: str | None
    sequence: int
    origins: list[Origin] | None = None
    producer_names: Names | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode_payload = msgspec.msgpack.Decoder(Payload).decode
_decode_tags = msgspec.msgpack.Decoder(_Tags).decode
_decode_shape = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw, msgspec.Raw]).decode
_decode_keys = msgspec.msgpack.Decoder(list[bytes | None] | None).decode
_decode_values = msgspec.msgpack.Decoder(list[bytes]).decode
_decode_each = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_NIL = b"\xc0"
_decode_headers = msgspec.msgpack.Decoder(dict[str, str] | None).decode


def select(column: Sequence[Item], rows: Sequence[int]) -> list[Item]:
    """Some rows of a column, in the given order; faster than a loop."""
    if len(rows) < 2:
        return [column[row] for row in rows]
    return list(itemgetter(*rows)(column))


class Batch(msgspec.Struct):
    """Messages as columns; a column whose value is the same for every message is None."""

    values: list[bytes]
    keys: list[bytes | None] | None = None
    headers: list[dict[str, str] | None] | None = None
    priority: int = NORMAL
    priorities: bytes | None = None
    deliver_at: array[int] | None = None
    expires_at: array[int] | None = None
    dedupe_ids: list[str | None] | None = None
    producer: str | None = None
    sequence: int = 0
    origins: list[Origin] | None = None
    producer_names: Names | None = None
    """Who published them, for traces."""
    payload: bytes | None = None
    """Keys, values and headers as they were received, encoded; None if they are not encoded yet."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def tagged(self) -> bool:
        """Whether publishing this batch again must be recognised."""
        return self.dedupe_ids is not None or self.producer is not None or self.origins is not None

    @property
    def flags(self) -> int:
        """Which optional columns it has: the first byte of the encoded batch."""
        return (
            (PRIORITIES if self.priorities is not None else 0)
            | (DELIVER_AT if self.deliver_at is not None else 0)
            | (TAGS if self.tagged or self.producer_names is not None else 0)
            | (EXPIRES if self.expires_at is not None else 0)
        )

    def slice(self, start: int, end: int) -> Batch:
        """The batch of some consecutive rows."""
        return Batch(
            values=self.values[start:end],
            keys=None if self.keys is None else self.keys[start:end],
            headers=None if self.headers is None else self.headers[start:end],
            priority=self.priority,
            priorities=None if self.priorities is None else self.priorities[start:end],
            deliver_at=None if self.deliver_at is None else self.deliver_at[start:end],
            expires_at=None if self.expires_at is None else self.expires_at[start:end],
            dedupe_ids=None if self.dedupe_ids is None else self.dedupe_ids[start:end],
            producer=self.producer,
            sequence=self.sequence,
            producer_names=names_between(self.producer_names, start, end),
        )

    def select(self, rows: Sequence[int]) -> Batch:
        """The batch of some of the rows, in the given order."""
        return Batch(
            values=select(self.values, rows),
            keys=None if self.keys is None else select(self.keys, rows),
            headers=None if self.headers is None else select(self.headers, rows),
            priority=self.priority,
            priorities=None if self.priorities is None else bytes(select(self.priorities, rows)),
            deliver_at=None if self.deliver_at is None else array("q", select(self.deliver_at, rows)),
            expires_at=None if self.expires_at is None else array("q", select(self.expires_at, rows)),
            dedupe_ids=None if self.dedupe_ids is None else select(self.dedupe_ids, rows),
            producer=self.producer,
            sequence=self.sequence,
            producer_names=names_of(self.producer_names, rows),
        )

    def encode(self) -> list[bytes]:
        """The encoded batch as buffers to be written one after the other."""
        buffers = [_HEAD.pack(self.flags, self.priority)]
        if self.priorities is not None:
            buffers.append(self.priorities)
        if self.deliver_at is not None:
            buffers.append(_little_endian(self.deliver_at).tobytes())
        if self.expires_at is not None:
            buffers.append(_little_endian(self.expires_at).tobytes())
        if self.tagged or self.producer_names is not None:
            tags = _encode(_Tags(self.dedupe_ids, self.producer, self.sequence, self.origins, self.producer_names))
            buffers += [_LENGTH.pack(len(tags)), tags]
        buffers.append(self.encode_payload())
        return buffers

    def encode_payload(self) -> bytes:
        """Keys, values and headers, as they are stored and sent."""
        return self.payload if self.payload is not None else _encode((self.keys, self.values, self.headers))


def encode_plain(values: list[bytes], origins: list[Origin], names: Names) -> list[bytes]:
    """As `Batch.encode`, of messages that were published one by one and have nothing but values."""
    payload = _encode((None, values, None))
    if origins or names:
        tags = _encode((None, None, 0, origins or None, names or None))
        head = _TAGGED_HEAD.pack(TAGS, NORMAL, len(tags)) + tags
    else:
        head = _HEAD.pack(0, NORMAL)
    return [head + payload] if len(payload) <= _JOINED_BYTES_MAX else [head, payload]


def join_batches(batches: list[Batch]) -> Batch:
    """The messages of several batches as one; of their tags, only dedupe ids and names are kept."""
    if len(batches) == 1:
        return batches[0]
    priorities = {batch.priority for batch in batches}
    uniform = len(priorities) == 1 and all(batch.priorities is None for batch in batches)
    return Batch(
        values=list(itertools.chain.from_iterable(batch.values for batch in batches)),
        keys=_joined([batch.keys for batch in batches], batches),
        headers=_joined([batch.headers for batch in batches], batches),
        priority=priorities.pop() if uniform else NORMAL,
        priorities=None
        if uniform
        else b"".join(batch.priorities or bytes([batch.priority]) * len(batch) for batch in batches),
        deliver_at=_joined_times([batch.deliver_at for batch in batches], batches),
        expires_at=_joined_times([batch.expires_at for batch in batches], batches),
        dedupe_ids=_joined([batch.dedupe_ids for batch in batches], batches),
        producer_names=joined_names((batch.producer_names, len(batch)) for batch in batches),
    )


def _joined(columns: list[list[Item | None] | None], batches: list[Batch]) -> list[Item | None] | None:
    if columns.count(None) == len(columns):
        return None
    nothing: list[Item | None] = [None]
    return list(
        itertools.chain.from_iterable(
            nothing * len(batch) if column is None else column for column, batch in zip(columns, batches, strict=True)
        )
    )


def _joined_times(columns: list[array[int] | None], batches: list[Batch]) -> array[int] | None:
    if columns.count(None) == len(columns):
        return None
    whole = array("q")
    for column, batch in zip(columns, batches, strict=True):
        whole.extend(array("q", bytes(8 * len(batch))) if column is None else column)
    return whole


def decode_batch(body: bytes, count: int) -> Batch:
    """The batch that `Batch.encode` wrote; raises InvalidArgument if the bytes are not a batch of `count`."""
    try:
        batch, place = _decode_columns(body, count)
        batch.keys, batch.values, batch.headers = _decode_payload(memoryview(body)[place:])
    except (struct.error, msgspec.MsgspecError, IndexError, ValueError) as error:
        raise InvalidArgument(f"not an encoded batch: {error}") from error
    columns = (batch.values, batch.keys, batch.headers, batch.dedupe_ids)
    if any(column is not None and len(column) != count for column in columns):
        raise InvalidArgument(f"not an encoded batch of {count}: a column has another length")
    return batch


def batch_to_send(body: bytes, count: int) -> Batch:
    """The same batch with its payload as it is, encoded, and without values: enough to send it on."""
    try:
        batch, place = _decode_columns(body, count)
    except (struct.error, msgspec.MsgspecError, IndexError, ValueError) as error:
        raise InvalidArgument(f"not an encoded batch: {error}") from error
    batch.payload = body[place:]
    return batch


def decode_payload(payload: bytes) -> Payload:
    """Keys, values and headers from what `encode_payload` wrote; raises InvalidArgument if it is something else."""
    try:
        keys, values, headers = _decode_payload(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _no_payload(error) from error
    if keys is not None or headers is not None:
        for name, column in (("keys", keys), ("headers", headers)):
            if column is not None and len(column) != len(values):
                raise InvalidArgument(f"the payload has {len(values)} values and {len(column)} {name}")
    return keys, values, headers


def decode_large_payload(payload: bytes) -> Payload:
    """As `decode_payload`, for a payload of a client with more than `UNCOUNTED_BYTES`; raises LimitExceeded, too.

    It is counted before it is decoded, and headers are decoded message by message, so that other threads can run.
    """
    try:
        return _decode_counted(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _no_payload(error) from error


def _no_payload(error: Exception) -> InvalidArgument:
    return InvalidArgument(f"the payload is not msgpack of [keys, values, headers]: {error}")


def _decode_counted(payload: bytes) -> Payload:
    keys, values, headers = _decode_shape(payload)
    count = array_length(memoryview(values)) or 0
    check_count(count)
    for name, column in (("keys", keys), ("headers", headers)):
        found = array_length(memoryview(column))
        if found not in (None, count):
            raise InvalidArgument(f"the payload has {count} values and {found} {name}")
    each: list[Any] | None = None
    if array_length(memoryview(headers)) is not None:
        check_memory("the batch", len(payload), count * map_memory_bytes(0))
        each = _decode_each(headers)
        entries = [map_length(memoryview(one)) for one in each]
        if sum(entries) > BATCH_HEADERS_MAX:
            raise LimitExceeded(f"the batch has {sum(entries):,} headers; the limit is {BATCH_HEADERS_MAX:,}")
        check_memory("the batch", len(payload), sum(map(map_memory_bytes, entries)))
        for row, one in enumerate(each):
            each[row] = _decode_headers(one)
    elif memoryview(headers) != _NIL:
        raise InvalidArgument("the payload has headers that are no list")
    return _decode_keys(keys), _decode_values(values), each


def check_count(count: int) -> None:
    """Raise LimitExceeded if a batch has too many messages."""
    if count > BATCH_MESSAGES_MAX:
        raise LimitExceeded(f"the batch has {count:,} messages; the limit is {BATCH_MESSAGES_MAX:,}")


def decode_tags(body: bytes, count: int) -> Batch:
    """The batch without its payload: enough to know priorities, times, dedupe ids, producers and their names."""
    try:
        return _decode_columns(body, count)[0]
    except (struct.error, msgspec.MsgspecError, IndexError, ValueError) as error:
        raise InvalidArgument(f"not an encoded batch: {error}") from error


def head_of(body: bytes | memoryview) -> tuple[int, int]:
    """The flags and the uniform priority of an encoded batch; its first two bytes are enough."""
    try:
        flags, priority = _HEAD.unpack_from(body)
    except struct.error as error:
        raise InvalidArgument(f"not an encoded batch: {error}") from error
    return flags, priority


def _decode_columns(body: bytes, count: int) -> tuple[Batch, int]:
    flags, priority = _HEAD.unpack_from(body)
    batch = Batch(values=[], priority=priority)
    place = _HEAD.size
    if flags & PRIORITIES:
        batch.priorities = body[place : place + count]
        place += count
    if flags & DELIVER_AT:
        batch.deliver_at = _little_endian(array("q", body[place : place + 8 * count]))
        place += 8 * count
    if flags & EXPIRES:
        batch.expires_at = _little_endian(array("q", body[place : place + 8 * count]))
        place += 8 * count
    if flags & TAGS:
        (length,) = _LENGTH.unpack_from(body, place)
        place += _LENGTH.size
        tags = _decode_tags(body[place : place + length])
        batch.dedupe_ids, batch.producer, batch.sequence = tags.dedupe_ids, tags.producer, tags.sequence
        batch.origins, batch.producer_names = tags.origins, tags.producer_names
        place += length
    if place > len(body):
        raise ValueError("it ends before its columns do")
    return batch, place


def _little_endian(numbers: array[int]) -> array[int]:
    if struct.pack("=H", 1) != struct.pack("<H", 1):
        numbers = array("q", numbers)
        numbers.byteswap()
    return numbers
