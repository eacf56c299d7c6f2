"""Writing a segment: Arrow batches in, the bytes of a Parquet file out.

Every byte of the file is covered by a checksum: each row group's in the file's own metadata
(`penstock.row_groups`: end position and CRC-32C of each), the footer's in the broker's checkpoint.
Parquet's page checksums are written too, for other readers.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from google_crc32c import extend as crc32c_extend

from penstock.model.stored import SegmentInfo
from penstock.segments.schema import POSITION, TIMESTAMP

ROW_GROUP_ROWS = 32_768
ROW_GROUP_BYTES = {"messages": 8 << 20, "events": 1 << 20}  # a trace reads a few row groups of events, whole
ROW_GROUPS_KEY = "penstock.row_groups"
_SEEKABLE = {"messages": ["key", "priority", "deliver_at", "expires_at"], "events": ["offset", "last", "kind", "group"]}


class _Sink(io.RawIOBase):
    """Collects what the Parquet writer writes, with a running checksum since the last mark."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.position = 0
        self.crc = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        chunk = bytes(data)  # type: ignore[call-overload]
        self.chunks.append(chunk)
        self.position += len(chunk)
        self.crc = crc32c_extend(self.crc, chunk)
        return len(chunk)

    def tell(self) -> int:
        return self.position

    def mark(self) -> tuple[int, int]:
        """The position and the checksum of everything since the last mark."""
        crc, self.crc = self.crc, 0
        return self.position, crc


def write_segment(
    table: str, topic: str, partition: int, batches: Iterable[pa.RecordBatch]
) -> tuple[list[bytes], SegmentInfo]:
    """The bytes of the file, and its info; the batches are in order and not empty."""
    return write_row_groups(table, topic, partition, _row_groups(batches, ROW_GROUP_BYTES[table]))


def write_row_groups(
    table: str, topic: str, partition: int, groups: Iterable[pa.Table]
) -> tuple[list[bytes], SegmentInfo]:
    """The same for rows that are already cut into row groups; the file has the columns of the first."""
    groups = iter(groups)
    first = next(groups)
    sink = _Sink()
    summary = _Summary(table)
    position_column, time_column = POSITION[table], TIMESTAMP[table]
    writer = pq.ParquetWriter(
        pa.PythonFile(sink, mode="w"),
        first.schema.with_metadata({"penstock.topic": topic, "penstock.partition": str(partition)}),
        compression="zstd",
        compression_level=1,
        use_dictionary=["priority", "partition", "kind", "group", "consumer", "attempt", "producer"],
        column_encoding={position_column: "DELTA_BINARY_PACKED", time_column: "DELTA_BINARY_PACKED"},
        write_statistics=[position_column, time_column, *_SEEKABLE[table], "partition"],
        write_page_checksum=True,
        store_schema=True,
    )
    marks: list[tuple[int, int]] = []
    for group in itertools.chain((first,), groups):
        writer.write_table(group, row_group_size=len(group))
        marks.append(sink.mark())
        summary.add(group)
    writer.add_key_value_metadata({ROW_GROUPS_KEY: json.dumps(marks)})
    writer.close()
    size_bytes, footer_crc = sink.mark()
    return sink.chunks, summary.info(size_bytes, size_bytes - marks[-1][0], footer_crc)


def _row_groups(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterable[pa.Table]:
    """Batches joined or cut into row groups of about the same size."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for whole in batches:
        row_bytes = max(1, whole.get_total_buffer_size() // max(1, len(whole)))
        at_once = max(1, min(ROW_GROUP_ROWS, bytes_max // row_bytes))
        for start in range(0, len(whole), at_once):
            batch = whole.slice(start, at_once)
            batch_bytes = row_bytes * len(batch)
            if waiting and (rows + len(batch) > ROW_GROUP_ROWS or size + batch_bytes > bytes_max):
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(batch)
            rows += len(batch)
            size += batch_bytes
    if waiting:
        yield pa.Table.from_batches(waiting)


class _Summary:
    """Collects what SegmentInfo holds."""

    def __init__(self, table: str) -> None:
        self._table, self._position, self._time = table, POSITION[table], TIMESTAMP[table]
        self._rows = self._due_us = self._low = self._high = 0
        self._priorities: set[int] = set()
        self._expires = False
        self._base = self._end = self._first_us = self._last_us = -1

    def add(self, group: pa.Table) -> None:
        times = pc.min_max(group.column(self._time).cast(pa.int64()))
        first_us, last_us = times["min"].as_py(), times["max"].as_py()
        first = self._rows == 0
        if first:
            self._base, self._first_us, self._last_us = group.column(self._position)[0].as_py(), first_us, last_us
        self._rows += len(group)
        self._end = group.column(self._position)[-1].as_py() + 1
        self._first_us, self._last_us = min(self._first_us, first_us), max(self._last_us, last_us)
        if self._table == "messages":
            self._add_messages(group)
        else:
            low, high = pc.min(group.column("offset")).as_py(), pc.max(group.column("last")).as_py()
            self._low, self._high = low if first else min(self._low, low), max(self._high, high)

    def _add_messages(self, group: pa.Table) -> None:
        due_us = pc.max(group.column("deliver_at").cast(pa.int64())).as_py()
        self._due_us = max(self._due_us, due_us or 0)
        self._priorities.update(pc.min_max(group.column("priority")).as_py().values())
        self._expires = self._expires or group.column("expires_at").null_count < len(group)

    def info(self, size_bytes: int, footer_bytes: int, footer_crc: int) -> SegmentInfo:
        return SegmentInfo(
            base=self._base,
            end=self._end,
            rows=self._rows,
            size_bytes=size_bytes,
            first_us=self._first_us,
            last_us=self._last_us,
            due_us=self._due_us,
            footer_bytes=footer_bytes,
            footer_crc=footer_crc,
            priority=self._priorities.pop() if len(self._priorities) == 1 else None,
            low=self._low,
            high=self._high,
            expires=self._expires,
        )
