"""Columns packed as a batch of messages travels: msgpack of [keys, values, headers], without an object a message."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.config import BrokerConfig
from penstock.model.names import NORMAL
from penstock.protocol.publishing import encode_packed

_SHORT = 1 << 16
_NIL = b"\xc0"
_HEADERS_MAX = 15
_REQUEST_BYTES = 512 << 10
"""Much larger requests are slower, for they leave the caches of the processor."""


@dataclass(frozen=True)
class Columns:
    """Messages, column by column; a column that all leave out is None."""

    values: pa.Array
    """Binary, without nulls."""
    keys: pa.Array | None = None
    headers: Sequence[tuple[str, pa.Array]] = ()
    """Columns of text, by the names of the headers; nulls are left out."""
    maps: list[dict[str, str] | None] | None = None
    """Headers message by message, instead."""
    priorities: pa.Array | None = None
    """Whole numbers from 0 to 255; null is the normal one."""
    deliver_at_us: pa.Array | None = None
    partitions: pa.Array | None = None
    """Whole numbers; null is wherever the broker puts it."""
    packed: pa.Array | None = None
    """Headers that `pack_maps` made, instead of the others."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size_bytes(self) -> int:
        """About how much it is on its way."""
        columns = [self.values, self.keys, self.packed, *(column for _, column in self.headers)]
        size = sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns if column is not None)
        maps = sum(sum(map(len, header)) + sum(map(len, header.values())) for header in self.maps or () if header)
        return size + maps + 3 * len(self)

    def select(self, rows: pa.Array) -> Columns:
        """Some of the messages."""
        maps = None if self.maps is None else [self.maps[row] for row in rows.to_pylist()]
        return self._each(maps, lambda column: column.take(rows))

    def slice(self, start: int, count: int) -> Columns:
        """Some consecutive messages."""
        maps = None if self.maps is None else self.maps[start : start + count]
        return self._each(maps, lambda column: column.slice(start, count))

    def _each(self, maps: list[dict[str, str] | None] | None, chosen: Callable[[pa.Array], pa.Array]) -> Columns:
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(
            self,
            headers=[(name, chosen(column)) for name, column in self.headers],
            maps=maps,
            **{name: chosen(column) for name, column in own.items() if isinstance(column, pa.Array)},
        )


def requests(columns: Columns, limits: BrokerConfig) -> Iterator[Columns]:
    """Messages in parts that make a good request each; one that is large is a part of its own."""
    count, size_bytes = len(columns), columns.size_bytes
    room_bytes = min(_REQUEST_BYTES, limits.max_batch_bytes // 2)
    if count <= 1 or size_bytes <= room_bytes:
        if count:
            yield columns
        return
    rows = max(1, count * room_bytes // size_bytes)
    for start in range(0, count, rows):
        some = columns.slice(start, rows)
        if len(some) > 1 and some.size_bytes > 2 * room_bytes:  # the large ones are together
            half = len(some) // 2
            yield from requests(some.slice(0, half), limits)
            yield from requests(some.slice(half, len(some) - half), limits)
        else:
            yield some


def request_of(topic: str, columns: Columns) -> bytes:
    """The body of a request with these messages."""
    keys = _NIL if columns.keys is None or columns.keys.null_count == len(columns) else _binaries(columns.keys)
    payload = b"".join((b"\x93", keys, _binaries(columns.values), _headers(columns)))
    priority: int | bytes = NORMAL
    if columns.priorities is not None:
        numbers = pc.fill_null(columns.priorities, NORMAL).cast(pa.uint8())
        priority = numbers.buffers()[1].slice(numbers.offset, len(numbers)).to_pybytes()
    return encode_packed(topic, payload, priority, _numbers(columns.deliver_at_us), _numbers(columns.partitions))


def _numbers(column: pa.Array | None) -> list[int | None] | None:
    return None if column is None or column.null_count == len(column) else column.to_pylist()


def _headers(columns: Columns) -> bytes:
    if columns.packed is not None:
        return _array_of(columns.packed)
    if columns.maps is not None:
        return msgspec.msgpack.encode(columns.maps) if any(columns.maps) else _NIL
    named = [(name, column) for name, column in columns.headers if column.null_count < len(column)]
    if not named:
        return _NIL
    if len(named) > _HEADERS_MAX or any(longest(column) >= _SHORT for _, column in named):
        names = [name for name, _ in named]
        rows = zip(*(column.to_pylist() for _, column in named), strict=True)
        return msgspec.msgpack.encode(
            [{name: text for name, text in zip(names, row, strict=True) if text is not None} or None for row in rows]
        )
    counts: pa.Array | None = None
    pieces: list[pa.Array] = []
    for name, column in named:
        label = pa.scalar(msgspec.msgpack.encode(name), pa.binary())
        data = column.cast(pa.binary())
        pair = pc.binary_join_element_wise(label, _text_heads().take(pc.binary_length(data)), data, b"")
        pieces.append(pc.coalesce(pair, pa.scalar(b"", pa.binary())))
        there = column.is_valid().cast(pa.int8())
        counts = there if counts is None else pc.add(counts, there)
    return _array_of(pc.binary_join_element_wise(_map_heads().take(counts), *pieces, b""))


def pack_maps(maps: pa.MapArray) -> pa.Array | None:
    """Headers that come as maps of text, packed; None if they cannot be, for some are many or long."""
    names, texts = (pc.fill_null(column.cast(pa.binary()), b"") for column in (maps.keys, maps.items))
    counts = pc.subtract(maps.offsets[1:], maps.offsets[:-1])
    if (pc.max(counts).as_py() or 0) > _HEADERS_MAX or max(longest(names), longest(texts)) >= _SHORT:
        return None
    heads = _text_heads()
    pairs = pc.binary_join_element_wise(
        heads.take(pc.binary_length(names)), names, heads.take(pc.binary_length(texts)), texts, b""
    )
    joined = pc.binary_join(pa.ListArray.from_arrays(maps.offsets, pairs), b"")
    packed = pc.binary_join_element_wise(_map_heads().take(counts), joined, b"")
    return pc.if_else(maps.is_valid(), packed, _NIL) if maps.null_count else packed


def _binaries(column: pa.Array) -> bytes:
    """An array of binaries, or nil where there is none."""
    if longest(column) >= _SHORT:
        return msgspec.msgpack.encode(column.to_pylist())
    packed = pc.binary_join_element_wise(_heads().take(pc.binary_length(column)), column, b"")
    return _array_of(packed if not column.null_count else pc.coalesce(packed, pa.scalar(_NIL, pa.binary())))


def _array_of(items: pa.Array) -> bytes:
    return b"".join((b"\xdd", len(items).to_bytes(4, "big"), data_of(items)))


def longest(column: pa.Array) -> int:
    """The length of the longest binary of a column."""
    return pc.max(pc.binary_length(column)).as_py() or 0


@cache
def _heads() -> pa.Array:
    """What stands before a binary, by its length."""
    short = [b"\xc4" + bytes([length]) for length in range(256)]
    return pa.array([*short, *(b"\xc5" + length.to_bytes(2, "big") for length in range(256, _SHORT))], pa.binary())


@cache
def _text_heads() -> pa.Array:
    """What stands before a text, by its length in bytes."""
    short = [bytes([0xA0 | length]) for length in range(32)]
    middle = [b"\xd9" + bytes([length]) for length in range(32, 256)]
    return pa.array(
        [*short, *middle, *(b"\xda" + length.to_bytes(2, "big") for length in range(256, _SHORT))], pa.binary()
    )


@cache
def _map_heads() -> pa.Array:
    """What stands before so many headers; nil where there are none."""
    return pa.array([_NIL, *(bytes([0x80 | count]) for count in range(1, _HEADERS_MAX + 1))], pa.binary())


def data_of(column: pa.Array) -> pa.Buffer:
    """The bytes of all texts of a column, one after the other."""
    if not len(column):
        return pa.py_buffer(b"")
    _, offsets, data = column.buffers()
    places = pa.Array.from_buffers(pa.int32(), column.offset + len(column) + 1, [None, offsets])
    start, end = places[column.offset].as_py(), places[column.offset + len(column)].as_py()
    return pa.py_buffer(b"") if data is None else data.slice(start, end - start)
