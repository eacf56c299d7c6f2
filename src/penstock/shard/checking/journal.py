"""Journal files: which are needed, what is damaged in them, and the bytes that repair them."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from operator import attrgetter
from typing import NamedTuple

from google_crc32c import value as crc32c

from penstock.journal import BlockEntry, Scan, layout, scan_journal
from penstock.journal.layout import FILE_HEADER_BYTES, GROUP_HEADER_BYTES, FileHeader, file_name
from penstock.log.checkpoint import Checkpoint
from penstock.shard.checking.report import NEW_HEADER, STEP_OVER
from penstock.shard.recovery import journal_sequences, known_durable_end
from penstock.storage import Storage, read_file

Position = tuple[int, int]
"""A place in the journal: the sequence of a file, and a position in it."""


class Files(NamedTuple):
    """The journal files that matter, and those that should be there."""

    needed: list[int]
    missing: list[tuple[int, int]]  # the first and the last of each gap
    stray: list[int]  # after a gap, with no data of this broker


class Stretch(NamedTuple):
    """A part of the journal that cannot be read."""

    file: str
    start: Position
    end: Position
    wrong: str
    repair: str
    lost: list[BlockEntry]  # the blocks that its directory lists
    opaque: bool  # whether it may have held more


class Examined(NamedTuple):
    """A journal file, repaired in memory."""

    data: bytes
    scan: Scan
    stretches: list[Stretch]


def journal_files(storage: Storage, checkpoint: Checkpoint) -> Files:
    """As `recovery.needed_files`, but with all missing files and not only the first."""
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
    return Files([sequence for sequence in listed if sequence in there] + newer, missing, stray)


def examine(storage: Storage, checkpoint: Checkpoint, files: Files, sequence: int) -> Examined:
    """Read a journal file and repair it in memory."""
    place = files.needed.index(sequence) + 1
    following = files.needed[place] if place < len(files.needed) else None
    data = read_file(storage, file_name(sequence))
    try:
        durable_end = known_durable_end(storage, checkpoint, sequence, following)
    except OSError:  # the next file cannot be read, which is a separate problem
        durable_end = known_durable_end(storage, checkpoint, sequence, None)
    scan = scan_journal(data, checkpoint.broker, sequence, durable_end)
    if not scan.damage:
        return Examined(data, scan, [])
    mended, stretches = _mend(data, scan, checkpoint.broker, sequence, durable_end)
    return Examined(mended, scan_journal(mended, checkpoint.broker, sequence, durable_end), stretches)


def _mend(data: bytes, scan: Scan, broker: bytes, sequence: int, durable_end: int) -> tuple[bytes, list[Stretch]]:
    """The bytes of a journal file with a new header and void groups where it is damaged, and the damaged parts."""
    mark = layout.mark_of(broker, sequence)
    mended = bytearray(data)
    stretches = []
    for damage in scan.damage:
        start, end, repair = damage.position, FILE_HEADER_BYTES, NEW_HEADER
        lost: list[BlockEntry] = []
        opaque = False
        if start == 0:
            mended[:end] = layout.encode_file_header(FileHeader(sequence, broker, 0, 0))
        else:
            repair = STEP_OVER
            later = bisect_left(scan.groups, start + GROUP_HEADER_BYTES, key=attrgetter("position"))
            if later < len(scan.groups):
                end = scan.groups[later].position
            else:
                end = max(durable_end, start + GROUP_HEADER_BYTES)
                mended[end:] = b""
                mended.extend(bytes(end - len(mended)))
            mended[start:end], lost, opaque = _void(data.ljust(end, b"\0"), start, end, mark)
        place = ((sequence, start), (sequence, end))
        stretches.append(Stretch(file_name(sequence), *place, damage.problem, repair, lost, opaque))
    return bytes(mended), stretches


def _void(data: bytes, start: int, end: int, mark: int) -> tuple[bytes, list[BlockEntry], bool]:
    """The bytes that replace a damaged part, the blocks that are lost, and whether more may be lost.

    If a directory is intact, its group stays and damaged blocks are marked as lost; everything else becomes void.
    """
    parts: list[bytes] = []
    lost: list[BlockEntry] = []
    while start < end:
        group = layout.decode_group(data, start, mark)
        if group is None or group.end > end or 0 < end - group.end < GROUP_HEADER_BYTES:
            void = layout.encode_void(mark, start, end)
            return b"".join([*parts, void, data[start + len(void) : end]]), lost, True
        entries: list[BlockEntry] = []
        for entry, position in layout.bodies(group):
            crc = crc32c(data[position : position + entry.length])
            if crc != entry.crc:
                lost.append(entry)
            entries.append(entry if crc == entry.crc else entry._replace(flags=layout.LOST, crc=crc))
        parts += [layout.encode_group(mark, start, group.synced, entries), data[group.body : group.end]]
        start = group.end
    return b"".join(parts), lost, False
