"""Where the messages and the events of a partition lie: in segments, and in blocks of the journal.

An idle log costs a few hundred bytes and no file descriptor: where its unsettled blocks lie is a packed array, and
its segments are known by a few numbers each.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from penstock.log.usage import Usage
from penstock.model.names import NORMAL
from penstock.model.stored import Place, SegmentInfo

if TYPE_CHECKING:
    from penstock.log.topics import Topic

_STRIDE = 5
_U32 = 0xFFFFFFFF
_NEVER = 2**63 - 1
_end = attrgetter("end")


Content = tuple[int, int, int, int]
"""What is known of the content of a block without reading it: flags, priority, low, high (see `BlockRef`)."""


class BlockRef(NamedTuple):
    """Where a committed block lies in the journal."""

    base: int
    count: int  # type: ignore[assignment]
    sequence: int
    position: int
    length: int
    crc: int
    timestamp_us: int
    flags: int = 0
    """Of messages: which optional columns the batch has (`model.batch`)."""
    priority: int = NORMAL
    """Of messages: the one of all, unless the flags say PRIORITIES."""
    low: int = 0
    """Of events: the lowest message offset that they speak of."""
    high: int = 0
    """Of events: the highest one."""

    @property
    def end(self) -> int:
        """The offset behind its last one."""
        return self.base + self.count


class Log:
    """One ordered log: the messages, or the events, of a partition."""

    __slots__ = (
        "_blocks",
        "_gaps",
        "_spans",
        "committed_end",
        "going",
        "live_bytes",
        "next_offset",
        "partition",
        "segments",
        "settled_end",
        "table",
        "topic",
    )

    def __init__(self, topic: Topic, table: str, partition: int, first_offset: int = 0) -> None:
        self.topic = topic
        self.table = table
        self.partition = partition
        self.next_offset = first_offset  # given to the next message; those before may not be committed yet
        self.committed_end = first_offset  # what is before can be read, as far as it is still there
        self.settled_end = first_offset  # everything before is in segments, or gone
        self.segments: list[SegmentInfo] = []
        self.going: tuple[int, ...] = ()  # where segments begin that retention is letting go
        self.live_bytes = 0
        self._blocks: array[int] | None = (
            None  # a block: base, priority|flags|count, sequence|position, length|crc, time
        )
        self._spans: array[int] | None = None  # a block of events: low, high
        self._gaps = False  # whether offsets between its blocks may be missing: a repair leaves such gaps

    def __len__(self) -> int:
        return len(self._blocks) // _STRIDE if self._blocks else 0

    def block(self, index: int) -> BlockRef:
        """The block at a place of the index."""
        assert self._blocks is not None
        return _block_at(self._blocks, self._spans, index)

    def blocks(self) -> Iterator[BlockRef]:
        """All blocks that are not settled, in order."""
        return map(self.block, range(len(self)))

    def snapshot(self) -> Iterator[BlockRef]:
        """The same, as they are now: there may be very many, so they are looked at without the lock."""
        if self._blocks is None:
            return iter(())
        spans = None if self._spans is None else self._spans[:]
        return map(partial(_block_at, self._blocks[:], spans), range(len(self)))

    def find(self, offset: int) -> int:
        """The place of the block that holds the offset, or of the first one behind it."""
        blocks = self._blocks
        if not blocks:
            return 0
        index = bisect_right(range(len(self)), offset, key=lambda i: blocks[i * _STRIDE])
        return index - 1 if index and self.block(index - 1).end > offset else index

    def stretches(self, offset: int) -> Iterator[tuple[int, int]]:
        """What its blocks hold, from the one with an offset on: runs, from and to before; one if nothing is missing."""
        index = self.find(offset)
        if index < len(self) and not self._gaps:
            yield self.block(index).base, self.block(len(self) - 1).end
        else:
            yield from ((block.base, block.end) for block in map(self.block, range(index, len(self))))

    def places_about(self, low: int, high: int, first: int = 0) -> Iterator[int]:
        """Of an event log, from place `first` on: the blocks that may speak of messages from `low` to `high`."""
        spans = self._spans or ()
        return (i for i in range(first, len(spans) // 2) if spans[i * 2] <= high and low <= spans[i * 2 + 1])

    def add(self, usage: Usage, base: int, count: int, place: Place, timestamp_us: int, content: Content) -> None:
        """Take a committed block in; one that is settled is not needed, and one that is known has moved."""
        if base < self.settled_end:
            return
        if self._blocks is None:
            self._blocks = array("Q")
            self._spans = array("Q") if self.table == "events" else None
        blocks, spans = self._blocks, self._spans
        sequence, position, length, crc = place
        flags, priority, low, high = content
        line = (
            base,
            priority << 40 | flags << 32 | count,
            sequence << 32 | position,
            length << 32 | crc,
            timestamp_us,
        )
        self.live_bytes += length
        usage.took(sequence, self, length, timestamp_us)
        end = blocks[-_STRIDE] + (blocks[1 - _STRIDE] & _U32) if blocks else base
        if base >= end:
            self._gaps = self._gaps or base > end
            blocks.extend(line)
            if spans is not None:
                spans.extend((low, high))
        else:
            index = self.find(base)
            known = blocks[index * _STRIDE] == base
            if known:
                usage.gave(blocks[index * _STRIDE + 2] >> 32, length)
                self.live_bytes -= length
            self._gaps = self._gaps or not known
            blocks[index * _STRIDE : (index + known) * _STRIDE] = array("Q", line)
            if spans is not None:
                spans[index * 2 : (index + known) * 2] = array("Q", (low, high))
        self.skip(base + count)

    def skip(self, end: int) -> None:
        """Never give the offsets before `end`, although nothing is known of them any more."""
        self.committed_end = max(self.committed_end, end)
        self.next_offset = max(self.next_offset, end)

    def drop(self, usage: Usage, count: int) -> None:
        """Forget the first blocks: they are settled."""
        if self._blocks is not None:
            gone: Counter[int] = Counter()
            dropped = self._blocks[: count * _STRIDE]
            for place, content in zip(dropped[2::_STRIDE], dropped[3::_STRIDE], strict=True):
                gone[place >> 32] += content >> 32
            for sequence, size_bytes in gone.items():
                self.live_bytes -= size_bytes
                usage.gave(sequence, size_bytes)
            del self._blocks[: count * _STRIDE]
            if self._spans is not None:
                del self._spans[: count * 2]
            if not self._blocks:
                self._blocks = self._spans = None
                self._gaps = False

    def close(self, usage: Usage) -> None:
        """Its topic is deleted: forget everything, also what is still being written."""
        self.drop(usage, len(self))
        self.segments = []
        self.settled_end = _NEVER


def _block_at(blocks: array[int], spans: array[int] | None, index: int) -> BlockRef:
    base, nature, place, content, timestamp_us = blocks[index * _STRIDE : (index + 1) * _STRIDE]
    low, high = (0, 0) if spans is None else spans[index * 2 : index * 2 + 2]
    return BlockRef(
        base,
        nature & _U32,
        place >> 32,
        place & _U32,
        content >> 32,
        content & _U32,
        timestamp_us,
        nature >> 32 & 0xFF,
        nature >> 40,
        low,
        high,
    )


def first_offset(log: Log) -> int:
    """The lowest offset that can be delivered."""
    live = next((segment.base for segment in log.segments if not segment.archived), None)
    if live is not None:
        return live
    return log.block(0).base if len(log) else log.committed_end


def is_kept(log: Log, offset: int) -> bool:
    """Whether the log still holds the message at an offset."""
    if offset >= log.committed_end:
        return False
    missing = missing_runs(log, offset)
    return not missing or missing[0][0] > offset


def missing_runs(log: Log, start: int, archived: bool = False) -> tuple[tuple[int, int], ...]:
    """What is not in the log any more, or about to go, from an offset on: runs, from and to before.

    What is in the archive counts as missing, unless it is wanted.
    """
    held = [
        (segment.base, segment.end)
        for segment in log.segments[bisect_right(log.segments, start, key=_end) :]
        if archived or not (segment.archived or segment.base in log.going)
    ]
    held += log.stretches(start)
    runs: list[tuple[int, int]] = []
    for first, end in (*held, (log.committed_end, log.committed_end)):
        if first > start:
            runs.append((start, first))
        start = max(start, end)
    return tuple(runs)
