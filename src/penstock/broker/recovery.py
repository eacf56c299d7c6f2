"""Recovery: the newest valid checkpoint and the journal behind it make the state again.

A torn tail (the start of a group that was never acknowledged) is cut off and counted. Damage to anything that
was on disk stops recovery with the file and the position; nothing is thrown away (`penstock check` tells more).
Recovering twice gives the same as recovering once.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from msgspec.structs import replace

from penstock.broker.blocks import (
    Content,
    StagedRecord,
    decode_staged_record,
    decode_topic_record,
    forget_staged,
    keep_staged,
    remember_ids,
    remember_producers,
)
from penstock.broker.checkpoint import Checkpoint, read_checkpoint, restore_topics
from penstock.broker.retention import apply_event
from penstock.broker.stage_files import DIRECTORY as STAGES
from penstock.broker.topics import BlockRef, Catalog, Topic
from penstock.journal import BlockEntry, BlockKind, scan_journal
from penstock.journal.files import JournalFile
from penstock.journal.layout import LOST, bodies, decode_file_header, file_name, mark_of, sequence_of
from penstock.model.batch import TAGS, decode_tags, head_of
from penstock.model.clock import EngineClock
from penstock.model.config import BrokerConfig, TopicConfig, restore_topic_config
from penstock.model.errors import CorruptData
from penstock.model.events import Event, decode_events, span_of
from penstock.model.info import RecoveryReport
from penstock.model.message import IdRun
from penstock.model.names import NORMAL, recovered_name
from penstock.segments import segment_name
from penstock.storage import Storage, read_file


@dataclass
class Recovered:
    """A broker's state, ready to go on."""

    broker: bytes
    epoch: int
    checkpoint_number: int
    catalog: Catalog
    files: dict[int, JournalFile] = field(default_factory=dict)
    current: JournalFile | None = None
    """The file to go on with; None: begin a new one."""
    next_sequence: int = 1
    doomed: list[str] = field(default_factory=list)
    clean: bool = True
    """Whether the broker before was closed, and did not crash."""
    report: RecoveryReport = field(default_factory=RecoveryReport)
    staged: dict[str, StagedRecord] = field(default_factory=dict)
    """The newest staged publish of each producer, the one silent for longest first."""


def recover(storage: Storage, config: BrokerConfig, clock: EngineClock) -> Recovered:
    """The state of the broker whose directory this is; a new broker's where there is nothing."""
    checkpoint = read_checkpoint(storage)
    sequences = journal_sequences(storage)
    if checkpoint is None:
        if storage.list("journal") or storage.list("topics"):
            raise CorruptData("checkpoint-a", 0, "it is missing, although there is data")
        return Recovered(uuid.UUID(bytes=clock.random_bytes(16), version=4).bytes, 0, 0, Catalog())
    state = Recovered(
        checkpoint.broker,
        checkpoint.epoch,
        checkpoint.number,
        restore_topics(checkpoint, config.topic_defaults),
        next_sequence=checkpoint.next_sequence,
        doomed=list(checkpoint.doomed),
        clean=checkpoint.clean,
    )
    needed = needed_files(checkpoint, sequences)
    state.doomed += [file_name(sequence) for sequence in sequences if sequence not in needed]
    replay = _Replay(storage, checkpoint, state, config)
    try:
        for place, sequence in enumerate(needed):
            replay.file(sequence, needed[place + 1] if place + 1 < len(needed) else None)
    except BaseException:
        for file in state.files.values():
            file.handle.close()
        raise
    replay.keep_to_limits()
    return state


def journal_sequences(storage: Storage) -> list[int]:
    """The journal files that are there, oldest first."""
    return sorted(sequence for name in storage.list("journal") if (sequence := sequence_of(name)) is not None)


def needed_files(checkpoint: Checkpoint, sequences: list[int]) -> list[int]:
    """The files to read, oldest first; raises where one is missing."""
    newer = [sequence for sequence in sequences if sequence >= checkpoint.next_sequence]
    missing = sorted(set(checkpoint.journal_files) - set(sequences))
    missing += [place for place, found in enumerate(newer, checkpoint.next_sequence) if found != place]
    if missing:
        raise CorruptData(file_name(missing[0]), 0, "the journal file is missing")
    return sorted(checkpoint.journal_files) + newer


def known_durable_end(storage: Storage, checkpoint: Checkpoint, sequence: int, following: int | None) -> int:
    """How much of a file is known, from the next file or from the checkpoint, to have been on disk."""
    end = checkpoint.synced if sequence == checkpoint.sequence else 0
    if following is not None:
        file = storage.open(file_name(following))
        try:
            header = decode_file_header(file.read(0, 256))
        finally:
            file.close()
        if header is not None and header.previous == sequence and header.broker == checkpoint.broker:
            end = max(end, header.previous_end)
    return end


class _Replay:
    """Takes the journal in, file by file."""

    def __init__(self, storage: Storage, checkpoint: Checkpoint, state: Recovered, config: BrokerConfig) -> None:
        self._storage = storage
        self._checkpoint = checkpoint
        self._state = state
        self._config = config
        self._deleted: set[int] = set()
        self._stage_files = {name.rpartition(".")[0] for name in storage.list(STAGES)}
        state.staged = {record.producer: self._without_gone(record) for record in checkpoint.staged}

    def keep_to_limits(self) -> None:
        """Forget what is beyond limits that may be other ones than those of the broker before."""
        forget_staged(self._state.staged, self._config.max_producers)
        for topic in self._state.catalog.by_id.values():
            if topic.producers is not None:
                topic.producers.keep_to(self._config.max_producers)

    def file(self, sequence: int, following: int | None) -> None:
        """Everything that one file holds."""
        name = file_name(sequence)
        data = read_file(self._storage, name)
        durable_end = known_durable_end(self._storage, self._checkpoint, sequence, following)
        scan = scan_journal(data, self._checkpoint.broker, sequence, durable_end)
        if scan.damage:
            first = scan.damage[0]
            raise CorruptData(name, first.position, f"{first.problem}; run `penstock check` on the directory")
        if scan.end == 0:  # made, but never written to: it will be made again
            self._state.next_sequence = sequence
            return
        handle = self._storage.open(name)
        if len(data) > scan.end:
            handle.truncate(scan.end)
            handle.sync()
        file = JournalFile(handle, sequence, mark_of(self._checkpoint.broker, sequence), scan.end)
        state, report = self._state, self._state.report
        state.files[sequence] = file
        state.current = file if sequence >= self._checkpoint.sequence else None
        state.next_sequence = max(state.next_sequence, sequence + 1)
        report.journal_files += 1
        report.journal_bytes += scan.end
        report.groups += len(scan.groups)
        report.torn_bytes += scan.torn_bytes
        for group in scan.groups:
            news = (sequence, group.position) >= (self._checkpoint.sequence, self._checkpoint.position)
            for entry, position in bodies(group):
                self._block(file, entry, position, data, news)

    def _block(self, file: JournalFile, entry: BlockEntry, position: int, data: bytes, news: bool) -> None:
        if entry.kind == BlockKind.TOPIC:
            if news and not entry.flags & LOST:
                self._topic_change(entry, data[position : position + entry.length])
            return
        if entry.kind == BlockKind.STAGED:
            if news and not entry.flags & LOST:
                record = self._without_gone(decode_staged_record(data[position : position + entry.length]))
                keep_staged(self._state.staged, record, self._config.max_producers)
            return
        topic = self._state.catalog.by_id.get(entry.topic) or self._lost_topic(entry)
        if topic is None:
            return
        if entry.partition >= len(topic.partitions):
            topic.widen(entry.partition + 1)
        partition = topic.partitions[entry.partition]
        log = partition.messages if entry.kind == BlockKind.MESSAGES else partition.event_log(entry.base)
        if entry.flags & LOST:
            log.skip(entry.base + entry.count)
            return
        content: Content
        is_new = entry.base >= log.committed_end  # else the checkpoint has it, or it was carried on
        events: list[Event] = []
        if entry.kind == BlockKind.MESSAGES:
            content = (*head_of(data[position : position + 2]), 0, 0)
        else:
            events = decode_events(data[position : position + entry.length])
            content = (0, NORMAL, *span_of(events))
        place = (file.sequence, position, entry.length, entry.crc, entry.timestamp_us)
        moved_from = log.add(file, BlockRef(entry.base, entry.count, *place, *content))
        if moved_from is not None:
            self._state.files[moved_from].live_bytes -= entry.length
        if entry.kind == BlockKind.MESSAGES:
            self._state.report.messages += entry.count
            if entry.flags & TAGS and is_new:
                batch = decode_tags(data[position : position + entry.length], entry.count)
                run = IdRun(entry.partition, entry.base, entry.count)
                remember_ids(topic, run, entry.timestamp_us, batch)
                remember_producers(topic, run, batch, self._config.max_producers)
        elif is_new:
            for event in events:
                self._state.doomed += apply_event(partition.messages, event)
                partition.apply(event)

    def _without_gone(self, record: StagedRecord) -> StagedRecord:
        """The record as the broker had it when it had removed the files of what was published."""
        done = record.next_file is None and not self._stage_files.intersection(record.files)
        return replace(record, files=()) if done else record

    def _topic_change(self, entry: BlockEntry, body: bytes) -> None:
        catalog, record = self._state.catalog, decode_topic_record(entry.topic, body)
        topic = catalog.by_id.get(entry.topic)
        if record.config is None:
            self._deleted.add(entry.topic)
            catalog.floors[record.name] = record.first_offset
            if topic is not None:
                catalog.remove(topic)
                self._state.doomed += delete_logs(topic, self._state.files)
            return
        config = restore_topic_config(record.config, self._config.topic_defaults)
        if topic is None:
            topic = Topic(entry.topic, record.name, config, record.first_offset)
            topic.committed = True
            catalog.add(topic)
        else:
            topic.configure(config)

    def _lost_topic(self, entry: BlockEntry) -> Topic | None:
        """The topic of a block that nothing else speaks of: a repair lost its beginning; keep what is left."""
        if entry.topic < self._checkpoint.next_topic_id or entry.topic in self._deleted:
            return None
        topic = Topic(entry.topic, recovered_name(entry.topic), TopicConfig())
        topic.committed = True
        self._state.catalog.add(topic)
        return topic


def delete_logs(topic: Topic, files: dict[int, JournalFile]) -> list[str]:
    """Empty the logs of a deleted topic; the files that go with it."""
    doomed = []
    for log in topic.logs():
        doomed += [
            segment_name(topic.name, log.table, log.partition, segment.base)
            for segment in log.segments
            if not segment.archived
        ]
        log.close(files)
    return doomed
