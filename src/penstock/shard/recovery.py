"""Recovery: the newest valid checkpoint and the journal behind it make the state again.

A torn tail (the start of a group that was never acknowledged) is cut off and counted. Damage to anything that
was on disk stops recovery with the file and the position; nothing is thrown away (`penstock check` tells more).
Recovering twice gives the same as recovering once.
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, field

from penstock.journal import BlockKind, scan_journal
from penstock.journal.files import JournalFile
from penstock.journal.layout import bodies, decode_file_header, file_name, mark_of, sequence_of
from penstock.log.checkpoint import Checkpoint, restore
from penstock.log.fold import apply, delete_later, keep_to_limits, stages_removed
from penstock.log.records import read_record
from penstock.log.state import State
from penstock.model.clock import ShardClock
from penstock.model.config import BrokerConfig
from penstock.model.errors import CorruptData
from penstock.model.info import RecoveryReport
from penstock.model.placement import ALONE, Place
from penstock.model.stored import STAGES
from penstock.shard.checkpoint_files import read_checkpoint
from penstock.storage import Storage, read_file


@dataclass
class Recovered:
    """A broker's state, ready to go on, and the journal that it was made of."""

    broker: bytes
    epoch: int
    checkpoint_number: int
    state: State
    files: dict[int, JournalFile] = field(default_factory=dict)
    current: JournalFile | None = None
    """The file to go on with; None: begin a new one."""
    next_sequence: int = 1
    clean: bool = True
    """Whether the broker before was closed, and did not crash."""
    report: RecoveryReport = field(default_factory=RecoveryReport)


def recover(storage: Storage, config: BrokerConfig, clock: ShardClock, place: Place = ALONE) -> Recovered:
    """The state of the shard whose directory this is; a new one's where there is nothing."""
    checkpoint = read_checkpoint(storage)
    sequences = journal_sequences(storage)
    if checkpoint is None:
        if storage.list("journal") or storage.list("topics"):
            raise CorruptData("checkpoint-a", 0, "it is missing, although there is data")
        return Recovered(new_broker_id(clock), 0, 0, State(config, place))
    found = Recovered(
        checkpoint.broker,
        checkpoint.epoch,
        checkpoint.number,
        restore(checkpoint, config, place),
        next_sequence=checkpoint.next_sequence,
        clean=checkpoint.clean,
    )
    needed = needed_files(checkpoint, sequences)
    delete_later(found.state, (file_name(sequence) for sequence in sequences if sequence not in needed))
    try:
        for sequence, following in itertools.zip_longest(needed, needed[1:]):
            _replay_file(storage, checkpoint, found, sequence, following)
    except BaseException:
        for file in found.files.values():
            file.handle.close()
        raise
    _note_removed_stages(storage, found.state)
    keep_to_limits(found.state)
    return found


def new_broker_id(clock: ShardClock) -> bytes:
    """The identity of a new broker, which its journal files have in their headers."""
    return uuid.UUID(bytes=clock.random_bytes(16), version=4).bytes


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


def _replay_file(
    storage: Storage, checkpoint: Checkpoint, found: Recovered, sequence: int, following: int | None
) -> None:
    """Fold everything that one file holds."""
    name = file_name(sequence)
    data = read_file(storage, name)
    durable_end = known_durable_end(storage, checkpoint, sequence, following)
    scan = scan_journal(data, checkpoint.broker, sequence, durable_end)
    if scan.damage:
        first = scan.damage[0]
        raise CorruptData(name, first.position, f"{first.problem}; run `penstock check` on the directory")
    if scan.end == 0:  # made, but never written to: it will be made again
        found.next_sequence = sequence
        return
    handle = storage.open(name)
    if len(data) > scan.end:
        handle.truncate(scan.end)
    if len(data) > scan.end or scan.end > durable_end:  # what the process before wrote may be in memory only (L1)
        handle.sync()
    if sequence >= checkpoint.next_sequence:  # and so may its name, which the next checkpoint says is there
        storage.sync_directory("journal")
    file = JournalFile(handle, sequence, mark_of(checkpoint.broker, sequence), scan.end, len(scan.groups))
    found.files[sequence] = file
    found.current = file if sequence >= checkpoint.sequence else None
    found.next_sequence = max(found.next_sequence, sequence + 1)
    report = found.report
    report.journal_files += 1
    report.journal_bytes += scan.end
    report.groups += len(scan.groups)
    report.torn_bytes += scan.torn_bytes
    state, topics, whole = found.state, found.state.catalog.by_id, memoryview(data)  # most of it is never looked at
    for group in scan.groups:
        for entry, position in bodies(group):
            record = read_record(entry, whole[position : position + entry.length])
            apply(state, record, (sequence, position, entry.length, entry.crc))
            if entry.kind == BlockKind.MESSAGES and entry.topic in topics:
                report.messages += entry.count


def _note_removed_stages(storage: Storage, state: State) -> None:
    """Forget the files of staged publishes that are done, if they were removed: the disk is all that says so."""
    if not state.staged:
        return
    files = {name.rpartition(".")[0] for name in storage.list(STAGES)}
    for record in list(state.staged.values()):
        if record.next_file is None and not files.intersection(record.files):
            stages_removed(state, record)
