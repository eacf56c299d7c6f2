"""Every byte of every file: checksums, and places that grow; in tasks, a few files each."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from google_crc32c import value as crc32c

from penstock.model.errors import CorruptData
from penstock.model.layout import SegmentPlace, ThinnedSegment
from penstock.segments.schema import POSITION, is_schema_of
from penstock.segments.writer import ROW_GROUPS_KEY
from penstock.spark.buckets import objects_at
from penstock.spark.jobs.auditing.problems import Findings
from penstock.spark.jobs.auditing.sides import LogView, Side
from penstock.spark.spreading import bundled, spread
from penstock.storage.buckets import is_bucket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHUNK_BITS = 16
"""Sums are kept for each chunk of 2 ** 16 offsets, so that what differs is found without looking at everything."""
_TASK_BYTES = 64 << 20


@dataclass(frozen=True)
class _File:
    segment: SegmentPlace
    table: str
    partition: int


@dataclass(frozen=True)
class _Checked:
    """What a task found out about a file."""

    missing: bool = False
    problem: str | None = None
    rows_of_chunks: tuple[tuple[int, int], ...] = ()


def check_files(spark: SparkSession, side: Side, findings: Findings) -> tuple[int, int]:
    """Check all files of a side; how many, and their bytes. Those that are damaged are left out of its logs.

    What cannot be seen from here is read through the server, if there is one.
    """
    listed = [(view, segment) for view in side.logs.values() for segment in view.segments]
    files = [_File(segment, view.table, view.partition) for view, segment in listed]
    bundles = bundled(files, lambda file: file.segment.size_bytes, _TASK_BYTES)
    reports = [
        report
        for checked in spread(spark, bundles, lambda files: [_check(file) for file in files])
        for report in checked
    ]
    behind_server: list[tuple[LogView, SegmentPlace]] = []
    for (view, segment), report in zip(listed, reports, strict=True):
        if report.missing and side.place.servers is not None:
            behind_server.append((view, segment))
        elif report.missing or report.problem is not None:
            what = f"{side.name}{segment.path}: {report.problem or 'the file is missing'}"
            offset = segment.base if view.table == "messages" else None
            events = "" if view.table == "messages" else f" (events {segment.base} to {segment.end - 1})"
            findings.problem(view.topic, view.partition, offset, what + events)
            view.segments.remove(segment)
            view.broken.append((segment.base, segment.end))
        for chunk, rows in report.rows_of_chunks:
            view.rows_of_chunks[chunk] = view.rows_of_chunks.get(chunk, 0) + rows
    for view, segment in behind_server:  # and everything behind it: the data source reads from one place on
        view.source_from = min(view.source_from, segment.base)
        view.segments = [one for one in view.segments if one.end <= view.source_from]
    return len(listed), sum(segment.size_bytes for _, segment in listed)


def _check(file: _File) -> _Checked:
    try:
        data = _bytes_of(file.segment.path)
    except FileNotFoundError:
        return _Checked(missing=True)
    except OSError as error:
        is_closed = isinstance(error, PermissionError)  # to us: a server can read it
        return _Checked(missing=is_closed, problem=f"it cannot be read: {error.strerror}")
    try:
        return _Checked(rows_of_chunks=_look_through(file, data))
    except CorruptData as error:
        return _Checked(problem=f"at byte {error.position}: {error.problem}")
    except (pa.ArrowException, OSError, LookupError, ValueError, TypeError) as error:
        return _Checked(problem=f"it is no segment: {error}")


def _bytes_of(path: str) -> bytes:
    if not is_bucket(path):
        return Path(path).read_bytes()
    data = objects_at(path.rpartition("/")[0]).get(path.rpartition("/")[2])
    if data is None:
        raise FileNotFoundError(errno.ENOENT, "no such object", path)
    return data


def _look_through(file: _File, data: bytes) -> tuple[tuple[int, int], ...]:
    """Check it all; the rows of each chunk, if there are fewer rows than places."""
    segment, name = file.segment, file.segment.path
    view = memoryview(data)
    footer = len(data) - segment.footer_bytes
    if len(data) != segment.size_bytes:
        raise CorruptData(name, 0, f"it has {len(data)} bytes instead of {segment.size_bytes}")
    if crc32c(bytes(view[footer:])) != segment.footer_crc:
        raise CorruptData(name, footer, "the footer does not match its checksum")
    parquet = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
    start = 0
    for number, (end, crc) in enumerate(json.loads(parquet.metadata.metadata[ROW_GROUPS_KEY.encode()])):
        if crc32c(bytes(view[start:end])) != crc:
            raise CorruptData(name, start, f"row group {number} does not match its checksum")
        start = end
    if start != footer or not is_schema_of(file.table, parquet.schema_arrow):
        raise CorruptData(name, start, "there is more in it than its row groups, or other columns")
    return _places(file, parquet)


def _places(file: _File, parquet: pq.ParquetFile) -> tuple[tuple[int, int], ...]:
    segment, name = file.segment, file.segment.path
    table = parquet.read(columns=[POSITION[file.table], "partition"], use_threads=False)
    places = table.column(0).combine_chunks()
    if len(places) != segment.rows:
        raise CorruptData(name, 0, f"it has {len(places)} rows instead of {segment.rows}")
    first, last = places[0].as_py(), places[-1].as_py()
    thinned = isinstance(segment, ThinnedSegment)
    bounds = first >= segment.base and last < segment.end
    if not bounds or (not thinned and (first, last) != (segment.base, segment.end - 1)):
        raise CorruptData(name, 0, f"its rows go from {first} to {last}, not from {segment.base} to {segment.end - 1}")
    if len(places) > 1 and pc.min(pc.pairwise_diff(places).slice(1)).as_py() < 1:
        raise CorruptData(name, 0, "its rows are not in order, or one is there twice")
    if pc.min_max(table.column(1)).as_py() != {"min": file.partition, "max": file.partition}:
        raise CorruptData(name, 0, f"it has rows of other partitions than {file.partition}")
    if segment.rows == segment.end - segment.base:
        return ()
    counts = pc.value_counts(pc.shift_right(places, CHUNK_BITS))
    return tuple((entry["values"], entry["counts"]) for entry in counts.to_pylist())
