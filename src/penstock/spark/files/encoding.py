"""Messages as the rows of a file: CSV, JSON lines or Parquet."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.model.errors import InvalidArgument
from penstock.segments.schema import MESSAGES
from penstock.spark.files.roles import BASE64
from penstock.spark.files.sources import FORMATS
from penstock.spark.files.values import json_of_rows, text_of
from penstock.spark.packing import data_of
from penstock.spark.tables import message_ids

COLUMNS = (
    *("partition", "offset", "timestamp", "key", "value", "headers", "priority", "deliver_at"),
    *("expires_at", "dedupe_id", "topic", "message_id"),
)
"""What an export can have."""
DEFAULT = COLUMNS[:8]
VALUES = ("text", "base64", "json")
"""How values are written as text; values that are not UTF-8 (or not JSON) are always base64."""
_MADE = {"topic": pa.string(), "message_id": pa.string()}
_BYTES = ("key", "value")
_ROW_GROUP_ROWS = 100_000


@dataclass(frozen=True)
class Form:
    """What the files of an export are like."""

    format: str
    columns: tuple[str, ...] = DEFAULT
    value: str = "text"

    def __post_init__(self) -> None:
        problems = [f"there is no column {name!r}" for name in self.columns if name not in COLUMNS]
        problems += [f"{name} is there twice" for name in sorted(set(self.columns)) if self.columns.count(name) > 1]
        if self.format not in FORMATS:
            problems.append(f"format: {self.format!r} is none of {', '.join(FORMATS)}")
        if self.value not in VALUES:
            problems.append(f"value: {self.value!r} is none of {', '.join(VALUES)}")
        elif self.value != "text" and self.format == "parquet":
            problems.append("value: Parquet has values as they are, in bytes")
        elif self.value == "json" and self.format != "jsonl":
            problems.append("value: json is for JSON lines")
        if not self.columns or problems:
            problems.append(f"the columns that can be exported are {', '.join(COLUMNS)}")
            raise InvalidArgument("; ".join(problems))

    @property
    def read(self) -> list[str]:
        """The columns of a segment that are needed for them; always with the offset."""
        return [name for name in MESSAGES.names if name == "offset" or name in self.columns]

    @property
    def schema(self) -> pa.Schema:
        """The schema of a Parquet file."""
        return pa.schema([pa.field(n, _MADE[n]) if n in _MADE else MESSAGES.field(n) for n in self.columns])

    @property
    def is_marked(self) -> bool:
        """Whether rows tell what of them is base64."""
        return any(name in self.columns for name in _BYTES)


class Writer(ABC):
    """Takes the messages of a file, batch by batch."""

    def __init__(self, form: Form, file: IO[bytes]) -> None:
        self._form, self._file = form, file

    @abstractmethod
    def write(self, columns: dict[str, pa.Array]) -> None:
        """Write some more rows."""

    def close(self) -> None:  # noqa: B027 - most hold nothing back
        """Write what was held back."""


def writer_of(form: Form, file: IO[bytes]) -> Writer:
    """What writes a file of this form."""
    kinds: dict[str, type[Writer]] = {"csv": _CsvWriter, "jsonl": _JsonWriter, "parquet": _ParquetWriter}
    return kinds[form.format](form, file)


def columns_of(batch: pa.RecordBatch, form: Form, topic: str, partition: int) -> dict[str, pa.Array]:
    """The columns that were asked for, of messages as segments have them."""
    made = {
        "topic": lambda: pa.repeat(pa.scalar(topic), len(batch)),
        "message_id": lambda: message_ids(topic, partition, batch.column("offset")),
    }
    return {name: made[name]() if name in made else batch.column(name) for name in form.columns}


class _ParquetWriter(Writer):
    def __init__(self, form: Form, file: IO[bytes]) -> None:
        super().__init__(form, file)
        self._schema = form.schema
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, columns: dict[str, pa.Array]) -> None:
        self._waiting.append(pa.RecordBatch.from_arrays(list(columns.values()), schema=self._schema))
        self._rows += len(self._waiting[-1])
        while self._rows >= _ROW_GROUP_ROWS:
            table = pa.Table.from_batches(self._waiting)
            self._writer.write_table(table.slice(0, _ROW_GROUP_ROWS), _ROW_GROUP_ROWS)
            self._waiting = table.slice(_ROW_GROUP_ROWS).to_batches()
            self._rows -= _ROW_GROUP_ROWS

    def close(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._waiting), _ROW_GROUP_ROWS)
        self._writer.close()


class _CsvWriter(Writer):
    """Texts are quoted, so that an empty text differs from a missing one; other values are not."""

    def __init__(self, form: Form, file: IO[bytes]) -> None:
        super().__init__(form, file)
        names = [*form.columns, *([BASE64] if form.is_marked else [])]
        file.write(",".join(names).encode() + b"\n")

    def write(self, columns: dict[str, pa.Array]) -> None:
        marks = _Marks(len(next(iter(columns.values()))))
        pieces: list[Any] = []
        for name, column in columns.items():
            pieces += [_csv_field(_as_text(name, column, self._form.value, marks)), ","]
        pieces = [*pieces, _csv_field(marks.column()), "\n"] if self._form.is_marked else [*pieces[:-1], "\n"]
        self._file.write(data_of(pc.binary_join_element_wise(*pieces, "")))


class _JsonWriter(Writer):
    def write(self, columns: dict[str, pa.Array]) -> None:
        marks = _Marks(len(next(iter(columns.values()))))
        made = {
            name: column if name == "headers" else _as_text(name, column, self._form.value, marks)
            for name, column in columns.items()
        }
        as_they_are = {"value"} if self._form.value == "json" else set()
        if as_they_are and "value" in made:
            made["value"] = _quoted_unless_json(made["value"], marks)
        rows = json_of_rows(made, as_they_are, marks.json() if marks.rows else None)
        self._file.write(data_of(pc.binary_join_element_wise(rows, "\n", "")))


class _Marks:
    """Which columns of which rows are base64."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.rows: dict[int, list[str]] = {}

    def note(self, row: int, name: str) -> None:
        self.rows.setdefault(row, []).append(name)

    def column(self) -> pa.Array:
        """The names in each row, with a comma between them."""
        if not self.rows:
            return pa.nulls(self._count, pa.string())
        return pa.array([",".join(self.rows[row]) if row in self.rows else None for row in range(self._count)])

    def json(self) -> pa.Array:
        """The same as the last field of an object, where there is any."""
        return pc.coalesce(pc.binary_join_element_wise(f',"{BASE64}":"', self.column(), '"', ""), "")


def _as_text(name: str, column: pa.Array, value: str, marks: _Marks) -> pa.Array:
    """A column as text, or as numbers."""
    if name == "value" and value == "base64":
        for row in range(len(column)):
            marks.note(row, name)
        return pa.array([base64.b64encode(data).decode() for data in column.to_pylist()], pa.string())
    if name in _BYTES:
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:  # some of it is not UTF-8
            return pa.array([_readable(name, row, data, marks) for row, data in enumerate(column.to_pylist())])
    return text_of(column) if pa.types.is_nested(column.type) or pa.types.is_timestamp(column.type) else column


def _readable(name: str, row: int, data: bytes | None, marks: _Marks) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        marks.note(row, name)
        return base64.b64encode(data or b"").decode()


def _quoted_unless_json(column: pa.Array, marks: _Marks) -> pa.Array:
    """Values that are JSON as they are, on one line; others as base64, with a mark."""
    found: list[str] = []
    for row, text in enumerate(column.to_pylist()):
        if row in marks.rows and "value" in marks.rows[row]:
            found.append(f'"{text}"')
            continue
        try:
            msgspec.json.decode(text)
            found.append(msgspec.json.format(text, indent=-1) if "\n" in text or "\r" in text else text)
        except (msgspec.MsgspecError, RecursionError):
            marks.note(row, "value")
            found.append(f'"{base64.b64encode(text.encode()).decode()}"')
    return pa.array(found, pa.string())


def _csv_field(column: pa.Array) -> pa.Array:
    if not pa.types.is_string(column.type):
        return pc.coalesce(column.cast(pa.string()), "")
    if b'"' in bytes(data_of(column)):
        column = pc.replace_substring(column, '"', '""')
    return pc.coalesce(pc.binary_join_element_wise('"', column, '"', ""), "")
