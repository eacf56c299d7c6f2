"""Looking a data directory over without opening it, and setting aside what is damaged in it.

A check reads every byte that the newest checkpoint needs: its copies, the journal behind it, every segment. It
changes nothing and stops at nothing: whatever goes wrong becomes a problem of the report. A repair copies a damaged
file to `quarantine/<time>/` before it touches it, keeps every block that is whole, and leaves a directory in which a
check finds no problem. The caller holds the lock of the storage for both.
"""

from __future__ import annotations

import contextlib
import itertools
import posixpath
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from typing import NamedTuple

import msgspec
from google_crc32c import value as crc32c

from penstock.broker import checkpoint as checkpoints
from penstock.broker.blocks import decode_topic_record
from penstock.broker.checkpoint import COPIES, Checkpoint, LogState
from penstock.broker.recovery import journal_sequences, known_durable_end
from penstock.broker.topics import BlockRef, Catalog, Log, Topic
from penstock.journal import BlockEntry, BlockKind, Scan, layout, scan_journal
from penstock.journal.files import JournalFile
from penstock.journal.layout import FILE_HEADER_BYTES, GROUP_HEADER_BYTES, SEQUENCE_MAX, FileHeader, file_name
from penstock.model.config import TopicConfig
from penstock.model.errors import CorruptData
from penstock.segments.info import SegmentInfo, archived_name, segment_name
from penstock.segments.window import Window
from penstock.storage import Storage, put_file, read_file

Progress = Callable[[str, int, int], None]
"""Is told the file that comes next, how many are done, and how many there are."""
Place = tuple[int, int]  # in the journal: sequence, position

_NO_CHECKPOINT = (
    "nothing: without a checkpoint the directory cannot be repaired; restore it from a backup "
    "(the Parquet files below topics/ can be read as they are)"
)
_BY_HAND = "nothing: make it readable, or move it away so that it counts as missing, and check again"
_MOUNT = "nothing: make the archive reachable, such as by mounting it, and check again"
_COPY = "write it again from the other copy"
_NEW_HEADER = "set a copy of the file aside and write the header again"
_STEP_OVER = "set a copy of the file aside and step over the damaged part; every whole block stays"
_GO_ON = "set it aside, if it is there, and go on without it"
_EVERYTHING = "every topic"
_MAY_BE_NEWEST = "perhaps the newest messages of partitions that nothing was published to afterwards"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written."""

    file: str
    position: int
    wrong: str
    affected: list[str]
    """What is lost by it, such as `orders/2 offsets 100..199`; empty when nothing is."""
    repair: str
    """What a repair does about it."""
    repairable: bool = True


@dataclass
class CheckReport:
    """What a check looked at, and what it found."""

    checkpoint: int | None = None
    """The number of the newest checkpoint; None when none can be read."""
    topics: int = 0
    partitions: int = 0
    segments: int = 0
    journal_files: int = 0
    groups: int = 0
    messages: int = 0
    size_bytes: int = 0
    torn_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    """What is worth knowing and no damage, such as a torn tail."""
    problems: list[Problem] = field(default_factory=list)


@dataclass
class RepairReport:
    """What a repair did."""

    quarantine: str | None = None
    """Where the damaged files are now, beside `report.json`; None when nothing was done."""
    done: list[str] = field(default_factory=list)
    """The files that were repaired or set aside."""
    failed: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)


class _Stretch(NamedTuple):
    """A part of the journal that cannot be read."""

    file: str
    start: Place
    end: Place
    wrong: str
    repair: str
    lost: list[BlockEntry]  # what a directory says was in it
    opaque: bool  # whether there is more in it than that


class _Hole(NamedTuple):
    """Offsets of a log that are nowhere, and where the blocks on both sides of them are."""

    run: str
    before: Place
    after: Place

    def may_be_in(self, stretch: _Stretch) -> bool:
        """Whether they can have been there; blocks that settling carried on are not in order."""
        return self.before > self.after or (self.before < stretch.end and stretch.start < self.after)


class _Examined(NamedTuple):
    """A journal file with its damage mended in memory."""

    data: bytes
    scan: Scan
    stretches: list[_Stretch]


class _Files(NamedTuple):
    """The journal files that matter, and those that should be there."""

    needed: list[int]
    missing: list[tuple[int, int]]  # the first and the last of each gap
    stray: list[int]  # behind a gap, with nothing of this broker in them


class _Listed(NamedTuple):
    """A segment of the checkpoint."""

    log: LogState
    info: SegmentInfo
    table: str
    run: str
    archive: str | None
    name: str

    @property
    def shown(self) -> str:
        return posixpath.join(self.archive, self.name) if self.archive else self.name


def check_directory(storage: Storage, progress: Progress | None = None) -> CheckReport:
    """Examine everything and change nothing."""
    check = _Check(storage, progress or (lambda name, done, total: None))
    with check.watching(".", [_EVERYTHING], _NO_CHECKPOINT):
        check.run()
    return check.report


def repair_directory(storage: Storage, report: CheckReport, now: datetime) -> RepairReport:
    """Set aside what the report says is damaged, and make the rest usable; what cannot be repaired is left alone."""
    if report.checkpoint is None or not any(problem.repairable for problem in report.problems):
        return RepairReport()
    return _Repair(storage, report, now).run()


class _Check:
    """One check, with the state that the good part of the journal makes."""

    def __init__(self, storage: Storage, progress: Progress) -> None:
        self._storage, self._progress = storage, progress
        self._catalog = Catalog()
        self._deleted: set[int] = set()
        self._stretches: list[_Stretch] = []
        self.report = CheckReport()

    def run(self) -> None:
        """Look at everything there is."""
        checkpoint = self._newest_checkpoint()
        if checkpoint is None:
            return
        self._catalog = checkpoints.restore_topics(checkpoint, TopicConfig())
        self.report.checkpoint = checkpoint.number
        files, segments = _journal_files(self._storage, checkpoint), list(_listed_segments(checkpoint))
        total = len(files.needed) + len(segments)
        for done, sequence in enumerate(files.needed):
            self._progress(file_name(sequence), done, total)
            with self.watching(file_name(sequence), [], _STEP_OVER):
                self._journal_file(checkpoint, files, sequence)
        for first, last in files.missing:
            wrong = "the journal file is missing" + (f", and all up to {file_name(last)}" if last > first else "")
            self._stretches.append(
                _Stretch(file_name(first), (first, 0), (last + 1, 0), wrong, _GO_ON, [], opaque=True)
            )
        for sequence in files.stray:
            wrong = "it holds nothing of this broker, and the files before it are not there"
            self.report.problems.append(Problem(file_name(sequence), 0, wrong, [], _GO_ON))
        self._tell_losses(checkpoint)
        storages = self._reachable(segments)
        for done, segment in enumerate(segments, len(files.needed)):
            self._progress(segment.shown, done, total)
            if segment.archive in storages:
                with self.watching(segment.shown, [segment.run], _GO_ON):
                    self._segment(segment, storages[segment.archive])
        self._count()

    @contextlib.contextmanager
    def watching(self, file: str, affected: list[str], repair: str) -> Iterator[None]:
        """Make a problem of whatever a file does to its reader."""
        problems = self.report.problems
        try:
            yield
        except CorruptData as error:
            problems.append(Problem(file, error.position, error.problem, affected, repair))
        except FileNotFoundError:
            problems.append(Problem(file, 0, "it is missing", affected, repair))
        except Exception as error:  # noqa: BLE001 - there is no telling what garbage does to a reader
            problems.append(Problem(file, 0, f"it cannot be read: {error}", affected, _BY_HAND, repairable=False))

    def _newest_checkpoint(self) -> Checkpoint | None:
        good: list[Checkpoint] = []
        wrong: dict[str, str] = {}
        by_hand: set[str] = set()
        for name in COPIES:
            try:
                checkpoint = checkpoints.decode_checkpoint(read_file(self._storage, name))
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
        elif newest is not None and newest.number == newest.epoch and COPIES[1] not in names:
            self.report.notes.append(f"{COPIES[1]} was never written: the first start was interrupted")
        else:
            for name, text in wrong.items():
                repair = _NO_CHECKPOINT if newest is None else _BY_HAND if name in by_hand else _COPY
                affected = [_EVERYTHING] if newest is None else []
                self.report.problems.append(Problem(name, 0, text, affected, repair, repair == _COPY))
        return newest

    # The journal.

    def _journal_file(self, checkpoint: Checkpoint, files: _Files, sequence: int) -> None:
        name, report = file_name(sequence), self.report
        try:
            data, scan, stretches = _examine(self._storage, checkpoint, files, sequence)
        except OSError as error:
            wrong = f"it cannot be read: {error}"
            self._stretches.append(_Stretch(name, (sequence, 0), (sequence + 1, 0), wrong, _BY_HAND, [], opaque=True))
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
        handle = self._storage.open(name)
        handle.close()
        file = JournalFile(handle, sequence, layout.mark_of(checkpoint.broker, sequence), scan.end)
        for group in scan.groups:
            news = (sequence, group.position) >= (checkpoint.sequence, checkpoint.position)
            for entry, position in layout.bodies(group):
                if entry.kind != BlockKind.TOPIC:
                    log = self._log_of(entry, checkpoint)
                    if log is not None:
                        place = (sequence, position, entry.length, entry.crc, entry.timestamp_us)
                        log.add(file, BlockRef(entry.base, entry.count, *place))
                elif news:
                    self._topic_change(entry, data[position : position + entry.length])

    def _topic_change(self, entry: BlockEntry, body: bytes) -> None:
        record, topic = decode_topic_record(body), self._catalog.by_id.get(entry.topic)
        if record.config is None:
            self._deleted.add(entry.topic)
            if topic is not None:
                self._catalog.remove(topic)
        elif topic is None:
            config = TopicConfig(**record.config)  # type: ignore[arg-type]
            self._catalog.add(Topic(entry.topic, record.name, config, record.first_offset))

    def _log_of(self, entry: BlockEntry, checkpoint: Checkpoint) -> Log | None:
        """The log of a block, also where the topic's own record is lost; None when the topic was deleted."""
        topic = self._catalog.by_id.get(entry.topic)
        if topic is None:
            if self._is_deleted(entry.topic, checkpoint):
                return None
            topic = Topic(entry.topic, f"recovered-{entry.topic}", TopicConfig())
            self._catalog.add(topic)
            self.report.notes.append(f"the name of topic number {topic.id} is lost: it is called {topic.name}")
        if entry.partition >= len(topic.partitions):
            topic.widen(entry.partition + 1)
        partition = topic.partitions[entry.partition]
        return partition.messages if entry.kind == BlockKind.MESSAGES else partition.event_log()

    def _is_deleted(self, topic_id: int, checkpoint: Checkpoint) -> bool:
        return topic_id not in self._catalog.by_id and (
            topic_id < checkpoint.next_topic_id or topic_id in self._deleted
        )

    def _tell_losses(self, checkpoint: Checkpoint) -> None:
        """Make problems of the stretches, now that it is known what is found elsewhere."""
        holes = list(self._holes())
        told: set[str] = set()
        for stretch in sorted(self._stretches, key=attrgetter("start")):
            news = stretch.end > (checkpoint.sequence, checkpoint.position)
            affected = [run for entry in stretch.lost for run in self._lost_run(entry, checkpoint, news)]
            if stretch.opaque:
                affected += [hole.run for hole in holes if hole.may_be_in(stretch)]
                affected += [_MAY_BE_NEWEST] if news else []
            told.update(affected)
            runs, repairable = list(dict.fromkeys(affected)), stretch.repair != _BY_HAND
            self.report.problems.append(
                Problem(stretch.file, stretch.start[1], stretch.wrong, runs, stretch.repair, repairable)
            )
        self.report.notes += [
            f"{hole.run} are not there: an earlier repair lost them"
            for hole in holes
            if hole.run not in told and not any(hole.may_be_in(stretch) for stretch in self._stretches)
        ]

    def _holes(self) -> Iterator[_Hole]:
        for topic in self._catalog.by_id.values():
            for log in topic.logs():
                end, before = log.settled_end, (0, 0)
                for block in log.blocks():
                    place = (block.sequence, block.position)
                    if block.base > end:
                        yield _Hole(_run(topic.name, log.partition, log.table, end, block.base), before, place)
                    end, before = max(end, block.end), place
                if end < log.next_offset:
                    run = _run(topic.name, log.partition, log.table, end, log.next_offset)
                    yield _Hole(run, before, (SEQUENCE_MAX + 1, 0))

    def _lost_run(self, entry: BlockEntry, checkpoint: Checkpoint, news: bool) -> Iterator[str]:
        """What is gone with a block: nothing, if it is settled, was carried on, or belongs to a deleted topic."""
        topic = self._catalog.by_id.get(entry.topic)
        name = topic.name if topic is not None else f"topic number {entry.topic}"
        if entry.kind == BlockKind.TOPIC:
            if news:
                yield f"the creation or deletion of {name}"
        elif not self._is_deleted(entry.topic, checkpoint):
            log = self._log_of(entry, checkpoint) if topic is not None else None
            if log is None or not _has(log, entry.base):
                table = "messages" if entry.kind == BlockKind.MESSAGES else "events"
                yield _run(name, entry.partition, table, entry.base, entry.base + entry.count)

    # Segments.

    def _reachable(self, segments: list[_Listed]) -> dict[str | None, Storage]:
        """The storage of each archive. One that is not mounted is one problem, and its segments stay listed."""
        found: dict[str | None, Storage] = {None: self._storage}
        for path in dict.fromkeys(segment.archive for segment in segments if segment.archive):
            wrong = "the archive is empty"
            try:
                storage = self._storage.elsewhere(path)
                if storage.list(""):
                    found[path] = storage
                    continue
            except OSError as error:
                wrong = f"the archive cannot be reached: {error}"
            runs = [segment.run for segment in segments if segment.archive == path]
            self.report.problems.append(Problem(path, 0, wrong, runs, _MOUNT, repairable=False))
        return found

    def _segment(self, listed: _Listed, storage: Storage) -> None:
        from penstock.segments.reader import SegmentReader

        report, info = self.report, listed.info
        report.segments += 1
        rows, base, end = 0, info.base, info.base
        with SegmentReader(storage, listed.name, listed.table, info) as reader:
            for part in reader.tables(Window()):
                offsets = part.column(0)
                base = base if rows else offsets[0].as_py()
                rows, end = rows + len(offsets), offsets[-1].as_py() + 1
        if (base, end, rows) != (info.base, info.end, info.rows):
            listed_rows = f"{info.rows} from {info.base} to before {info.end}"
            raise CorruptData(listed.name, 0, f"it has {rows} rows from {base} to before {end}, not {listed_rows}")
        report.size_bytes += info.size_bytes
        report.messages += rows if listed.table == "messages" else 0

    def _count(self) -> None:
        topics = self._catalog.by_id.values()
        self.report.topics = len(topics)
        for topic in topics:
            self.report.partitions += len(topic.partitions)
            for partition in topic.partitions:
                self.report.messages += sum(block.count for block in partition.messages.blocks())


def _run(topic: str, partition: int, table: str, start: int, end: int) -> str:
    return f"{topic}/{partition} {'offsets' if table == 'messages' else 'events'} {start}..{end - 1}"


def _has(log: Log, offset: int) -> bool:
    index = log.find(offset)
    return offset < log.settled_end or (index < len(log) and log.block(index).base <= offset)


def _listed_segments(checkpoint: Checkpoint) -> Iterator[_Listed]:
    for topic in checkpoint.topics:
        archive = topic.config.get("archive")
        for table, logs in (("messages", topic.messages), ("events", topic.events)):
            for partition, log in enumerate(logs):
                if log is None:
                    continue
                for info in log.segments:
                    moved = info.archived and archive is not None
                    name = (archived_name if moved else segment_name)(topic.name, table, partition, info.base)
                    run = _run(topic.name, partition, table, info.base, info.end)
                    yield _Listed(log, info, table, run, str(archive) if moved else None, name)


def _journal_files(storage: Storage, checkpoint: Checkpoint) -> _Files:
    """What `recovery.needed_files` asks for, with all that is missing and not only the first."""
    there = journal_sequences(storage)
    newer = there[bisect_left(there, checkpoint.next_sequence) :]
    stray: list[int] = []
    while newer and newer[-1] != (newer[-2] if len(newer) > 1 else checkpoint.next_sequence - 1) + 1:
        if scan_journal(read_file(storage, file_name(newer[-1])), checkpoint.broker, newer[-1]).end > 0:
            break
        stray.append(newer.pop())
    listed = sorted(checkpoint.journal_files)
    missing = [(sequence, sequence) for sequence in listed if sequence not in there]
    missing += [
        (before + 1, sequence - 1)
        for before, sequence in itertools.pairwise([checkpoint.next_sequence - 1, *newer])
        if sequence > before + 1
    ]
    return _Files([sequence for sequence in listed if sequence in there] + newer, missing, stray)


def _examine(storage: Storage, checkpoint: Checkpoint, files: _Files, sequence: int) -> _Examined:
    """Read a journal file and mend it in memory."""
    place = files.needed.index(sequence) + 1
    following = files.needed[place] if place < len(files.needed) else None
    data = read_file(storage, file_name(sequence))
    try:
        durable_end = known_durable_end(storage, checkpoint, sequence, following)
    except OSError:  # the next file cannot be read: it is a problem of its own
        durable_end = known_durable_end(storage, checkpoint, sequence, None)
    scan = scan_journal(data, checkpoint.broker, sequence, durable_end)
    if not scan.damage:
        return _Examined(data, scan, [])
    mended, stretches = _mend(data, scan, checkpoint.broker, sequence, durable_end)
    return _Examined(mended, scan_journal(mended, checkpoint.broker, sequence, durable_end), stretches)


def _mend(data: bytes, scan: Scan, broker: bytes, sequence: int, durable_end: int) -> tuple[bytes, list[_Stretch]]:
    """The bytes of a journal file with a new header and void groups where it is damaged, and what was there."""
    mark = layout.mark_of(broker, sequence)
    mended = bytearray(data)
    stretches = []
    for damage in scan.damage:
        start, end, repair = damage.position, FILE_HEADER_BYTES, _NEW_HEADER
        lost: list[BlockEntry] = []
        opaque = False
        if start == 0:
            mended[:end] = layout.encode_file_header(FileHeader(sequence, broker, 0, 0))
        else:
            repair = _STEP_OVER
            later = bisect_left(scan.groups, start + GROUP_HEADER_BYTES, key=attrgetter("position"))
            if later < len(scan.groups):
                end = scan.groups[later].position
            else:
                end = max(durable_end, start + GROUP_HEADER_BYTES)
                mended[end:] = b""
                mended.extend(bytes(end - len(mended)))
            mended[start:end], lost, opaque = _void(data.ljust(end, b"\0"), start, end, mark)
        place = ((sequence, start), (sequence, end))
        stretches.append(_Stretch(file_name(sequence), *place, damage.problem, repair, lost, opaque))
    return bytes(mended), stretches


def _void(data: bytes, start: int, end: int, mark: int) -> tuple[bytes, list[BlockEntry], bool]:
    """What to write over a damaged part, which blocks are lost by it, and whether more may be.

    Where a directory is whole, the whole blocks of its group are kept; all else becomes void.
    """
    parts: list[bytes] = []
    lost: list[BlockEntry] = []
    while start < end:
        group = layout.decode_group(data, start, mark)
        if group is None or group.end > end or 0 < end - group.end < GROUP_HEADER_BYTES:
            void = layout.encode_void(mark, start, end)
            return b"".join([*parts, void, data[start + len(void) : end]]), lost, True
        kept: list[BlockEntry] = []
        content: list[bytes] = []
        for entry, position in layout.bodies(group):
            body = data[position : position + entry.length]
            if crc32c(body) == entry.crc:
                kept.append(entry)
                content.append(body)
            else:
                lost.append(entry)
        whole = b"".join([layout.encode_group(mark, start, group.synced, kept), *content]) if kept else b""
        rest = start + len(whole)
        void = layout.encode_void(mark, rest, group.end) if rest < group.end else b""
        parts += [whole, void, data[rest + len(void) : group.end]]
        start = group.end
    return b"".join(parts), lost, False


class _Repair:
    """One repair: copies first, then the journal, then the checkpoint, and only then removes."""

    def __init__(self, storage: Storage, report: CheckReport, now: datetime) -> None:
        self._storage, self._found = storage, report
        self._todo = {problem.file for problem in report.problems if problem.repairable}
        moment, taken = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ"), storage.list("quarantine")
        names = itertools.chain([moment], (f"{moment}-{number}" for number in itertools.count(2)))
        self._folder = "quarantine/" + next(name for name in names if name not in taken)
        self._report = RepairReport(self._folder)

    def run(self) -> RepairReport:
        """Repair everything that can be."""
        storage, report = self._storage, self._report
        checkpoint = checkpoints.read_checkpoint(storage)
        assert checkpoint is not None
        put_file(storage, f"{self._folder}/report.json", [msgspec.json.encode(self._found)])
        files = _journal_files(storage, checkpoint)
        for name, sequence in ((file_name(sequence), sequence) for sequence in files.needed):
            if name in self._todo:
                with self._attempt(name):
                    self._set_aside(storage, name, name)
                    put_file(storage, name, [_examine(storage, checkpoint, files, sequence).data])
        for name in COPIES:
            if name in self._todo:
                with self._attempt(name):
                    self._set_aside(storage, name, name)
        gone = [*self._strays(files), *self._segments(checkpoint)]
        if files.missing:
            checkpoint.journal_files = files.needed
            checkpoint.next_sequence = max([checkpoint.next_sequence, *(sequence + 1 for sequence in files.needed)])
            report.done += [file_name(first) for first, _ in files.missing]
        checkpoint.number += 1
        checkpoints.write_checkpoint(storage, checkpoint)
        for place, name in gone:
            place.remove(name)
            place.sync_directory(posixpath.dirname(name))
        losses = [run for problem in self._found.problems if problem.file in report.done for run in problem.affected]
        report.losses = list(dict.fromkeys(losses))
        return report

    def _strays(self, files: _Files) -> Iterator[tuple[Storage, str]]:
        for name in map(file_name, files.stray):
            with self._attempt(name):
                self._set_aside(self._storage, name, name)
                yield self._storage, name

    def _segments(self, checkpoint: Checkpoint) -> Iterator[tuple[Storage, str]]:
        """Take the damaged segments out of the checkpoint; the files that go when it is written."""
        for listed in [listed for listed in _listed_segments(checkpoint) if listed.shown in self._todo]:
            with self._attempt(listed.shown):
                place = self._storage.elsewhere(listed.archive) if listed.archive else self._storage
                found = self._set_aside(place, listed.name, f"archive/{listed.name}" if listed.archive else listed.name)
                listed.log.segments = [info for info in listed.log.segments if info is not listed.info]
                if found:
                    yield place, listed.name

    @contextlib.contextmanager
    def _attempt(self, file: str) -> Iterator[None]:
        """Go on with the next file when the disk refuses this one."""
        try:
            yield
        except OSError as error:
            self._report.failed.append(f"{file}: {error}")
        else:
            self._report.done.append(file)

    def _set_aside(self, source: Storage, name: str, kept_as: str) -> bool:
        """Put a copy of a file into quarantine; whether it was there."""
        try:
            data = read_file(source, name)
        except FileNotFoundError:
            return False
        put_file(self._storage, f"{self._folder}/{kept_as}", [data])
        return True
