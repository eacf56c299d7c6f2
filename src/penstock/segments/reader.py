"""Reading a segment: only row groups that can hold requested rows, each checked before it is used."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from google_crc32c import value as crc32c

from penstock.model.errors import CorruptData
from penstock.model.stored import SegmentInfo
from penstock.segments.schema import POSITION, SCHEMAS, TIMESTAMP
from penstock.segments.window import OFFSET_MAX, Window
from penstock.segments.writer import ROW_GROUPS_KEY
from penstock.storage import File, Storage
from penstock.storage.interface import ReadsAhead
from penstock.storage.objects import StoreUnavailable

_NOT_READ = (FileNotFoundError, PermissionError, StoreUnavailable)  # what a bucket says only now: nothing of the bytes

_AT_ONCE_BYTES = 8 << 20  # of row groups that lie side by side, where requests take longer than bytes


class SegmentReader:
    """An open segment."""

    def __init__(self, storage: Storage, name: str, table: str, info: SegmentInfo) -> None:
        self._position, self._time = POSITION[table], TIMESTAMP[table]
        self._usual = SCHEMAS[table].names
        self.row_groups_read = 0
        file = storage.open(name)
        try:
            self._bytes = _CheckedBytes(file, name, info)
            metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + self._bytes.footer))
            self._bytes.learn(json.loads(metadata.metadata[ROW_GROUPS_KEY.encode()]))
            self._parquet = pq.ParquetFile(pa.PythonFile(self._bytes, mode="r"), metadata=metadata, pre_buffer=False)
            self._columns = {metadata.schema.column(i).path: i for i in range(len(metadata.schema))}
        except _NOT_READ:
            file.close()
            raise
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            file.close()
            raise CorruptData(name, info.size_bytes - info.footer_bytes, f"not a segment: {error}") from error
        except CorruptData:
            file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bytes.close_file()

    def tables(
        self, window: Window, about: tuple[int, int] | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.Table]:
        """The rows inside the window, a table for each row group that holds some.

        With `about`, for segments of events: only events that may be about messages from the first of these offsets to
        the second. With `columns`, only these, in this order; `producer` is read only if it is requested.
        """
        needed = self._usual
        if columns is not None:
            runs = () if about is None else ("offset", "last")
            needed = list(dict.fromkeys((self._position, self._time, *runs, *columns)))
        chosen = [number for number in range(self._parquet.metadata.num_row_groups) if self._has(number, window, about)]
        self._bytes.plan(chosen)
        for number in chosen:
            self.row_groups_read += 1
            self._bytes.load(number)
            table = self._cut(self._read(number, needed), window)
            if about is not None:
                table = table.filter((pc.field("offset") <= about[1]) & (pc.field("last") >= about[0]))
            if len(table):
                yield table if columns is None else _with_producer(table, columns).select(columns)

    def _has(self, number: int, window: Window, about: tuple[int, int] | None) -> bool:
        """Whether a row group may have some of it."""
        first, last = self._bounds(number, self._position)
        return window.meets(first, last, *self._bounds(number, self._time)) and self._may_speak_of(number, about)

    def bounds(self, column: str) -> tuple[int, int]:
        """The lowest and the highest value of a column."""
        found = [self._bounds(number, column) for number in range(self._parquet.metadata.num_row_groups)]
        return min(low for low, _ in found), max(high for _, high in found)

    def _may_speak_of(self, number: int, about: tuple[int, int] | None) -> bool:
        if about is None:
            return True
        return self._bounds(number, "offset")[0] <= about[1] and about[0] <= self._bounds(number, "last")[1]

    def _bounds(self, number: int, column: str) -> tuple[int, int]:
        """The lowest and the highest value of a column in a row group."""
        statistics = self._parquet.metadata.row_group(number).column(self._columns[column]).statistics
        return statistics.min_raw, statistics.max_raw

    def _read(self, number: int, columns: list[str] | None) -> pa.Table:
        # In this thread only: a thread of Arrow that still holds Python bytes when the process ends aborts it.
        try:
            return self._parquet.read_row_group(number, columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            cause = error.__cause__ or error.__context__ or error
            if isinstance(cause, (CorruptData, *_NOT_READ)):
                raise cause from None
            raise CorruptData(self._bytes.name, 0, f"row group {number}: {error}") from error

    def _cut(self, table: pa.Table, window: Window) -> pa.Table:
        offsets = table.column(self._position)
        if offsets[0].as_py() < window.start or offsets[-1].as_py() >= window.end:
            table = table.filter(
                pc.and_(pc.greater_equal(offsets, window.start), pc.less(offsets, min(window.end, OFFSET_MAX)))
            )
        if window.timed and len(table):
            times = table.column(self._time).cast(pa.int64())
            table = table.filter(pc.and_(pc.greater_equal(times, window.from_us), pc.less(times, window.to_us)))
        return table


def _with_producer(table: pa.Table, columns: list[str]) -> pa.Table:
    """The table with an empty `producer` column, if it is requested and the file is of a version without it."""
    if "producer" in columns and "producer" not in table.column_names:
        return table.append_column("producer", pa.nulls(len(table), pa.string()))
    return table


class _CheckedBytes(io.RawIOBase):
    """The file as Arrow sees it: regions (row groups, footer) are read whole and checked before a byte is returned."""

    def __init__(self, file: File, name: str, info: SegmentInfo) -> None:
        self._file, self.name, self._size = file, name, info.size_bytes
        start = info.size_bytes - info.footer_bytes
        self.footer = self._load(start, info.size_bytes, info.footer_crc, "the footer")
        self._regions: list[tuple[int, int, int]] = []  # (start, end, crc)
        self._following: dict[int, tuple[int, int]] = {}  # what is read at once, by where begins what is read before
        self._loaded: tuple[int, int, bytes] = (0, 0, b"")
        self._at = 0

    def learn(self, marks: list[tuple[int, int]]) -> None:
        """Take the row groups' ends and checksums from the footer."""
        start = 0
        for end, crc in marks:
            self._regions.append((start, end, crc))
            start = end

    def _load(self, start: int, end: int, crc: int, what: str) -> bytes:
        data = self._file.read(start, end - start)
        if len(data) != end - start or crc32c(data) != crc:
            raise CorruptData(self.name, start, f"{what} does not match its checksum")
        return data

    def plan(self, numbers: list[int]) -> None:
        """Read these row groups in this order: where that takes its time, several at once, and ahead."""
        if isinstance(self._file, ReadsAhead):
            runs: list[tuple[int, int]] = []
            for start, end, _ in (self._regions[number] for number in numbers):
                if runs and runs[-1][1] == start and end - runs[-1][0] <= _AT_ONCE_BYTES:
                    runs[-1] = (runs[-1][0], end)
                else:
                    runs.append((start, end))
            self._following = {before[0]: after for before, after in pairwise([(-1, -1), *runs])}
            self._expect(-1)

    def load(self, number: int) -> None:
        """Have a row group at hand, and begin to read what follows those that came with it."""
        start = self._regions[number][0]
        self._region(start)
        self._expect(start)

    def _expect(self, after: int) -> None:
        run = self._following.pop(after, None)
        if run is not None and isinstance(self._file, ReadsAhead):
            self._file.expect(run[0], run[1] - run[0])

    def _region(self, position: int) -> tuple[int, int, bytes]:
        start, end, _ = self._loaded
        if not start <= position < end:
            for number, (start, end, crc) in enumerate(self._regions):
                if start <= position < end:
                    self._loaded = (start, end, self._load(start, end, crc, f"row group {number}"))
                    break
            else:
                raise CorruptData(self.name, position, "a read outside of all row groups")
        return self._loaded

    def read(self, size: int = -1) -> bytes:
        size = self._size - self._at if size < 0 else min(size, self._size - self._at)
        if size <= 0:
            return b""
        start, end, data = self._region(self._at)
        piece = data[self._at - start : min(self._at + size, end) - start]
        self._at += len(piece)
        return piece if len(piece) == size else piece + self.read(size - len(piece))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close_file(self) -> None:
        """Close the file; the `close` of Arrow does not."""
        self._file.close()
