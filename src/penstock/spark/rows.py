"""Rows of a DataFrame as messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidArgument
from penstock.model.message import Message
from penstock.model.names import LOWEST
from penstock.model.units import TIME_US_MAX
from penstock.spark.packing import Columns, longest, pack_maps

_KAFKA = "ARRAY<STRUCT<key STRING, value BINARY>>"
_ALLOWED: dict[str, tuple[str, tuple[type[DataType], ...]]] = {
    "value": ("BINARY or STRING", (BinaryType, StringType)),
    "topic": ("STRING", (StringType,)),
    "key": ("BINARY or STRING", (BinaryType, StringType)),
    "headers": (f"MAP<STRING, STRING>, or Kafka's {_KAFKA}", (MapType, ArrayType)),
    "priority": ("a whole number", (IntegralType,)),
    "deliver_at": ("TIMESTAMP", (TimestampType,)),
    "delay": ("seconds, or text such as '5m'", (IntegralType, DoubleType, FloatType, StringType)),
    "partition": ("a whole number", (IntegralType,)),
    "dedupe_id": ("STRING", (StringType,)),
    "expires_in": ("seconds, or text such as '5m'", (IntegralType, DoubleType, FloatType, StringType)),
}
"""The columns that can be written, in words and by type."""
_PACKED = {"value", "key", "headers", "priority", "deliver_at", "partition"}
"""The columns that can be packed without looking at each message."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise unless rows with these columns can be messages."""
    names = set(schema.fieldNames())
    problems = [f"there is no column {field.name!r} of a message" for field in schema if field.name not in _ALLOWED]
    problems += [
        f"{field.name} is {_ALLOWED[field.name][0]}, not {field.dataType.simpleString().upper()}"
        for field in schema
        if field.name in _ALLOWED and not _is_allowed(field.name, field.dataType)
    ]
    problems += [f"there are two columns {name}" for name in sorted(names) if schema.fieldNames().count(name) > 1]
    if "value" not in names:
        problems.append("there is no column value")
    if topic is None and "topic" not in names:
        problems.append("there is no column topic, and no option topic")
    if problems:
        known = "; ".join(f"{name}: {words}" for name, (words, _) in _ALLOWED.items())
        raise InvalidArgument(f"these rows cannot be written: {', '.join(problems)}. What can be written: {known}")


def _is_allowed(name: str, kind: DataType) -> bool:
    if name != "headers":
        return isinstance(kind, _ALLOWED[name][1])
    parts: list[DataType] = []
    if isinstance(kind, MapType):
        parts = [kind.keyType, kind.valueType]
    elif isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        pair = {field.name: field.dataType for field in kind.elementType}
        parts = [pair["key"], pair["value"]] if set(pair) == {"key", "value"} else []
    return bool(parts) and isinstance(parts[0], StringType) and isinstance(parts[1], StringType | BinaryType)


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a batch, in order, for each topic that they go to; without a column topic."""
    if batch.column("value").null_count:
        raise InvalidArgument("a value is NULL: a message has a value, which may be empty")
    names = batch.column("topic") if "topic" in batch.schema.names else None
    rows = batch if names is None else batch.drop_columns(["topic"])
    if topic is not None:
        if len(rows):
            yield topic, rows
        return
    if names.null_count:  # type: ignore[union-attr]
        raise InvalidArgument("a topic is NULL: give every row one, or the option topic for all")
    found = pc.unique(names).to_pylist()
    for name in found:
        yield name, rows if len(found) == 1 else rows.filter(pc.equal(names, name))


def columns_of(rows: pa.RecordBatch, limits: BrokerConfig) -> Columns | None:
    """Rows as they are packed; None where messages have to be looked at one by one, also to tell what is wrong."""
    there = dict(zip(rows.schema.names, rows.columns, strict=True))
    if not there.keys() <= _PACKED:
        return None
    values, keys, headers = there["value"].cast(pa.binary()), there.get("key"), there.get("headers")
    keys = None if keys is None else keys.cast(pa.binary())
    lengths = [(values, limits.max_value_bytes), (keys, limits.max_key_bytes)]
    if headers is not None:
        kind = headers.type
        if not (pa.types.is_map(kind) and pa.types.is_string(kind.key_type) and pa.types.is_string(kind.item_type)):
            return None
        headers = pack_maps(headers)
        if headers is None:
            return None
        lengths.append((headers, limits.max_headers_bytes))
    if any(column is not None and longest(column) > limit for column, limit in lengths):
        return None
    priorities, times = there.get("priority"), there.get("deliver_at")
    if priorities is not None:
        if not _within(priorities, 0, LOWEST):
            return None
        priorities = priorities.cast(pa.int16())
    if times is not None:
        times = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        if not _within(times, 0, TIME_US_MAX):
            return None
    return Columns(
        values,
        keys,
        packed=headers,
        priorities=priorities,
        deliver_at_us=times,
        partitions=there.get("partition"),
    )


def _within(numbers: pa.Array, lowest: int, highest: int) -> bool:
    bounds = pc.min_max(numbers).as_py()
    return bounds["min"] is None or (bounds["min"] >= lowest and bounds["max"] <= highest)


def messages_of(rows: pa.RecordBatch) -> list[Message | bytes | str]:
    """Rows as messages."""
    columns = {name: column.to_pylist() for name, column in zip(rows.schema.names, rows.columns, strict=True)}
    values: list[Message | bytes | str] = columns["value"]
    if len(columns) == 1:
        return values
    nothing: Sequence[None] = [None] * len(values)
    headers = columns.get("headers")
    priorities = columns.get("priority")
    return list(
        map(
            Message,
            values,
            columns.get("key", nothing),
            nothing if headers is None else map(_headers, headers),
            ["normal"] * len(values) if priorities is None else ["normal" if p is None else p for p in priorities],
            columns.get("delay", nothing),
            columns.get("deliver_at", nothing),
            columns.get("partition", nothing),
            columns.get("dedupe_id", nothing),
            columns.get("expires_in", nothing),
        )
    )


def _headers(value: list[Any] | None) -> dict[str, str] | None:
    """Headers as a map or as Kafka has them: an array of names with bytes."""
    if not value:
        return None
    if type(value[0]) is tuple and all(type(text) is str for _, text in value):
        return dict(value)
    pairs = [(pair["key"], pair["value"]) if isinstance(pair, dict) else pair for pair in value if pair is not None]
    return {name: _text(name, content) for name, content in pairs}


def _text(name: str, value: bytes | str | None) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"the header {name!r} is not text: headers are UTF-8") from error
    return value or ""
