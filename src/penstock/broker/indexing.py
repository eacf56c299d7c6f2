"""Building the index of a partition from its log, while publishing goes on.

What is committed meanwhile is kept aside by a `Latecomers` in the index's place. Blocks and segments whose
messages are all alike need not be read: where they lie tells what they are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.delivery.index import Columns, PartitionIndex
from penstock.journal.files import JournalFile
from penstock.log.partition_log import BlockRef, Log, first_offset
from penstock.log.topics import Partition
from penstock.model.batch import DELIVER_AT, EXPIRES, PRIORITIES, decode_batch, decode_tags
from penstock.model.stored import SegmentInfo

if TYPE_CHECKING:
    from penstock.broker.engine import Engine

_SPECIAL = PRIORITIES | DELIVER_AT | EXPIRES


class Latecomers:
    """Takes what is committed while an index is being built."""

    def __init__(self) -> None:
        self.columns: list[Columns] = []

    def add(self, columns: Columns) -> None:
        """Keep it for the index."""
        self.columns.append(columns)


def build_index(engine: Engine, partition: Partition) -> PartitionIndex:
    """The index of everything that the partition holds, put in its place when it is whole."""
    log = partition.messages
    by_key = log.topic.config.order == "key"
    with engine.lock:
        state = partition.delivery_state()
        late = partition.index = Latecomers()
        segments = [segment for segment in log.segments if not segment.archived]
        blocks = list(log.blocks())
        files = {number: engine.journal.files[number] for number in {block.sequence for block in blocks}}
        for file in files.values():
            file.pin()
        index = PartitionIndex(first_offset(log), state, by_key, engine.clock.wall_us())
        index.on_due = engine.meters.fell_due
    try:
        for columns in segment_columns(engine, log, segments, by_key):
            index.add(columns)
        for block in blocks:
            index.add(_block_columns(engine, block, files[block.sequence], by_key))
    except BaseException:
        with engine.lock:
            partition.index = None
        raise
    finally:
        with engine.lock:
            for file in files.values():
                file.unpin()
    with engine.lock:
        for columns in late.columns:
            index.add(columns)
        index.end = max(index.end, log.committed_end)
        partition.index = index
    return index


def segment_columns(engine: Engine, log: Log, segments: Iterable[SegmentInfo], by_key: bool) -> Iterator[Columns]:
    """What delivery must know of settled messages."""
    from penstock.broker.reading import LogReader

    now_us = engine.clock.wall_us()
    state = log.topic.partitions[log.partition].delivery_state()
    for segment in segments:
        moved = any(segment.base <= offset < segment.end for offset in state.moved)
        whole = segment.rows == segment.end - segment.base
        timed = segment.due_us > now_us or segment.expires or moved
        if segment.priority is not None and whole and not timed and not by_key:
            yield Columns(segment.base, segment.rows, segment.priority)
            continue
        wanted = ["offset", "priority", "deliver_at", "expires_at"] + (["key"] if by_key else [])
        for table in LogReader(engine, log, include_deleted=True).segment_tables(segment, wanted):
            yield from _table_columns(table, by_key)


def _table_columns(table: object, by_key: bool) -> Iterator[Columns]:
    """The columns of a table of a segment, cut where offsets are missing."""
    import pyarrow as pa

    assert isinstance(table, pa.Table)
    offsets = table.column("offset").to_pylist()
    priorities = bytes(table.column("priority").to_pylist())
    times = {
        name: array("q", table.column(name).cast(pa.int64()).fill_null(0).to_pylist())
        for name in ("deliver_at", "expires_at")
        if table.column(name).null_count < len(table)
    }
    keys = table.column("key").to_pylist() if by_key else None
    uniform = priorities.count(priorities[0]) == len(priorities)
    start = 0
    while start < len(offsets):
        end = start + 1
        if offsets[-1] - offsets[start] == len(offsets) - 1 - start:
            end = len(offsets)
        while end < len(offsets) and offsets[end] == offsets[end - 1] + 1:
            end += 1
        yield Columns(
            offsets[start],
            end - start,
            priorities[start],
            None if uniform else priorities[start:end],
            times["deliver_at"][start:end] if "deliver_at" in times else None,
            times["expires_at"][start:end] if "expires_at" in times else None,
            None if keys is None else keys[start:end],
        )
        start = end


def _block_columns(engine: Engine, block: BlockRef, file: JournalFile, by_key: bool) -> Columns:
    if not block.flags & _SPECIAL and not by_key:
        return Columns(block.base, block.count, block.priority)
    body = engine.journal.read_body(file, block.position, block.length, block.crc)
    batch = decode_batch(body, block.count) if by_key else decode_tags(body, block.count)
    return Columns(
        block.base, block.count, batch.priority, batch.priorities, batch.deliver_at, batch.expires_at, batch.keys
    )
