"""What the index of a partition is built from: columns of its messages, read from the log.

Blocks and segments whose messages are all alike need not be read: their place in the log is enough.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.delivery.index import Columns
from penstock.journal.files import JournalFile
from penstock.log.partition_log import BlockRef, Log
from penstock.model.batch import DELIVER_AT, EXPIRES, PRIORITIES, decode_batch, decode_tags
from penstock.model.stored import SegmentInfo
from penstock.segments.window import Window
from penstock.shard.core import Core

_SPECIAL = PRIORITIES | DELIVER_AT | EXPIRES


class Indexed(NamedTuple):
    """What is indexed of a log: its segments and blocks, with the files of the blocks pinned."""

    segments: list[SegmentInfo]
    blocks: list[BlockRef]
    files: dict[int, JournalFile]

    @classmethod
    def of(cls, core: Core, log: Log) -> Indexed:
        """All of a log as it is now."""
        assert core.lock.held
        segments = [segment for segment in log.segments if not segment.archived]
        blocks = list(log.blocks())
        files = {number: core.journal.files[number] for number in {block.sequence for block in blocks}}
        for file in files.values():
            file.pin()
        return cls(segments, blocks, files)

    def unpin(self, core: Core) -> None:
        """Unpin the files."""
        assert core.lock.held
        for file in self.files.values():
            file.unpin()


def index_columns(core: Core, log: Log, found: Indexed, by_key: bool) -> Iterator[Columns]:
    """What delivery must know of all messages of a log."""
    yield from segment_columns(core, log, found.segments, by_key)
    for block in found.blocks:
        yield _block_columns(core, block, found.files[block.sequence], by_key)


def segment_columns(core: Core, log: Log, segments: Iterable[SegmentInfo], by_key: bool) -> Iterator[Columns]:
    """What delivery must know of settled messages."""
    from penstock.shard.reading.log_reader import LogReader

    now_us = core.clock.wall_us()
    state = log.topic.partitions[log.partition].delivery_state()
    for segment in segments:
        moved = any(segment.base <= offset < segment.end for offset in state.moved)
        whole = segment.rows == segment.end - segment.base
        timed = segment.due_us > now_us or segment.expires or moved
        if segment.priority is not None and whole and not timed and not by_key:
            yield Columns(segment.base, segment.rows, segment.priority)
            continue
        wanted = ["offset", "priority", "deliver_at", "expires_at"] + (["key"] if by_key else [])
        for table in LogReader(core, log, include_deleted=True).tables(segment, Window(), columns=wanted):
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


def _block_columns(core: Core, block: BlockRef, file: JournalFile, by_key: bool) -> Columns:
    if not block.flags & _SPECIAL and not by_key:
        return Columns(block.base, block.count, block.priority)
    body = core.journal.read_body(file, block.position, block.length, block.crc)
    batch = decode_batch(body, block.count) if by_key else decode_tags(body, block.count)
    return Columns(
        block.base, block.count, batch.priority, batch.priorities, batch.deliver_at, batch.expires_at, batch.keys
    )
