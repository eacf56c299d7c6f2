"""The content of messages by offset, for deliveries and dead letters.

Blocks and row groups are decoded once for many fetches: lanes pick from the same block again and again. What an
offset holds never changes, so nothing in the cache can be out of date.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import ParamSpec, TypeVar

from penstock.delivery.offsets import Offsets, from_range
from penstock.log.partition_log import Log
from penstock.model.batch import select
from penstock.model.errors import CorruptData
from penstock.segments.window import Rows, Window
from penstock.shard.core import Core
from penstock.shard.reading.log_reader import SENT_ROW_BYTES, LogReader, as_rescheduled

_CACHE_BYTES = 64 << 20
_LOADS_AT_ONCE = 16
_CHUNK_BYTES, _ROW_BYTES = 1024, 64  # overhead of Python objects
_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")
Unreadable = list[tuple[Offsets, CorruptData]]
"""Offsets that could not be read, in order, with the error."""


class Chunk:
    """Consecutive messages of a log as they were decoded; `content` has a row for each of `offsets`."""

    __slots__ = ("content", "end", "first", "log", "offsets", "size_bytes")

    def __init__(self, log: Log, content: Rows, offsets: Offsets, size_bytes: int) -> None:
        self.log = log
        self.content = content
        self.offsets = offsets
        self.first, self.end = offsets.min(), offsets.max() + 1
        self.size_bytes = size_bytes + _CHUNK_BYTES + _ROW_BYTES * len(offsets)

    @property
    def has_all(self) -> bool:
        """Whether none is missing between the first and the last."""
        return self.end - self.first == len(self.offsets)

    def run(self, start: int, end: int) -> Rows:
        """Consecutive messages, none of which is missing."""
        if start == self.first and end == self.end:
            return self.content
        start, end = start - self.first, end - self.first
        offsets, times, batch = self.content
        return Rows(offsets[start:end], times[start:end], batch.slice(start, end))

    def pick(self, wanted: Offsets) -> Rows:
        """The rows of some of its messages."""
        if len(wanted) == len(self.offsets):
            return self.content
        start, count = self.offsets.rank(wanted.min()) - 1, len(wanted)
        if self.offsets.rank(wanted.max()) == start + count:
            offsets, times, batch = self.content
            end = start + count
            return Rows(offsets[start:end], times[start:end], batch.slice(start, end))
        places = [offset - self.first for offset in wanted.to_array()]
        if not self.has_all:
            places = [self.offsets.rank(offset) - 1 for offset in wanted]
        times = select(self.content.timestamps_us, places)
        return Rows(wanted.to_array().tolist(), times, self.content.batch.select(places))


class Contents:
    """Reads messages by offset, with a bounded cache of decoded blocks and row groups."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._loading = [threading.Lock() for _ in range(_LOADS_AT_ONCE)]
        self._chunks: dict[Log, list[Chunk]] = {}
        self._oldest: deque[Chunk] = deque()
        self._bytes = 0

    def rows(self, log: Log, offsets: Offsets, unreadable: Unreadable) -> Iterator[Rows]:
        """The messages at these offsets, in order; those that were removed from the log are left out.

        Damaged ones are left out too, and added to `unreadable` before anything after them is yielded.
        """
        left = offsets
        while left:
            try:
                chunk = self._cached(log, left.min()) or self._load_once(log, left.min(), left.max() + 1)
            except CorruptData as error:
                first, end = self._damaged(log, left)
                bad = left & from_range(first, end)
                if bad:
                    unreadable.append((bad, error))
                left = left - from_range(0, end)
                continue
            if chunk is None:
                return
            if chunk.first <= left.min() and chunk.end > left.max():
                wanted, left = left & chunk.offsets, Offsets()
            else:
                wanted = left & chunk.offsets
                left = left - from_range(0, chunk.end)
            if wanted:
                yield as_rescheduled(log, chunk.pick(wanted))

    def rows_to_send(self, log: Log, offsets: Offsets, bytes_max: int, unreadable: Unreadable) -> Iterator[Rows]:
        """As `rows`, for whoever sends them on: whole blocks come encoded as they were written, without values.

        They are not kept: reading one again costs less than encoding what is in the cache.
        """
        first, end = offsets.min(), offsets.max() + 1
        if end - first == len(offsets):
            chunk = self._cached(log, first)
            if chunk is not None and end <= chunk.end and chunk.has_all:  # as most often, where few are taken at once
                yield as_rescheduled(log, chunk.run(first, end))
                return
        left = offsets
        while left and left.min() >= log.settled_end and self._cached(log, left.min()) is None:
            try:
                block = self._timed(LogReader(self._core, log, include_deleted=True).block_to_send, left, bytes_max)
            except CorruptData:  # it is found again below
                break
            if block is None:
                break
            yield as_rescheduled(log, block)
            bytes_max -= len(block.batch.encode_payload()) + SENT_ROW_BYTES * len(block.offsets)
            left = left - from_range(0, block.offsets[-1] + 1)
        yield from self.rows(log, left, unreadable)

    def has(self, log: Log, offsets: Offsets) -> bool:
        """Whether all of these are in one cached chunk."""
        chunk = self._cached(log, offsets.min())
        return chunk is not None and chunk.end > offsets.max()

    def are_far(self, log: Log, offsets: Offsets) -> bool:
        """Whether getting these may take milliseconds."""
        first = offsets.min()
        return (first < log.settled_end or self._is_remote(log, first)) and not self.has(log, offsets)

    def _is_remote(self, log: Log, offset: int) -> bool:
        """Whether a message of the journal may have to be asked for: on a bucket all but those of the newest file."""
        if not self._core.storage.remote:
            return False
        with self._core.lock:
            index, current = log.find(offset), self._core.journal.current
            return index < len(log) and (current is None or log.block(index).sequence != current.sequence)

    def _cached(self, log: Log, offset: int) -> Chunk | None:
        with self._lock:
            chunks = self._chunks.get(log, ())
            place = bisect_right(chunks, offset, key=_first) - 1
            return chunks[place] if place >= 0 and chunks[place].end > offset else None

    def _load_once(self, log: Log, start: int, end: int) -> Chunk | None:
        """Load a chunk, unless another thread does: consumers of a group reach the end of a row group together."""
        if start >= log.settled_end:  # blocks are small, and must not wait for a row group
            return self._load(log, start, end)
        with self._loading[hash(log) % len(self._loading)]:
            return self._cached(log, start) or self._load(log, start, end)

    def _load(self, log: Log, start: int, end: int) -> Chunk | None:
        """Decode the block or row group that holds the first of these offsets that exists."""
        found = self._timed(LogReader(self._core, log, include_deleted=True).chunk, Window(start, end))
        if found is None:
            return None
        content, size_bytes = found
        first, end = content.offsets[0], content.offsets[-1] + 1
        whole = end - first == len(content.offsets)
        chunk = Chunk(log, content, from_range(first, end) if whole else Offsets(content.offsets), size_bytes)
        self._keep(chunk)
        return chunk

    def _timed(
        self, read: Callable[_Given, _Found | None], *args: _Given.args, **kwargs: _Given.kwargs
    ) -> _Found | None:
        """What a reader found, with the time that it took counted."""
        now_s = self._core.clock.monotonic_s
        started_s = now_s()
        found = read(*args, **kwargs)
        if found is not None:
            with self._lock:
                self._core.meters.content_read_s.observe(now_s() - started_s)
        return found

    def _damaged(self, log: Log, left: Offsets) -> tuple[int, int]:
        """The damaged range that holds the first of these offsets: start and end."""
        start = left.min()
        with self._core.lock:
            segment = next((s for s in log.segments if s.end > start and s.base <= left.max()), None)
            place = log.find(start)
            if segment is None:
                return (log.block(place).base, log.block(place).end) if place < len(log) else (start, start + 1)
        inside = left & from_range(segment.base, segment.end)
        # In a segment, only some row groups may be damaged: find the next readable one.
        bad, good = (0 if start >= segment.base else -1), len(inside)
        while good - bad > 1:
            middle = (bad + good) // 2
            try:
                self._load(log, inside[middle], segment.end)
            except CorruptData:
                bad = middle
            else:
                good = middle
        return segment.base, inside[good] if good < len(inside) else segment.end

    def keep(self, log: Log, rows: Rows, size_bytes: int) -> None:
        """Cache messages that were just published, so that consumers need not decode them."""
        self._keep(Chunk(log, rows, from_range(rows.offsets[0], rows.offsets[-1] + 1), size_bytes))

    def _keep(self, chunk: Chunk) -> None:
        with self._lock:
            chunks = self._chunks.setdefault(chunk.log, [])
            chunks.insert(bisect_right(chunks, chunk.first, key=_first), chunk)
            self._oldest.append(chunk)
            self._bytes += chunk.size_bytes
            while self._bytes > _CACHE_BYTES and len(self._oldest) > 1:
                gone = self._oldest.popleft()
                self._bytes -= gone.size_bytes
                self._chunks[gone.log].remove(gone)
                if not self._chunks[gone.log]:
                    del self._chunks[gone.log]


_first = attrgetter("first")
