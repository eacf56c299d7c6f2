"""Columns as text and as JSON, many values at once."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.packing import data_of

_encode = msgspec.json.Encoder().encode
_LOWEST = 0x20
"""The lowest byte that needs no escape in JSON; smaller ones are control characters."""
_ISO = "%Y-%m-%dT%H:%M:%S"


def text_of(column: pa.Array) -> pa.Array:
    """A column as text: numbers and times as JSON has them, without quotes. Bytes stay bytes."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return column
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_dictionary(kind):
        return text_of(column.dictionary_decode())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            return pc.strftime(column, format=_ISO)
        return pc.strftime(column.cast(pa.timestamp(kind.unit, "UTC")), format=f"{_ISO}Z")
    if pa.types.is_floating(kind):
        finite = pc.if_else(pc.is_finite(column), column, pa.scalar(None, kind))
        return finite.cast(pa.string())
    if pa.types.is_nested(kind):
        return pa.array([None if row is None else _json(row) for row in _pylist(column)], pa.string())
    return column.cast(pa.string())


def json_of_rows(
    columns: Mapping[str, pa.Array], as_they_are: AbstractSet[str] = frozenset(), last: pa.Array | None = None
) -> pa.Array:
    """Every row as a JSON object with all its columns, in their order; NULL is null.

    Some columns may be JSON already, and something may be put into each object as its last, with a comma before it.
    """
    if not columns:
        return pa.array([], pa.string())
    pieces: list[Any] = []
    between = "{"
    for name, column in columns.items():
        label = f"{between}{_json(name)}:"
        texts, is_quoted = (column, False) if name in as_they_are else _json_of(column)
        pieces += [label + '"', texts] if is_quoted else [label, texts]
        between = '",' if is_quoted else ","
    closing = between.removesuffix(",")
    ending = [closing + "}"] if last is None else [closing, last, "}"]
    return pc.binary_join_element_wise(*pieces, *ending, "")


def _json_of(column: pa.Array) -> tuple[pa.Array, bool]:
    """The values of a column as JSON, or, if none needs more than quotes around it, as they are, which is quicker."""
    kind = column.type
    if pa.types.is_string(kind):
        if not column.null_count and is_plain(column):
            return column, True
        return quoted(column), False
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return pc.coalesce(text_of(column), "null"), False
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return quoted(text_of(column)), False
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _json_of(column.cast(pa.string()))
    return pa.array([_json(row) for row in _pylist(column)], pa.string()), False


def quoted(column: pa.Array) -> pa.Array:
    """Texts as JSON."""
    if is_plain(column):
        return pc.coalesce(pc.binary_join_element_wise('"', column, '"', ""), "null")
    return pa.array([_json(text) for text in column.to_pylist()], pa.string())


def is_plain(column: pa.Array) -> bool:
    """Whether texts stand in JSON as they are: no quotes, no backslashes, no control characters."""
    data = data_of(column)
    if not len(data):
        return True
    lowest = pc.min(pa.Array.from_buffers(pa.uint8(), len(data), [None, data])).as_py()
    view = bytes(data)
    return lowest >= _LOWEST and b'"' not in view and b"\\" not in view


def _json(value: object) -> str:
    return _encode(value).decode()


def _pylist(column: pa.Array) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]
