"""The rows of a range as columns, in blocks; records that cannot be read are reported with their line and text."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from penstock.model.errors import InvalidArgument
from penstock.spark.files.cutting import RANGE_BYTES, Range
from penstock.spark.files.quoting import Piece, cut, records
from penstock.spark.files.values import json_of_rows

_BLOCK_BYTES = 1 << 20
_BLOCK_ROWS = 10_000
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode
Line = Callable[[], int]
"""The number of a line, which is counted when somebody asks."""


class BadRow(NamedTuple):
    """A row that was set aside."""

    file: str
    line: int
    """In Parquet the number of the row, from 1."""
    wrong: str
    text: str


@dataclass
class Block:
    """Some consecutive rows of a file."""

    columns: dict[str, pa.Array]
    count: int
    locate: Callable[[list[int]], list[tuple[int, str]]]
    """Line and text of some of the rows; slow, for bad ones."""
    whole: pa.Array | None = None
    """The rows as they stand in the file, where that is JSON."""
    bad: list[BadRow] = field(default_factory=list)
    """What was between them."""


def read_range(part: Range, wanted: Sequence[str] | None, delimiter: str) -> Iterator[Block]:
    """The rows of a range, in order; `wanted` are the columns of interest, None for all of them."""
    part.source.check_unchanged()
    if part.source.format == "parquet":
        yield from _parquet(part, wanted)
    else:
        for data, line, piece in _pieces(part, delimiter):
            if piece.stray:
                text = data.decode(errors="backslashreplace").rstrip("\r\n")
                wrong = 'a quote " opens a field and nothing closes it'
                yield Block({}, 0, lambda _: [], bad=[BadRow(part.source.path, line(), wrong, text)])
            elif part.source.format == "csv":
                yield _csv(part, data, line, delimiter)
            else:
                yield _json_lines(part, data, line, wanted or ())
    part.source.check_unchanged()


def _pieces(part: Range, delimiter: str) -> Iterator[tuple[bytes, Line, Piece]]:
    """The text of a range in pieces of whole records, each with the number of its first line."""
    first = part.first_line
    for data in _stretches(part, delimiter):
        quoted = part.quoted and part.source.format == "csv" and b'"' in data
        for piece in cut(data, delimiter, _BLOCK_BYTES, final=True) if quoted else _at_newlines(data):
            yield data[piece.start : piece.end], partial(_line_at, first, data, piece.start), piece
        if part.source.packed:  # else there is no more of it
            first += data.count(b"\n")


def _line_at(first: int, data: bytes, place: int) -> int:
    return first + data.count(b"\n", 0, place)


def _at_newlines(data: bytes) -> Iterator[Piece]:
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + _BLOCK_BYTES) + 1 or data.find(b"\n", start) + 1 or len(data)
        yield Piece(start, end)
        start = end


def _stretches(part: Range, delimiter: str) -> Iterator[bytes]:
    """The whole of a range that is cut already; what is packed, as it is unpacked, whole records at a time."""
    if not part.source.packed:
        with Path(part.source.path).open("rb") as file:
            file.seek(part.start)
            yield file.read(part.end - part.start)
        return
    with part.source.open() as file:
        try:
            file.read(part.start)
            data, size = b"", RANGE_BYTES
            while more := file.read(size):
                data += more
                end = _last_end(part, data, delimiter)
                if end:
                    yield data[:end]
                    data = data[end:]
            yield data
        except (EOFError, OSError, zlib.error) as error:
            raise InvalidArgument(f"{part.source.path}: it is damaged, or no gzip file: {error}") from error


def _last_end(part: Range, data: bytes, delimiter: str) -> int:
    """Behind the last whole record of some data."""
    if part.source.format == "csv" and b'"' in data:
        return max((piece.end for piece in cut(data, delimiter, _BLOCK_BYTES, final=False)), default=0)
    return data.rfind(b"\n") + 1


def _csv(part: Range, data: bytes, line: Line, delimiter: str) -> Block:
    import pyarrow.csv as csv

    path, names = part.source.path, part.columns
    bad: list[BadRow] = []
    rows: list[tuple[int, bytes]] = []
    if not _is_text(data):
        found, first = records(data, delimiter), line()
        rows = [(newlines, text) for newlines, text in found if _is_text(text)]
        odd = [(first + newlines, text) for newlines, text in found if not _is_text(text)]
        bad = [BadRow(path, at, "it is not UTF-8", text.decode(errors="backslashreplace")) for at, text in odd]
        data = b"".join(text + b"\n" for _, text in rows)
    wrong: dict[int, str] = {}

    def set_aside(row: csv.InvalidRow) -> str:
        wrong[row.number - 1] = f"it has {row.actual_columns} columns, and not {row.expected_columns}"
        return "skip"

    if not data.strip(b"\r\n"):
        return Block({}, 0, lambda _: [], bad=bad)
    table = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(use_threads=False, column_names=names, block_size=len(data) + 1),
        csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in data, invalid_row_handler=set_aside),
        csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    text_of = _Located(lambda: rows or records(data, delimiter), line)
    bad += [text_of.bad(path, number, told) for number, told in wrong.items()]

    def locate(chosen: list[int]) -> list[tuple[int, str]]:
        kept = [number for number in range(table.num_rows + len(wrong)) if number not in wrong]
        return [text_of[kept[row]] for row in chosen]

    columns = {name: _one(table.column(place)) for place, name in enumerate(names)}
    return Block(columns, table.num_rows, locate, bad=bad)


def _json_lines(part: Range, data: bytes, line: Line, wanted: Sequence[str]) -> Block:
    lines = [text for raw in data.split(b"\n") if (text := raw.strip())]
    text_of = _Located(lambda: records(data, None), line)
    kept: list[int] | None = None
    bad: list[BadRow] = []
    try:
        objects = list(map(_decode_object, lines))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        objects, kept = [], []
        for number, text in enumerate(lines):
            try:
                objects.append(_decode_object(text))
                kept.append(number)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                bad.append(text_of.bad(part.source.path, number, f"it is no JSON object: {error}"))
        lines = [lines[number] for number in kept]

    def locate(chosen: list[int]) -> list[tuple[int, str]]:
        return [text_of[row if kept is None else kept[row]] for row in chosen]

    columns = {name: pa.array([_text(row.get(name)) for row in objects], pa.string()) for name in wanted}
    return Block(columns, len(lines), locate, pa.array(lines, pa.binary()), bad)


def _text(value: object) -> str | None:
    """A field of an object: text as it is, everything else as JSON."""
    return value if value is None or isinstance(value, str) else _encode(value).decode()


def _parquet(part: Range, wanted: Sequence[str] | None) -> Iterator[Block]:
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(part.source.path) as file:
            groups, end = [], 0
            for number in range(file.num_row_groups):
                start, end = end, end + file.metadata.row_group(number).num_rows
                if start >= part.start and end <= part.end:
                    groups.append(number)
            at = part.first_line
            names = None if wanted is None else list(wanted)
            for batch in file.iter_batches(_BLOCK_ROWS, groups, names, use_threads=False):
                yield Block(dict(zip(batch.schema.names, batch.columns, strict=True)), len(batch), _in_batch(batch, at))
                at += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgument(f"{part.source.path}: it is damaged: {error}") from error


def _in_batch(batch: pa.RecordBatch, first: int) -> Callable[[list[int]], list[tuple[int, str]]]:
    def locate(chosen: list[int]) -> list[tuple[int, str]]:
        columns = dict(zip(batch.schema.names, batch.take(pa.array(chosen, pa.int64())).columns, strict=True))
        return [(first + row, text) for row, text in zip(chosen, json_of_rows(columns).to_pylist(), strict=True)]

    return locate


class _Located:
    """Records by their number, with their line and text; found out when the first is asked for."""

    def __init__(self, find: Callable[[], list[tuple[int, bytes]]], line: Line) -> None:
        self._find, self._line = find, line
        self._rows: list[tuple[int, bytes]] | None = None
        self._first = 0

    def __getitem__(self, number: int) -> tuple[int, str]:
        if self._rows is None:
            self._rows, self._first = self._find(), self._line()
        newlines, text = self._rows[number]
        return self._first + newlines, text.decode(errors="backslashreplace").strip("\r\n")

    def bad(self, path: str, number: int, wrong: str) -> BadRow:
        """A record that cannot be read as a row."""
        line, text = self[number]
        return BadRow(path, line, wrong, text)


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
