"""Settling: from the journal into Parquet segments (docs/decisions/0003 has the why of the rules).

1. A log with at least `segment_min_bytes` in the journal, or with anything older than `settle_after`, becomes
   a segment. So do all when asked to settle now, except that tiny logs stay where they are if there are very
   many of them: each would take a file and directories of its own.
2. A sealed journal file that needs at most a quarter of `journal_file_bytes` is cleaned: what is needed is
   carried, as it is, to the end of the journal, and the file is used again.
3. With more than `journal_files_max` sealed files left, logs of the oldest are settled, largest first,
   until rule 2 applies to it.

Segments are on disk before the checkpoint names them, and the checkpoint is on disk before a journal file goes:
a crash in between leaves files that are written again or removed, never a gap.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.journal import Commit
from penstock.journal.files import JournalFile
from penstock.journal.layout import FILE_HEADER_BYTES
from penstock.log.fold import settle
from penstock.log.partition_log import BlockRef, Log
from penstock.log.records import Carried
from penstock.log.usage import FileUsage
from penstock.model.errors import CorruptData
from penstock.model.stored import SegmentInfo, segment_name
from penstock.shard.upkeep.segment_process import SegmentProcess
from penstock.shard.upkeep.segmenting import SegmentOrder, stage_segment
from penstock.storage.interface import TEMPORARY, publish_files
from penstock.storage.refusals import told_as_refusals

if TYPE_CHECKING:
    from penstock.shard.shard import Shard

_log = logging.getLogger("penstock")
_LOGS_AT_ONCE = 64
_TINY_BYTES = 64 << 10
_TINY_FILES_MAX = 1000  # that one call to settle now makes
_CARRY_BYTES = 1 << 20


class Settler:
    """Moves blocks from journal files to segments; one pass at a time."""

    def __init__(self, shard: Shard, process: SegmentProcess | None = None) -> None:
        self._shard = shard
        self._process = process
        self._temporary = f".{shard.epoch}{TEMPORARY}"
        self.segments_written = 0
        self.blocks_carried = 0

    def settle(self, everything: bool = False) -> None:
        """One pass over the sealed files; with `everything`, also over what is not sealed yet."""
        shard = self._shard
        with shard.upkeep_lock, told_as_refusals("what is not settled stays in the journal; settle again later"):
            shard.check_not_closed()
            shard.journal.flush()
            if (everything and self._wanted_logs()) or self._is_old():
                shard.journal.seal()
            started_s = shard.clock.monotonic_s()
            before = self.segments_written
            carried = self.blocks_carried
            self._write_segments(self._wanted_logs() if everything else self._due_logs())
            while (file := self._crowded_file()) is not None:
                needed_bytes = self._needed_bytes(file)
                self._write_segments(self._largest_logs(file))
                if self._needed_bytes(file) == needed_bytes:
                    break  # the rest of it cannot be read
            self._carry()
            with shard.lock:
                free = [file for file in shard.journal.sealed_files() if self._usage(file).live_bytes == 0]
            if free or shard.state.files_to_delete or self.segments_written > before:
                shard.checkpoint(without=free)
            if free or (self.segments_written, self.blocks_carried) != (before, carried):
                shard.meters.settle_s.observe(shard.clock.monotonic_s() - started_s)

    def _is_old(self) -> bool:
        """Whether the current file holds a block that has waited long enough."""
        shard = self._shard
        limit_us = shard.clock.wall_us() - round(shard.config.settle_after * 1_000_000)
        with shard.lock:
            file = shard.journal.current
            return file is not None and shard.state.usage.has_older(file.sequence, limit_us)

    def _usage(self, file: JournalFile) -> FileUsage:
        """What is still needed of a file."""
        assert self._shard.lock.held
        return self._shard.state.usage.of(file.sequence)

    def _needed_bytes(self, file: JournalFile) -> int:
        with self._shard.lock:
            return self._usage(file).live_bytes

    # Rule 1.

    def _due_logs(self) -> list[Log]:
        """The logs in sealed files that must be settled now."""
        with self._shard.lock:
            files = self._shard.journal.sealed_files()
        return [log for log in self._logs_in(files) if self._is_due(log)]

    def _wanted_logs(self) -> list[Log]:
        """The logs to settle on request: all, or all that are due or not tiny."""
        with self._shard.lock:
            files = list(self._shard.journal.files.values())
        logs = self._logs_in(files)
        tiny = {log for log in logs if log.live_bytes < _TINY_BYTES and not self._is_due(log)}
        return logs if len(tiny) <= _TINY_FILES_MAX else [log for log in logs if log not in tiny]

    def _logs_in(self, files: list[JournalFile]) -> list[Log]:
        with self._shard.lock:
            owners: dict[Log, None] = {}
            for file in files:
                owners.update(self._usage(file).owners)
            return [log for log in owners if len(log)]

    def _is_due(self, log: Log) -> bool:
        config = self._shard.config
        limit_us = self._shard.clock.wall_us() - round(config.settle_after * 1_000_000)
        with self._shard.lock:
            return len(log) > 0 and (log.live_bytes >= config.segment_min_bytes or log.block(0).timestamp_us < limit_us)

    def _write_segments(self, logs: list[Log]) -> None:
        """Write segments of what the logs have in the journal: many files, with few syncs of directories."""
        for start in range(0, len(logs), _LOGS_AT_ONCE):
            waiting = logs[start : start + _LOGS_AT_ONCE]
            with self._shard.lock:
                ends = {log: log.committed_end for log in waiting}
            while waiting:
                staged = [(log, *segment) for log in waiting if (segment := self._stage(log)) is not None]
                publish_files(
                    self._shard.storage,
                    [segment_name(log.topic.name, log.table, log.partition, info.base) for log, _, info in staged],
                    self._temporary,
                )
                with self._shard.lock:
                    for log, blocks, info in staged:
                        self._install(log, blocks, info)
                waiting = [log for log, *_ in staged if len(log) and log.settled_end < ends[log]]

    def _stage(self, log: Log) -> tuple[int, SegmentInfo] | None:
        """Write the next segment of a log under a temporary name; how many blocks it took."""
        blocks: list[BlockRef] = []
        size = 0
        with self._shard.lock:
            waiting = log.snapshot()
        for block in waiting:
            size += block.length
            if blocks and size > self._shard.config.segment_max_bytes:
                break
            blocks.append(block)
        if not blocks:
            return None
        try:
            return len(blocks), self._make(
                SegmentOrder(log.topic.name, log.table, log.partition, blocks, self._temporary)
            )
        except CorruptData as error:  # the block stays in the journal, and other logs go on
            _log.error("%s/%d cannot be settled: %s", log.topic.name, log.partition, error)
            return None

    def _make(self, order: SegmentOrder) -> SegmentInfo:
        """Make the segment in the process, if there is one, or else here."""
        if self._process is not None:
            with self._pinned(order.blocks):
                info = self._process.stage(order)
            if info is not None:
                return info
        return stage_segment(self._shard.storage, order, self._read)

    def _read(self, blocks: list[BlockRef]) -> list[bytes]:
        read_body = self._shard.journal.read_body
        with self._pinned(blocks) as files:
            return [read_body(files[block.sequence], block.position, block.length, block.crc) for block in blocks]

    @contextlib.contextmanager
    def _pinned(self, blocks: list[BlockRef]) -> Iterator[dict[int, JournalFile]]:
        """The files of the blocks, pinned while this is entered."""
        journal = self._shard.journal
        with self._shard.lock:
            files = {sequence: journal.files[sequence] for sequence in {block.sequence for block in blocks}}
            for file in files.values():
                file.pin()
        try:
            yield files
        finally:
            with self._shard.lock:
                for file in files.values():
                    file.unpin()

    def _install(self, log: Log, blocks: int, info: SegmentInfo) -> None:
        assert self._shard.lock.held
        if settle(self._shard.state, log, blocks, info):
            self.segments_written += 1
            self._shard.meters.settled_segments += 1
            self._shard.meters.settled_bytes += info.size_bytes

    # Rules 2 and 3.

    def _crowded_file(self) -> JournalFile | None:
        """The oldest file, if there are too many that cannot be cleaned."""
        with self._shard.lock:
            sealed = self._shard.journal.sealed_files()
            kept = [file for file in sealed if not self._is_cleanable(file, self._usage(file).live_bytes)]
        return kept[0] if len(kept) > self._shard.config.journal_files_max else None

    def _largest_logs(self, file: JournalFile) -> list[Log]:
        """The fewest logs to settle so that the file can be cleaned."""
        logs: list[Log] = []
        with self._shard.lock:
            usage = self._usage(file)
            left, owners = usage.live_bytes, list(usage.owners)
        for log in sorted(owners, key=lambda log: log.live_bytes, reverse=True):
            if self._is_cleanable(file, left):
                break
            with self._shard.lock:
                inside = sum(block.length for block in log.blocks() if block.sequence == file.sequence)
            if inside:
                logs.append(log)
                left -= inside
        return logs

    def _carry(self) -> None:
        """Write the needed blocks of cleanable files again, in groups of about a megabyte."""
        shard = self._shard
        with shard.lock:
            needed = {file: self._usage(file).live_bytes for file in shard.journal.sealed_files()}
            files = [file for file, live_bytes in needed.items() if live_bytes and self._is_cleanable(file, live_bytes)]
        for file in files:
            size = 0
            commit: Commit | None = None
            with shard.lock:
                owners = list(self._usage(file).owners)
            for log in owners:
                with shard.lock:
                    blocks = [block for block in log.blocks() if block.sequence == file.sequence]
                for block in blocks:
                    try:
                        body = self._read([block])[0]
                    except CorruptData as error:
                        _log.error("%s/%d cannot be carried on: %s", log.topic.name, log.partition, error)
                        continue
                    with shard.lock:
                        commit = shard.journal.gather(Carried(log, block, body), len(body))
                    self.blocks_carried += 1
                    shard.meters.carried_bytes += len(body)
                    size += len(body)
                    if size >= _CARRY_BYTES:
                        shard.journal.wait(commit)
                        size = 0
            if commit is not None:
                shard.journal.wait(commit)

    def _is_cleanable(self, file: JournalFile, live_bytes: int) -> bool:
        """Whether little enough of a file is needed; one that was sealed early counts as full."""
        return live_bytes * 4 <= max(file.end - FILE_HEADER_BYTES, self._shard.config.journal_file_bytes)


# After a crash.


def tidy(shard: Shard) -> int:
    """Remove every file below `topics/` that is no segment of a topic; how many there were.

    Settling wrote them before a crash, and no checkpoint ever named them. What they hold is in the journal and is
    settled again; until then, other readers of the directory would see it twice.
    """
    removed = 0
    with shard.upkeep_lock:
        shard.check_not_closed()
        for topic in shard.storage.list("topics"):
            known = _segment_names(shard, topic)
            for table in ("messages", "events"):
                for partition in shard.storage.list(f"topics/{topic}/{table}"):
                    directory = f"topics/{topic}/{table}/{partition}"
                    for name in shard.storage.list(directory):
                        if f"{directory}/{name}" not in known:
                            shard.storage.remove(f"{directory}/{name}")
                            removed += 1
        shard.untidy = False
    return removed


def _segment_names(shard: Shard, name: str) -> set[str]:
    with shard.lock:
        topic = shard.catalog.by_name.get(name)
        return {
            segment_name(name, log.table, log.partition, segment.base)
            for log in (topic.logs() if topic is not None else ())
            for segment in log.segments
            if not segment.archived
        }
