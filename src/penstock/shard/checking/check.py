"""The check: reads everything, and folds the intact part of the journal to find out what is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from penstock.journal import BlockEntry, BlockKind, layout
from penstock.journal.bucket_reading import ReadOnlyShard
from penstock.journal.layout import SEQUENCE_MAX, file_name
from penstock.log.checkpoint import Checkpoint, decode_checkpoint, restore
from penstock.log.fold import apply
from penstock.log.partition_log import Log
from penstock.log.records import read_record
from penstock.log.state import State
from penstock.log.topics import Topic
from penstock.model.config import BrokerConfig
from penstock.model.errors import CorruptData
from penstock.model.names import recovered_name
from penstock.shard.checking.chain import ChainCheck
from penstock.shard.checking.journal import Files, Position, Stretch, examine, journal_files
from penstock.shard.checking.report import (
    BY_HAND,
    COPY,
    EVERYTHING,
    GO_ON,
    MAY_BE_NEWEST,
    NO_CHECKPOINT,
    RESTORE,
    STEP_OVER,
    CheckReport,
    Problem,
    offset_run,
)
from penstock.shard.checking.segments import ListedSegment, listed_segments, reachable_storages, read_segment
from penstock.shard.checkpoint_files import COPIES
from penstock.storage import Storage, read_file
from penstock.storage.objects import ObjectStore

Progress = Callable[[str, int, int], None]
"""Called with the next file, how many are done, and how many there are."""


class _Hole(NamedTuple):
    """Offsets of a log that are missing, and where the blocks before and after them are."""

    run: str
    before: Position
    after: Position

    def may_be_in(self, stretch: Stretch) -> bool:
        """Whether they may have been there; blocks that settling carried are not in order."""
        return self.before > self.after or (self.before < stretch.end and stretch.start < self.after)


def check_directory(storage: Storage, progress: Progress | None = None) -> CheckReport:
    """Examine everything and change nothing."""
    return _check(storage, progress or _quietly, COPIES, CheckReport())


def check_bucket(objects: ObjectStore, number: int, root: ObjectStore, progress: Progress | None = None) -> CheckReport:
    """Examine a shard on a bucket, which may be in use, and the chain that its journal is."""
    progress = progress or _quietly
    while True:
        report = CheckReport()
        chain = ChainCheck(objects, number, report, progress)
        chain.run()
        if not chain.is_readable:
            return report
        storage = ReadOnlyShard(objects, number, root)
        known = len(report.problems)
        _check(storage, progress, COPIES[:1], report)
        report.problems[known:] = [replace(one, repair=RESTORE, repairable=False) for one in report.problems[known:]]
        if not report.problems or not storage.look_again():  # else what it found may have been removed meanwhile
            return report


def _quietly(name: str, done: int, total: int) -> None:
    """Nobody is told."""


def _check(storage: Storage, progress: Progress, copies: Sequence[str], report: CheckReport) -> CheckReport:
    check = _Check(storage, progress, copies, report)
    with check.watching(".", [EVERYTHING], NO_CHECKPOINT):
        check.run()
    return report


class _Check:
    """One check, with the state that the intact part of the journal gives."""

    def __init__(self, storage: Storage, progress: Progress, copies: Sequence[str], report: CheckReport) -> None:
        self._storage, self._progress, self._copies = storage, progress, copies
        self._state = State(BrokerConfig())
        self._stretches: list[Stretch] = []
        self.report = report

    def run(self) -> None:
        """Check everything."""
        checkpoint = self._newest_checkpoint()
        if checkpoint is None:
            return
        self._state = restore(checkpoint, BrokerConfig())
        self.report.checkpoint = checkpoint.number
        files, segments = journal_files(self._storage, checkpoint), list(listed_segments(checkpoint))
        total = len(files.needed) + len(segments)
        for done, sequence in enumerate(files.needed):
            self._progress(file_name(sequence), done, total)
            with self.watching(file_name(sequence), [], STEP_OVER):
                self._journal_file(checkpoint, files, sequence)
        for first, last in files.missing:
            wrong = "the journal file is missing" + (f", and all up to {file_name(last)}" if last > first else "")
            self._stretches.append(Stretch(file_name(first), (first, 0), (last + 1, 0), wrong, GO_ON, [], opaque=True))
        for sequence in files.stray:
            wrong = "it holds nothing of this broker, and the files before it are not there"
            self.report.problems.append(Problem(file_name(sequence), 0, wrong, [], GO_ON))
        self._tell_lost_names()
        self._tell_losses(checkpoint)
        storages, unreachable = reachable_storages(self._storage, segments)
        self.report.problems += unreachable
        for done, segment in enumerate(segments, len(files.needed)):
            self._progress(segment.shown, done, total)
            if segment.archive in storages:
                with self.watching(segment.shown, [segment.run], GO_ON):
                    self._segment(segment, storages[segment.archive])
        self._count()

    @contextlib.contextmanager
    def watching(self, file: str, affected: list[str], repair: str) -> Iterator[None]:
        """Turn every error of reading a file into a problem."""
        problems = self.report.problems
        try:
            yield
        except CorruptData as error:
            problems.append(Problem(file, error.position, error.problem, affected, repair))
        except FileNotFoundError:
            problems.append(Problem(file, 0, "it is missing", affected, repair))
        except Exception as error:  # noqa: BLE001 - damaged bytes may raise anything
            problems.append(Problem(file, 0, f"it cannot be read: {error}", affected, BY_HAND, repairable=False))

    def _newest_checkpoint(self) -> Checkpoint | None:
        good: list[Checkpoint] = []
        wrong: dict[str, str] = {}
        by_hand: set[str] = set()
        for name in self._copies:
            try:
                checkpoint = decode_checkpoint(read_file(self._storage, name))
            except FileNotFoundError:
                wrong[name] = "it is missing"
            except OSError as error:
                wrong[name] = f"it cannot be read: {error}"
                by_hand.add(name)
            else:
                if checkpoint is None:
                    wrong[name] = "it does not match its checksum, or another version of Penstock wrote it"
                else:
                    good.append(checkpoint)
        newest = max(good, key=attrgetter("number"), default=None)
        names = self._storage.list("")
        if newest is None and not {*COPIES, "journal", "topics"} & set(names):
            self.report.notes.append("there is no data yet")
        elif newest is not None and newest.number == newest.epoch and self._copies[-1] not in names:
            self.report.notes.append(f"{self._copies[-1]} was never written: the first start was interrupted")
        else:
            for name, text in wrong.items():
                repair = NO_CHECKPOINT if newest is None else BY_HAND if name in by_hand else COPY
                affected = [EVERYTHING] if newest is None else []
                self.report.problems.append(Problem(name, 0, text, affected, repair, repair == COPY))
        return newest

    # The journal.

    def _journal_file(self, checkpoint: Checkpoint, files: Files, sequence: int) -> None:
        name, report = file_name(sequence), self.report
        try:
            data, scan, stretches = examine(self._storage, checkpoint, files, sequence)
        except OSError as error:
            wrong = f"it cannot be read: {error}"
            self._stretches.append(Stretch(name, (sequence, 0), (sequence + 1, 0), wrong, BY_HAND, [], opaque=True))
            return
        self._stretches += stretches
        report.journal_files += 1
        report.groups += len(scan.groups)
        report.size_bytes += scan.end
        report.torn_bytes += scan.torn_bytes
        if scan.torn_bytes:
            report.notes.append(
                f"{name} has {scan.torn_bytes} bytes of a write that was never acknowledged at byte {scan.end}: "
                "a torn tail, which is no damage; opening the directory cuts it off"
            )
        for group in scan.groups:
            for entry, position in layout.bodies(group):
                record = read_record(entry, data[position : position + entry.length])
                apply(self._state, record, (sequence, position, entry.length, entry.crc))

    def _is_deleted(self, topic_id: int) -> bool:
        state = self._state
        return topic_id not in state.catalog.by_id and (topic_id < state.first_new_id or topic_id in state.deleted)

    def _tell_lost_names(self) -> None:
        for topic in self._state.catalog.by_id.values():
            if topic.name == recovered_name(topic.id) and topic.id >= self._state.first_new_id:
                self.report.notes.append(f"the name of topic number {topic.id} is lost: it is called {topic.name}")

    def _tell_losses(self, checkpoint: Checkpoint) -> None:
        """Report the stretches as problems, now that it is known what was found elsewhere."""
        holes = list(self._holes())
        told: set[str] = set()
        for stretch in sorted(self._stretches, key=attrgetter("start")):
            news = stretch.end > (checkpoint.sequence, checkpoint.position)
            affected = [run for entry in stretch.lost for run in self._lost_run(entry, news)]
            if stretch.opaque:
                affected += [hole.run for hole in holes if hole.may_be_in(stretch)]
                affected += [MAY_BE_NEWEST] if news else []
            told.update(affected)
            runs, repairable = list(dict.fromkeys(affected)), stretch.repair != BY_HAND
            self.report.problems.append(
                Problem(stretch.file, stretch.start[1], stretch.wrong, runs, stretch.repair, repairable)
            )
        self.report.notes += [
            f"{hole.run} are not there: an earlier repair lost them"
            for hole in holes
            if hole.run not in told and not any(hole.may_be_in(stretch) for stretch in self._stretches)
        ]

    def _holes(self) -> Iterator[_Hole]:
        for topic in self._state.catalog.by_id.values():
            for log in topic.logs():
                end, before = log.settled_end, (0, 0)
                for block in log.blocks():
                    place = (block.sequence, block.position)
                    if block.base > end:
                        yield _Hole(offset_run(topic.name, log.partition, log.table, end, block.base), before, place)
                    end, before = max(end, block.end), place
                if end < log.next_offset:
                    run = offset_run(topic.name, log.partition, log.table, end, log.next_offset)
                    yield _Hole(run, before, (SEQUENCE_MAX + 1, 0))

    def _lost_run(self, entry: BlockEntry, news: bool) -> Iterator[str]:
        """What is lost with a block: nothing, if it is settled, was carried, or belongs to a deleted topic."""
        topic = self._state.catalog.by_id.get(entry.topic)
        name = topic.name if topic is not None else f"topic number {entry.topic}"
        if entry.kind == BlockKind.STAGED:
            if news:
                yield "the note that staged messages were published: publishing them again would double them"
        elif entry.kind == BlockKind.TOPIC:
            if news:
                yield f"the creation, a change or the deletion of {name}"
        elif not self._is_deleted(entry.topic):
            table = "messages" if entry.kind == BlockKind.MESSAGES else "events"
            log = None if topic is None else _log_of(topic, entry.partition, table)
            if log is None or not _has(log, entry.base):
                yield offset_run(name, entry.partition, table, entry.base, entry.base + entry.count)

    # Segments.

    def _segment(self, listed: ListedSegment, storage: Storage) -> None:
        self.report.segments += 1
        read_segment(storage, listed.name, listed.table, listed.info)
        self.report.size_bytes += listed.info.size_bytes
        self.report.messages += listed.info.rows if listed.table == "messages" else 0

    def _count(self) -> None:
        topics = self._state.catalog.by_id.values()
        self.report.topics = len(topics)
        for topic in topics:
            self.report.partitions += len(topic.partitions)
            for partition in topic.partitions:
                self.report.messages += sum(block.count for block in partition.messages.blocks())


def _log_of(topic: Topic, partition: int, table: str) -> Log | None:
    if partition >= len(topic.partitions):
        return None
    found = topic.partitions[partition]
    return found.messages if table == "messages" else found.events


def _has(log: Log, offset: int) -> bool:
    index = log.find(offset)
    return offset < log.settled_end or (index < len(log) and log.block(index).base <= offset)
