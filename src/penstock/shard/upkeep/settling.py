"""Settling: from the journal into Parquet segments (docs/decisions/0003 has the why of the rules).

1. A log with at least `segment_min_bytes` in the journal, or with anything older than `settle_after`, becomes
   a segment. So do all when asked to settle now, except that tiny logs stay where they are if there are very
   many of them: each would take a file and directories of its own.
2. A sealed journal file that needs at most a quarter of `journal_file_bytes` can be cleaned: what is needed is
   carried, as it is, to the end of the journal, and the file is used again. Those that need least are, while there
   are more such files than half of `journal_files_max`, or more files than that are needed altogether: what nobody
   writes to any more is not carried again and again.
3. With more than `journal_files_max` sealed files left, logs of the oldest are settled, largest first,
   until rule 2 applies to it.

Segments are on disk before the checkpoint names them, and the checkpoint is on disk before a journal file goes:
a crash in between leaves files that are written again or removed, never a gap. A pass ends with a checkpoint; so while
the journal behind the last one is small beside it, and has no more files than it may, what is sealed waits.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterator, Sequence
from operator import itemgetter
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
from penstock.storage.interface import TEMPORARY, publish_files, stage_file
from penstock.storage.refusals import told_as_refusals

if TYPE_CHECKING:
    from penstock.shard.shard import Shard

_log = logging.getLogger("penstock")
_LOGS_AT_ONCE = 64
_TINY_BYTES = 64 << 10
_TINY_FILES_MAX = 1000  # that one call to settle now makes
_CARRY_BYTES = 1 << 20
_LEAST_WEIGHT = 1 / 8


class Settler:
    """Moves blocks from journal files to segments; one pass at a time."""

    def __init__(self, shard: Shard, process: SegmentProcess | None = None) -> None:
        self._shard = shard
        self._process = process
        self._temporary = f".{shard.epoch}{TEMPORARY}"
        self._commits = -1  # how many there were at the last look
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
            if everything or self._is_worthwhile():
                self._pass(self._wanted_logs() if everything else self._due_logs())
            elif shard.state.files_to_delete:
                shard.checkpoint()
            if shard.storage.remote and shard.checkpoints.lags():
                shard.checkpoint()  # what a takeover reads is bounded (C20)
            self._remove_due()

    def _remove_due(self) -> None:
        """Have what was removed go for good; who has written nothing else meanwhile proves that it owns the shard."""
        journal, storage = self._shard.journal, self._shard.storage
        if storage.remove_due() and journal.commits == self._commits:
            journal.prove()
            storage.remove_due()
        self._commits = journal.commits

    def _pass(self, logs: list[Log]) -> None:
        shard = self._shard
        started_s = shard.clock.monotonic_s()
        before = self.segments_written
        carried = self.blocks_carried
        self._write_segments(logs)
        while (file := self._crowded_file()) is not None:
            needed_bytes = self._needed_bytes(file)
            self._write_segments(self._largest_logs(file))
            if self._needed_bytes(file) == needed_bytes:
                break  # the rest of it cannot be read
        for file in self._files_to_clean():
            self._carry(file)
        with shard.lock:
            free = [file for file in shard.journal.sealed_files() if self._usage(file).live_bytes == 0]
        if free or shard.state.files_to_delete or self.segments_written > before:
            shard.checkpoint(without=free)
        if free or (self.segments_written, self.blocks_carried) != (before, carried):
            shard.meters.settle_s.observe(shard.clock.monotonic_s() - started_s)

    def _is_worthwhile(self) -> bool:
        """Whether a pass is due: it ends with a checkpoint, and a large one must not be written too often."""
        shard = self._shard
        with shard.lock:
            files = shard.journal.sealed_files()
            limit_us = self._limit_us()
            if any(shard.state.usage.has_older(file.sequence, limit_us) for file in files):
                return True
        return self._weight(files) > shard.config.journal_files_max or shard.checkpoints.is_worthwhile()

    def _limit_us(self) -> int:
        """What is older is settled, however little it is."""
        return self._shard.clock.wall_us() - round(self._shard.config.settle_after * 1_000_000)

    def _is_old(self) -> bool:
        """Whether the current file holds a block that has waited long enough."""
        shard = self._shard
        with shard.lock:
            file = shard.journal.current
            return file is not None and shard.state.usage.has_older(file.sequence, self._limit_us())

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
        return self._due_in(files)

    def _wanted_logs(self) -> list[Log]:
        """The logs to settle on request: all, or all that are due or not tiny."""
        with self._shard.lock:
            files = list(self._shard.journal.files.values())
        logs: dict[Log, None] = {}
        for file in files:
            with self._shard.lock:
                logs.update(dict.fromkeys(log for log in self._usage(file).owners if log.live_bytes))
        tiny = {log for log in logs if log.live_bytes < _TINY_BYTES}.difference(self._due_in(files))
        return [log for log in logs if len(tiny) <= _TINY_FILES_MAX or log not in tiny]

    def _due_in(self, files: list[JournalFile]) -> list[Log]:
        """The logs in files that have much in the journal, or have had something there for long: few of thousands."""
        config, usage = self._shard.config, self._shard.state.usage
        limit_us = self._limit_us()
        due: dict[Log, None] = {}
        for file in files:
            with self._shard.lock:
                owners = usage.of(file.sequence).owners
                due.update(dict.fromkeys(log for log in owners if log.live_bytes >= config.segment_min_bytes))
                if usage.has_older(file.sequence, limit_us):
                    due.update(dict.fromkeys(log for log in owners if log.is_older(limit_us)))
        return [log for log in due if len(log)]

    def _write_segments(self, logs: list[Log]) -> None:
        """Write segments of what the logs have in the journal: many files, with few syncs of directories."""
        at_once = 1 if self._shard.storage.remote else _LOGS_AT_ONCE  # what has a temporary name there is in memory
        for start in range(0, len(logs), at_once):
            waiting = logs[start : start + at_once]
            with self._shard.lock:
                ends = {log: log.committed_end for log in waiting}
            while waiting:
                staged = [(log, *segment) for log in waiting if (segment := self._stage(log)) is not None]
                publish_files(
                    self._shard.storage,
                    [
                        segment_name(log.topic.name, log.table, log.partition, info.base, info.epoch)
                        for log, _, info in staged
                    ],
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
                SegmentOrder(
                    log.topic.name, log.table, log.partition, blocks, self._temporary, self._shard.storage.epoch
                )
            )
        except CorruptData as error:  # the block stays in the journal, and other logs go on
            _log.error("%s/%d cannot be settled: %s", log.topic.name, log.partition, error)
            return None

    def _make(self, order: SegmentOrder) -> SegmentInfo:
        """Make the segment in the process, if there is one, or else here."""
        storage = self._shard.storage
        if self._process is not None and storage.remote:
            made = self._process.make(order, self._read)
            if made is not None:
                stage_file(storage, order.name, made[0], order.temporary)
                return made[1]
        elif self._process is not None and storage.path is not None:
            with self._pinned(order.blocks):
                info = self._process.stage(storage.path, order)
            if info is not None:
                return info
        return stage_segment(storage, order, self._read)

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
        return kept[0] if self._weight(kept) > self._shard.config.journal_files_max else None

    def _weight(self, files: Sequence[JournalFile]) -> float:
        """How many files these count as: on a bucket they are sealed early, and small ones are read many at a time."""
        if not self._shard.storage.remote:
            return len(files)
        return sum(max(_LEAST_WEIGHT, file.end / self._shard.journal.file_bytes) for file in files)

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
                inside = log.bytes_in(file.sequence)
            if inside:
                logs.append(log)
                left -= inside
        return logs

    def _files_to_clean(self) -> list[JournalFile]:
        """Those of which least is needed, as far as there are too many."""
        files_max = self._shard.config.journal_files_max
        with self._shard.lock:
            sealed = [(self._usage(file).live_bytes, file) for file in self._shard.journal.sealed_files()]
        needed = [(live_bytes, file) for live_bytes, file in sealed if live_bytes]
        cleanable = [(live_bytes, file) for live_bytes, file in needed if self._is_cleanable(file, live_bytes)]
        in_order = [file for _, file in sorted(cleanable, key=itemgetter(0))]
        too_many = max(self._weight(in_order) - files_max // 2, self._weight([file for _, file in needed]) - files_max)
        chosen: list[JournalFile] = []
        while in_order and self._weight(chosen) < too_many:
            chosen.append(in_order.pop(0))
        return chosen

    def _carry(self, file: JournalFile) -> None:
        """Write the needed blocks of a file again, in groups of about a megabyte."""
        shard = self._shard
        with shard.lock:
            owners = list(self._usage(file).owners)
        size = 0
        commit: Commit | None = None
        for log in owners:
            with shard.lock:
                blocks = log.blocks_in(file.sequence)
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
        return live_bytes * 4 <= max(file.end - FILE_HEADER_BYTES, self._shard.journal.file_bytes)


# After a crash.


def tidy(shard: Shard) -> int:
    """Remove every file below `topics/` that is no segment of a topic; how many there were.

    Settling wrote them before a crash, and no checkpoint ever named them. What they hold is in the journal and is
    settled again; until then, other readers of the directory would see it twice.
    """
    removed = 0
    with shard.upkeep_lock:
        shard.check_not_closed()
        for topic, names in itertools.groupby(shard.storage.walk("topics"), lambda name: name.split("/")[1]):
            known = _segment_names(shard, topic)
            for name in names:
                if name not in known and name.split("/")[2] in ("messages", "events"):
                    shard.storage.remove(name)
                    removed += 1
        shard.untidy = False
    return removed


def _segment_names(shard: Shard, name: str) -> set[str]:
    with shard.lock:
        topic = shard.catalog.by_name.get(name)
        return {
            segment_name(name, log.table, log.partition, segment.base, segment.epoch)
            for log in (topic.logs() if topic is not None else ())
            for segment in log.segments
            if not segment.archived
        }
