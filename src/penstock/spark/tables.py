"""The tables that Spark sees, Arrow batches in the shape that Spark asks for, and the ids of many messages at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.model.errors import InvalidArgument
from penstock.segments.schema import SCHEMAS

Columns = dict[str, DataType]
"""The type of each column, by name."""

_MADE: Columns = {"topic": StringType(), "message_id": StringType()}
"""Columns that no file holds."""
_MESSAGES = (
    *("key", "value", "topic", "partition", "offset", "timestamp", "headers", "priority", "deliver_at", "message_id"),
)
_ON_REQUEST = ("expires_at", "dedupe_id")
"""Of messages: columns that are read when a schema names them."""
_EVENTS = ("topic", "partition", *(name for name in SCHEMAS["events"].names if name != "partition"))
_DEAD_LETTERS: Columns = {
    "topic": StringType(),
    "message_id": StringType(),
    "origin": StringType(),
    "group": StringType(),
    "cause": StringType(),
    "consumer": StringType(),
    "deliveries": IntegerType(),
    "failures": IntegerType(),
    "died_at": TimestampType(),
    "published_at": TimestampType(),
    "key": BinaryType(),
    "value": BinaryType(),
    "headers": MapType(StringType(), StringType()),
    "priority": ShortType(),
    "history": ArrayType(StringType()),
}
GROUP_NUMBERS = ("published", "acked", "retrying", "dead", "lapsed", "withdrawn", "skipped", "lost", "lag")
_GROUPS: Columns = {
    "topic": StringType(),
    "group": StringType(),
    **dict.fromkeys(GROUP_NUMBERS, LongType()),
    "positions": ArrayType(LongType()),
}


def _columns(table: str, names: Iterable[str]) -> Columns:
    """Columns of a log, with the types that its files have."""
    known = {field.name: field.dataType for field in from_arrow_schema(SCHEMAS[table])} | _MADE
    return {name: known[name] for name in names}


COLUMNS: dict[str, Columns] = {
    "messages": _columns("messages", _MESSAGES),
    "events": _columns("events", _EVENTS),
    "dead_letters": _DEAD_LETTERS,
    "groups": _GROUPS,
}
LOGS = ("messages", "events")
"""The tables that are logs: read by offset, in slices, and as streams."""

_DIGITS = 4
_ROUND = 10**_DIGITS
"""Ids are made for this many consecutive offsets at a time: only their last digits differ."""


def schema_of(table: str) -> StructType:
    """The schema of a table."""
    return StructType([StructField(name, kind) for name, kind in COLUMNS[table].items()])


def check_schema(table: str, schema: StructType) -> None:
    """Raise unless the schema is made of columns of the table, in any order: it says which of them to read."""
    known = {**COLUMNS[table], **(_columns(table, _ON_REQUEST) if table == "messages" else {})}
    wrong = [
        f"{field.name} is {_words(known[field.name])}, not {_words(field.dataType)}"
        if field.name in known
        else f"there is no column {field.name}"
        for field in schema.fields
        if known.get(field.name) != field.dataType
    ]
    if wrong:
        told = ", ".join(f"{name} {_words(kind)}" for name, kind in known.items())
        raise InvalidArgument(f"the schema for table {table}: {'; '.join(wrong)}. The columns are {told}")


def _words(kind: DataType) -> str:
    return kind.simpleString().upper()


class Shaper:
    """Makes batches with the columns of a segment into batches with the columns of a schema."""

    def __init__(self, schema: StructType) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self.stored = [name for name in self._schema.names if name not in _MADE]
        """The columns that have to be read."""
        if "message_id" in self._schema.names and "offset" not in self.stored:
            self.stored.append("offset")

    def shape(self, batch: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
        """The columns of the schema, in its order and with its types."""
        arrays = []
        for field in self._schema:
            if field.name == "topic":
                array = pa.repeat(pa.scalar(topic, pa.string()), len(batch))
            elif field.name == "message_id":
                array = message_ids(topic, partition, batch.column("offset"))
            else:
                array = batch.column(field.name)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        if not arrays:  # only the number of rows is wanted
            return pa.RecordBatch.from_struct_array(pa.nulls(len(batch), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def rows(self, rows: Iterable[Mapping[str, object]], at_once: int = 10_000) -> Iterator[pa.RecordBatch]:
        """Rows that are Python objects, as batches."""
        left = iter(rows)
        while some := list(islice(left, at_once)):
            arrays = [pa.array([row[field.name] for row in some], field.type) for field in self._schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def message_ids(topic: str, partition: int, offsets: pa.Array) -> pa.Array:
    """`orders/2/45678` for each offset; consecutive ones are made by the ten thousand, which is much cheaper."""
    count = len(offsets)
    if not count:
        return pa.array([], pa.string())
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first < _ROUND or last - first != count - 1:
        return pc.binary_join_element_wise(f"{topic}/{partition}/", pc.cast(offsets, pa.string()), "")
    runs = [
        _run(
            f"{topic}/{partition}/{high}".encode(), max(first - high * _ROUND, 0), min(last - high * _ROUND + 1, _ROUND)
        )
        for high in range(first // _ROUND, last // _ROUND + 1)
    ]
    return runs[0] if len(runs) == 1 else pa.concat_arrays(runs)


def _run(beginning: bytes, start: int, end: int) -> pa.Array:
    """The ids with the same beginning: all have the same length, and only the last digits count up."""
    text = beginning + beginning.join(_endings()[start:end])
    starts = _starts(len(beginning) + _DIGITS)
    return pa.Array.from_buffers(pa.string(), end - start, [None, starts, pa.py_buffer(text)])


@cache
def _endings() -> list[bytes]:
    return [b"%04d" % number for number in range(_ROUND)]


@cache
def _starts(length: int) -> pa.Buffer:
    """Where texts of one length begin, one after the other."""
    return pa.array(range(0, (_ROUND + 1) * length, length), pa.int32()).buffers()[1]
