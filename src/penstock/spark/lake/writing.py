"""Files of a lake, written and read back in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec
import pyarrow as pa

from penstock.model.errors import CorruptData
from penstock.model.names import check_topic_name
from penstock.segments.schema import POSITION
from penstock.segments.window import Window
from penstock.segments.writer import write_row_groups
from penstock.spark.lake.cutting import RowGroup, cut
from penstock.spark.lake.layout import LakeFile, Limits, date_of
from penstock.spark.lake.store import TopicStore, store_of
from penstock.spark.origins import open_segment
from penstock.spark.paths import AnyPath, path_of


class LogPlace(msgspec.Struct, frozen=True):
    """A log of a lake."""

    root: str
    topic: str
    table: str
    partition: int

    @property
    def topic_root(self) -> AnyPath:
        """Where its topic lies."""
        return path_of(self.root) / check_topic_name(self.topic)


def write_files(
    log: LogPlace, batches: Iterable[pa.RecordBatch], limit: Limits, cover: tuple[int, int] | None = None
) -> list[LakeFile]:
    """Write rows to files, each on disk under its own name when this returns; nobody sees them until a commit.

    With `cover`, rows were left out: the files stand for all places from the first of these to before the second.
    """
    store = store_of(log.topic_root)
    files: list[LakeFile] = []
    groups = cut(log.table, batches, limit, thinned=cover is not None)
    for _, mine in groupby(groups, key=lambda group: group.file):
        base = None if cover is None else files[-1].end if files else cover[0]
        files.append(_write(store, log, mine, base))
    if cover is not None and files:
        files[-1] = msgspec.structs.replace(files[-1], end=cover[1])
    store.synced(file.name for file in files)
    return files


def _write(store: TopicStore, log: LogPlace, groups: Iterator[RowGroup], base: int | None) -> LakeFile:
    content_bytes = 0

    def counted() -> Iterator[pa.Table]:
        nonlocal content_bytes
        for group in groups:
            content_bytes += group.content_bytes
            yield group.rows

    chunks, info = write_row_groups(log.table, log.topic, log.partition, counted())
    written = LakeFile(
        log.table,
        log.partition,
        date_of(info.first_us),
        info.base if base is None else base,
        info.end,
        info.rows,
        info.size_bytes,
        content_bytes,
        info.first_us,
        info.last_us,
        info.footer_bytes,
        info.footer_crc,
    )
    store.put(written.name, chunks)
    return written


def rows_of(log: LogPlace, file: LakeFile) -> Iterator[pa.RecordBatch]:
    """The rows of a file, each row group checked."""
    with open_segment(file.place(log.topic_root), log.table) as reader:
        for table in reader.tables(Window()):
            yield from table.to_batches()


def read_back(item: tuple[LogPlace, LakeFile]) -> int:
    """Read a file as it lies there: every byte is under a checksum; how many rows, which must be as many as written."""
    log, file = item
    name = str(log.topic_root / file.name)
    rows, last = 0, -1
    with open_segment(file.place(log.topic_root), log.table) as reader:
        for table in reader.tables(Window(file.base, file.end), columns=[POSITION[log.table]]):
            rows, last = rows + len(table), table.column(0)[-1].as_py()
    if rows != file.rows or last >= file.end:
        raise CorruptData(name, 0, f"it has {rows} rows instead of {file.rows}")
    return rows
