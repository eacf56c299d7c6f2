"""Files cut into ranges that tasks can read by themselves, each with the number of its first line.

The cuts depend on what is in the files and on nothing else: whoever runs the same load again, on any number of cores,
gets the same ranges. Every byte is looked at once for that, which also tells whether a file has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from penstock.spark.files.quoting import cut
from penstock.spark.files.sources import Head, Source
from penstock.spark.spreading import filled, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE_BYTES = 16 << 20
PART_BYTES = 128 << 20
"""Ranges of about this size are published together."""
_SLACK_BYTES = 2 << 20
"""Read beyond a range to find where its last record ends."""
_TASKS_PER_CORE = 4  # that look: a stretch takes less than starting a task for it
_PARQUET_RANGE_ROWS = 150_000
_PARQUET_ROW_BYTES = 100


@dataclass(frozen=True)
class Range:
    """A part of a file, for one task."""

    source: Source
    columns: tuple[str, ...]
    start: int
    """Bytes of a text, rows of Parquet."""
    end: int
    first_line: int
    quoted: bool
    """Whether there may be quoted fields in it."""

    @property
    def size_bytes(self) -> int:
        """About how much of its file it is."""
        if self.source.format == "parquet":
            return (self.end - self.start) * _PARQUET_ROW_BYTES
        return (self.source.size_bytes if self.source.packed else self.end) - self.start


class _Chunk(NamedTuple):
    """Facts about a stretch of a file."""

    checksum: int
    newlines: int
    first_newline: int
    """Its place in the file; -1 if there is none."""
    quoted: bool


class _Looked(NamedTuple):
    """A file that was looked at."""

    source: Source
    head: Head
    chunks: list[_Chunk]

    @property
    def is_walked(self) -> bool:
        """Whether it has to be read from its beginning to know where records end."""
        return self.source.format == "csv" and not self.source.packed and any(chunk.quoted for chunk in self.chunks)

    @property
    def rows(self) -> int:
        """About how many there are; nobody knows of one that is packed."""
        if self.source.format == "parquet":
            return sum(part.end - part.start for part in _row_groups(self))
        return 0 if self.source.packed else sum(chunk.newlines for chunk in self.chunks)


@dataclass(frozen=True)
class Cut:
    """All ranges, in order, and what the files hold, as a number."""

    ranges: list[Range]
    fingerprint: str
    rows: int
    """About how many rows there are, for a bar."""


def cut_files(
    spark: SparkSession,
    sources: Sequence[Source],
    heads: Sequence[Head],
    delimiter: str,
) -> Cut:
    """Look at every byte, in tasks, and cut."""
    range_bytes = RANGE_BYTES
    starts = [range(0, max(source.size_bytes, 1), range_bytes) for source in sources]
    places = [(source.path, start) for source, of_it in zip(sources, starts, strict=True) for start in of_it]
    in_a_task = max(1, len(places) // (_TASKS_PER_CORE * spark.sparkContext.defaultParallelism))
    together = [places[start : start + in_a_task] for start in range(0, len(places), in_a_task)]
    chunks = chain.from_iterable(spread(spark, together, partial(_look, range_bytes)))
    looked = [
        _Looked(source, head, [next(chunks) for _ in of_it])
        for source, head, of_it in zip(sources, heads, starts, strict=True)
    ]
    walked = iter(spread(spark, [file for file in looked if file.is_walked], partial(_walk, delimiter, range_bytes)))
    ranges = [part for file in looked for part in (next(walked) if file.is_walked else _ranges(file))]
    told = [(file.source.size_bytes, [chunk.checksum for chunk in file.chunks]) for file in looked]
    return Cut(ranges, hashlib.sha256(repr(told).encode()).hexdigest(), sum(file.rows for file in looked))


def parts_of(ranges: Sequence[Range]) -> list[list[Range]]:
    """Ranges in groups that are published together."""
    return filled(ranges, lambda part: part.size_bytes, PART_BYTES)


def _look(range_bytes: int, places: Sequence[tuple[str, int]]) -> list[_Chunk]:
    """In a task: some stretches of files."""
    found: list[_Chunk] = []
    for path, start in places:
        with Path(path).open("rb") as file:
            file.seek(start)
            data = file.read(range_bytes)
        newline = data.find(b"\n")
        first = -1 if newline < 0 else start + newline
        found.append(_Chunk(google_crc32c.value(data), data.count(b"\n"), first, b'"' in data))
    return found


def _ranges(file: _Looked) -> Iterator[Range]:
    source, head, chunks = file
    if source.format == "parquet":
        yield from _row_groups(file)
    elif source.packed:
        yield Range(source, head.columns, head.start, -1, head.first_line, quoted=True)
    else:
        yield from _at_newlines(source, head, chunks)


def _at_newlines(source: Source, head: Head, chunks: list[_Chunk]) -> Iterator[Range]:
    """A file in which every newline ends a record is cut behind the first of each chunk."""
    start, line, newlines = head.start, head.first_line, 0
    for place, chunk in enumerate(chunks):
        cut_at = chunk.first_newline + 1
        if place and cut_at > start:
            yield Range(source, head.columns, start, cut_at, line, quoted=False)
            start, line = cut_at, newlines + 2
        newlines += chunk.newlines
    if start < source.size_bytes:
        yield Range(source, head.columns, start, source.size_bytes, line, quoted=False)


def _walk(delimiter: str, range_bytes: int, looked: _Looked) -> list[Range]:
    """In a task: cut a file whose quoted fields may hold newlines, from its beginning."""
    source, head, _ = looked
    found: list[Range] = []
    start, line, size = head.start, head.first_line, range_bytes + _SLACK_BYTES
    with Path(source.path).open("rb") as file:
        while start < source.size_bytes:
            file.seek(start)
            data = file.read(size)
            final = start + len(data) >= source.size_bytes
            end = max((piece.end for piece in cut(data, delimiter, range_bytes, final=final)), default=0)
            if not end:
                size *= 2
                continue
            found.append(Range(source, head.columns, start, start + end, line, quoted=True))
            start, line, size = start + end, line + data.count(b"\n", 0, end), range_bytes + _SLACK_BYTES
    return found


def _row_groups(file: _Looked) -> list[Range]:
    """Parquet is read by row groups; small ones together."""
    import pyarrow.parquet as pq

    found: list[Range] = []
    start = end = 0
    metadata = pq.read_metadata(file.source.path)
    for number in range(metadata.num_row_groups):
        end += metadata.row_group(number).num_rows
        if end - start >= _PARQUET_RANGE_ROWS or (number == metadata.num_row_groups - 1 and end > start):
            found.append(Range(file.source, file.head.columns, start, end, start + 1, quoted=False))
            start = end
    return found
