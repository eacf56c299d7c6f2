"""Where the messages and the events of a partition lie: in segments, and in blocks of the journal.

An idle log costs a few hundred bytes and no file descriptor: where its unsettled blocks lie is packed (38 bytes each),
and its segments are known by a few numbers each.
"""

from __future__ import annotations

import struct
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

_LINE = struct.Struct("<QIIIIIQBB")  # a block, packed: the first fields of a `BlockRef`
_LINE_BYTES = _LINE.size
_pack_line = _LINE.pack
_BASE = struct.Struct("<Q")
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
        "_held_end",
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
        self._blocks: bytearray | None = None  # a line each
        self._spans: array[int] | None = None  # a block of events: low, high
        self._held_end = -1  # behind the last block, if there is one
        self._gaps = False  # whether offsets between its blocks may be missing: a repair leaves such gaps

    def __len__(self) -> int:
        return len(self._blocks) // _LINE_BYTES if self._blocks else 0

    def block(self, index: int) -> BlockRef:
        """The block at a place of the index."""
        assert self._blocks is not None
        return _block_at(self._blocks, self._spans, index)

    def blocks(self) -> Iterator[BlockRef]:
        """All blocks that are not settled, in order."""
        return map(self.block, range(len(self)))

    def blocks_in(self, sequence: int) -> list[BlockRef]:
        """Those of them that lie in one file; there may be very many others."""
        lines = _LINE.iter_unpack(self._blocks or b"")
        return [self.block(index) for index, line in enumerate(lines) if line[2] == sequence]

    def bytes_in(self, sequence: int) -> int:
        """How many bytes they have in one file."""
        return sum(line[4] for line in _LINE.iter_unpack(self._blocks or b"") if line[2] == sequence)

    def is_older(self, limit_us: int) -> bool:
        """Whether its first block is from before a time."""
        return bool(self._blocks) and self.block(0).timestamp_us < limit_us

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
        first, count = _base_at(blocks, 0), len(self)
        if first < offset < self._held_end:  # where blocks are of one size, this is the place
            index = (offset - first) * count // (self._held_end - first)
            block = self.block(index)
            if block.base <= offset < block.end:
                return index
        index = bisect_right(range(len(self)), offset, key=lambda i: _base_at(blocks, i))
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
        sequence, position, length, crc = place
        flags, priority, low, high = content
        line = _pack_line(base, count, sequence, position, length, crc, timestamp_us, flags, priority)
        self.live_bytes += length
        usage.took(sequence, self, length, timestamp_us)
        end, blocks, spans = base + count, self._blocks, self._spans
        if blocks is None:
            self._blocks = bytearray(line)
            self._spans = array("Q", (low, high)) if self.table == "events" else None
        elif base >= self._held_end:
            if base > self._held_end:
                self._gaps = True
            blocks += line
            if spans is not None:
                spans.extend((low, high))
        else:
            end = self._held_end
            index = self.find(base)
            known = _base_at(blocks, index) == base
            if known:
                usage.gave(self.block(index).sequence, length)
                self.live_bytes -= length
            self._gaps = self._gaps or not known
            blocks[index * _LINE_BYTES : (index + known) * _LINE_BYTES] = line
            if spans is not None:
                spans[index * 2 : (index + known) * 2] = array("Q", (low, high))
        self._held_end = end
        if end > self.committed_end:
            self.committed_end = end
            if end > self.next_offset:
                self.next_offset = end

    def skip(self, end: int) -> None:
        """Never give the offsets before `end`, although nothing is known of them any more."""
        self.committed_end = max(self.committed_end, end)
        self.next_offset = max(self.next_offset, end)

    def drop(self, usage: Usage, count: int) -> None:
        """Forget the first blocks: they are settled."""
        if self._blocks is not None:
            gone: Counter[int] = Counter()
            for _, _, sequence, _, length, *_ in _LINE.iter_unpack(self._blocks[: count * _LINE_BYTES]):
                gone[sequence] += length
            for sequence, size_bytes in gone.items():
                self.live_bytes -= size_bytes
                usage.gave(sequence, size_bytes)
            del self._blocks[: count * _LINE_BYTES]
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


def _block_at(blocks: bytearray, spans: array[int] | None, index: int) -> BlockRef:
    line = _LINE.unpack_from(blocks, index * _LINE_BYTES)
    return BlockRef._make((*line, 0, 0) if spans is None else (*line, *spans[index * 2 : index * 2 + 2]))


def _base_at(blocks: bytearray, index: int) -> int:
    base: int = _BASE.unpack_from(blocks, index * _LINE_BYTES)[0]
    return base


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
