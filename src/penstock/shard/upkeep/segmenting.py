"""Making a segment from blocks of the journal: the part of settling that needs only files, no broker."""

from __future__ import annotations

import contextlib
import itertools
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from penstock.journal.files import read_body
from penstock.journal.layout import file_name
from penstock.log.partition_log import BlockRef
from penstock.model.batch import decode_batch, join_batches
from penstock.model.events import decode_events
from penstock.model.stored import SegmentInfo, segment_name
from penstock.segments.window import Rows
from penstock.storage import File, Storage
from penstock.storage.interface import stage_file

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_TOGETHER, _BYTES_TOGETHER = 5000, 4 << 20
ReadBlocks = Callable[[list[BlockRef]], list[bytes]]
ToArrow = Callable[[Rows, int], "pa.RecordBatch"]


class SegmentOrder(msgspec.Struct, frozen=True, array_like=True):
    """A segment to be made: its log, and its blocks."""

    topic: str
    table: str
    partition: int
    blocks: list[BlockRef]
    temporary: str
    """The end of the file's name until it is published."""
    epoch: int = 0
    """Of the owner, where names carry it."""

    @property
    def name(self) -> str:
        """Where the segment will be."""
        return segment_name(self.topic, self.table, self.partition, self.blocks[0].base, self.epoch)


def stage_segment(storage: Storage, order: SegmentOrder, read: ReadBlocks) -> SegmentInfo:
    """Write the segment under its temporary name and sync it; `read` returns the checked bodies of blocks."""
    chunks, info = make_segment(order, read)
    stage_file(storage, order.name, chunks, order.temporary)
    return info


def make_segment(order: SegmentOrder, read: ReadBlocks) -> tuple[list[bytes], SegmentInfo]:
    """The bytes of the segment, and its info; `read` is asked for the runs of its blocks, one after the other."""
    from penstock.segments.schema import stored_messages_to_arrow
    from penstock.segments.writer import write_segment

    batches = arrow_of_blocks(order.table, order.partition, order.blocks, read, stored_messages_to_arrow)
    chunks, info = write_segment(order.table, order.topic, order.partition, batches)
    return chunks, msgspec.structs.replace(info, epoch=order.epoch) if order.epoch else info


@contextlib.contextmanager
def journal_opened(storage: Storage) -> Iterator[ReadBlocks]:
    """A function that reads blocks from the journal of a directory, without a broker; it opens files as needed."""
    with contextlib.ExitStack() as opened:
        files: dict[int, File] = {}

        def read(blocks: list[BlockRef]) -> list[bytes]:
            for sequence in {block.sequence for block in blocks} - files.keys():
                files[sequence] = storage.open(file_name(sequence))
                opened.callback(files[sequence].close)
            return [
                read_body(files[block.sequence], block.sequence, block.position, block.length, block.crc)
                for block in blocks
            ]

        yield read


def arrow_of_blocks(
    table: str, partition: int, blocks: list[BlockRef], read: ReadBlocks, to_arrow: ToArrow | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of blocks; small blocks are joined first, because every Arrow batch has a cost.

    `to_arrow` makes batches of messages with other columns than readers get.
    """
    from penstock.segments.schema import events_to_arrow, messages_to_arrow

    for some in runs_of(blocks):
        bodies = read(some)
        if table == "events":
            events = list(itertools.chain.from_iterable(map(decode_events, bodies)))
            yield events_to_arrow(some[0].base, events, partition)
            continue
        batch = join_batches([decode_batch(body, block.count) for body, block in zip(bodies, some, strict=True)])
        times_us = array("q")
        for block in some:
            times_us.extend(array("q", (block.timestamp_us,)) * block.count)
        rows = Rows(range(some[0].base, some[-1].end), times_us, batch)
        yield (to_arrow or messages_to_arrow)(rows, partition)


def runs_of(blocks: list[BlockRef]) -> Iterator[list[BlockRef]]:
    """Runs of blocks without a gap, each of a size that makes a batch of neither few nor too many rows."""
    some: list[BlockRef] = []
    rows = size = 0
    for block in blocks:
        if some and (block.base != some[-1].end or rows >= _ROWS_TOGETHER or size + block.length > _BYTES_TOGETHER):
            yield some
            some, rows, size = [], 0, 0
        some.append(block)
        rows += block.count
        size += block.length
    if some:
        yield some
