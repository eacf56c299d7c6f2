"""Which files are meant by paths, patterns and directories, what each of them is, and which columns it has."""

from __future__ import annotations

import contextlib
import csv
import glob
import gzip
import io
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import msgspec
import pyarrow as pa

from penstock.model.errors import InvalidArgument
from penstock.spark.files.quoting import cut

FORMATS = ("csv", "jsonl", "parquet")
_ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_PACKED = ".gz"
_FIRST_BYTES = 1 << 20
_HEADER_BYTES = 64 << 10
_HEADER_BYTES_MAX = 16 << 20
BOM = b"\xef\xbb\xbf"
"""The byte order mark that some programs write before UTF-8; it does not belong to the first column's name."""


@dataclass(frozen=True)
class Source:
    """A file to be loaded."""

    path: str
    format: str
    packed: bool
    """Compressed with gzip: it can only be read from its beginning."""
    size_bytes: int
    changed_ns: int = 0

    def check_unchanged(self) -> None:
        """Raise if it is not the file any more that was looked at."""
        about = Path(self.path).stat()
        if (about.st_size, about.st_mtime_ns) != (self.size_bytes, self.changed_ns):
            raise InvalidArgument(f"{self.path}: it was changed while it was being loaded; run the load again")

    def open(self) -> IO[bytes]:
        """The file, unpacked as it is read."""
        if self.packed:
            return cast("IO[bytes]", gzip.open(self.path, "rb"))
        return Path(self.path).open("rb")


def find_sources(
    given: Sequence[str | os.PathLike[str]], form: str | None, without: str | os.PathLike[str]
) -> list[Source]:
    """The files that are meant, each once, in the order given and by name inside patterns and directories.

    Of those, what is in the directory `without` is left out: bad rows of a load before are no data.
    """
    if form is not None and form not in FORMATS:
        raise InvalidArgument(f"format: {form!r} is none of {', '.join(FORMATS)}")
    if not given:
        raise InvalidArgument("there are no files to load: give paths, patterns such as 'day-*.csv', or directories")
    found: dict[str, Source] = {}
    problems: list[str] = []
    for name in [os.fspath(path) for path in given]:
        paths = _paths(name, form, Path(without).resolve(), problems)
        for path in paths:
            try:
                source = _source(path, form)
            except InvalidArgument as error:
                problems.append(str(error))
            else:
                found.setdefault(source.path, source)
    if problems:
        raise InvalidArgument("; ".join(problems))
    return list(found.values())


def _paths(name: str, form: str | None, without: Path, problems: list[str]) -> list[str]:
    """The files that one argument means; what is wrong with it is noted."""
    if Path(name).is_dir():
        inside = sorted(path for path in Path(name).rglob("*") if path.is_file() and not _is_hidden(path, name))
        found = [str(path) for path in inside if form is not None or _format_of(str(path))[0] is not None]
        none = f"the directory has no files that end in {', '.join(_ENDINGS)}"
    elif Path(name).exists() or not glob.has_magic(name):
        return [name]
    else:
        found = sorted(path for path in glob.iglob(name, recursive=True) if Path(path).is_file())  # noqa: PTH207 - it may be absolute
        none = "no file matches this pattern"
    paths = [path for path in found if not Path(path).resolve().is_relative_to(without)]
    if not paths:
        problems.append(f"{name}: {none}")
    return paths


def _is_hidden(path: Path, directory: str) -> bool:
    """Whether a file is none of the data, by a name that begins with `.` or `_`."""
    return any(part.startswith((".", "_")) for part in path.relative_to(directory).parts)


def _format_of(path: str) -> tuple[str | None, bool]:
    name = Path(path).name.lower()
    packed = name.endswith(_PACKED)
    name = name.removesuffix(_PACKED)
    return next((form for ending, form in _ENDINGS.items() if name.endswith(ending)), None), packed


def _source(path: str, form: str | None) -> Source:
    try:
        about = Path(path).stat()
        if not stat.S_ISREG(about.st_mode):
            raise InvalidArgument(f"{path}: it is no file")
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise InvalidArgument(f"{path}: {error.strerror or error}") from error
    told, packed = _format_of(path)
    chosen = form or told
    if chosen is None:
        endings = ", ".join(_ENDINGS)
        raise InvalidArgument(f"{path}: its ending is none of {endings} (or these with .gz): give the format")
    if packed and chosen == "parquet":
        raise InvalidArgument(f"{path}: Parquet is not read from {_PACKED}: it is compressed by itself")
    return Source(str(Path(path).absolute()), chosen, packed, about.st_size, about.st_mtime_ns)


@dataclass(frozen=True)
class Head:
    """What is known from the beginning of a file."""

    columns: tuple[str, ...]
    """In JSON lines the columns of the first rows: each row may have its own."""
    start: int
    """Where the first row begins, and on which line."""
    first_line: int


def read_head(source: Source, delimiter: str, *, header: bool) -> Head:
    """The columns of a file, and where its rows begin; an empty CSV has neither."""
    if source.format == "jsonl":
        return _json_head(source)
    if source.format == "parquet":
        return Head(_parquet_columns(source), 0, 1)
    data = _first_record(source, delimiter)
    start = len(BOM) if data.startswith(BOM) else 0
    try:
        text = data[start:].decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{source.path}: its first line is not UTF-8: {error}") from error
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
    if len(rows) > 1:
        raise InvalidArgument(f"{source.path}: its lines end in \\r alone; lines of CSV end in \\n or \\r\\n")
    names = rows[0] if rows else []
    if not header:
        return Head(tuple(f"_c{place}" for place in range(len(names))), start, 1)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(f"{source.path}: two columns are called {twice[0]!r}")
    return Head(tuple(names), len(data), 1 + data.count(b"\n"))


def _json_head(source: Source) -> Head:
    with source.open() as file:
        data = _read(source, file, _FIRST_BYTES)
    start = len(BOM) if data.startswith(BOM) else 0
    names: dict[str, None] = {}
    for line in data[start:].splitlines():
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):  # the last may be half a line
            names.update(dict.fromkeys(msgspec.json.decode(line, type=dict[str, msgspec.Raw])))
    return Head(tuple(names), start, 1)


def _first_record(source: Source, delimiter: str) -> bytes:
    """The bytes of the first line that is not empty, and of the empty ones before; a line may have quoted newlines."""
    size = _HEADER_BYTES
    while True:
        with source.open() as file:
            data = _read(source, file, size)
        whole = len(data) < size
        start = len(BOM) if data.startswith(BOM) else 0
        while data[start : start + 1] in (b"\n", b"\r"):
            start += 1
        if b'"' not in data[start:].partition(b"\n")[0]:
            end = data.find(b"\n", start) + 1
        else:
            end = next((start + piece.end for piece in cut(data[start:], delimiter, 1, final=whole)), 0)
        if end or whole:
            return data[:end] if end else data
        if size > _HEADER_BYTES_MAX:
            raise InvalidArgument(f"{source.path}: its first line does not end within {size:,} bytes: is it CSV?")
        size *= 8


def _read(source: Source, file: IO[bytes], size: int) -> bytes:
    try:
        return file.read(size)
    except (OSError, EOFError) as error:  # what gzip says of a file that is damaged
        raise InvalidArgument(f"{source.path}: it cannot be read: {error}") from error


def _parquet_columns(source: Source) -> tuple[str, ...]:
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(source.path).names
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgument(f"{source.path}: it is no Parquet file, or a damaged one: {error}") from error
    return tuple(names)
