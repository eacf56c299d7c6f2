"""What a shard is at one moment: its newest checkpoint and the journal behind it, read while its owner may go on.

Journal files are removed only when a newer checkpoint is there. So if the checkpoint is the same before and after, what
was read in between belongs together. The newest file is read first: those before it were complete when it was begun.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from google_crc32c import value as crc32c
from msgspec.structs import replace

from penstock.journal import Scan, scan_journal
from penstock.journal.layout import bodies, file_name
from penstock.log.checkpoint import Checkpoint
from penstock.model.errors import CorruptData, InvalidArgument, PenstockError
from penstock.model.units import to_datetime
from penstock.shard.checkpoint_files import read_checkpoint
from penstock.shard.recovery import journal_sequences, known_durable_end, needed_files
from penstock.storage import Storage, read_file


class SourceMoved(PenstockError):
    """The source was changed while it was read: nothing is wrong with it, and it must be read again."""


class JournalCopy(NamedTuple):
    """A journal file of a cut, without what was torn or not yet written."""

    sequence: int
    size_bytes: int
    crc: int


class Cut(NamedTuple):
    """A shard at one moment."""

    checkpoint: Checkpoint
    journal: list[JournalCopy]
    """The newest first."""


Tell = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is: segments in bytes, others in files."""


class StateTarget(Protocol):
    """Takes what a cut consists of, and shows no state until it has the checkpoint."""

    def begin(self, epoch: int) -> None:
        """Be about to get the state of an epoch, in place of any that is there."""

    def clear(self) -> None:
        """Have no state but what was put since then."""

    def put_journal(self, sequence: int, data: bytes, is_newest: bool) -> None:
        """Write a journal file; the newest comes first."""

    def put_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint, when the journal is there."""


def take_cut(source: Storage, target: StateTarget, tell: Tell, until_us: int | None = None) -> Cut | None:
    """Copy the state of a shard as it is now, or was at a time; None if no broker ever had it."""
    checkpoint = read_checkpoint(source)
    sequences = journal_sequences(source)
    if checkpoint is None:
        if sequences or source.list("topics"):
            raise CorruptData("checkpoint-a", 0, "it is missing, although there is data")
        target.begin(0)
        target.clear()
        return None
    epoch = max(checkpoint.epoch, source.epoch)
    cut = Cut(replace(checkpoint, epoch=epoch, doomed=[]), [])
    target.begin(epoch)
    needed = needed_files(checkpoint, sequences)
    if until_us is not None:
        check_kept(checkpoint, until_us)
        needed = _files_until(source, checkpoint, needed, until_us)
    following: int | None = None
    for number, sequence in enumerate(reversed(needed)):
        tell(f"copying {file_name(sequence)}", number, len(needed))
        data = _whole_groups(source, checkpoint, sequence, following, until_us)
        if data:
            target.put_journal(sequence, data, is_newest=not cut.journal)
            cut.journal.append(JournalCopy(sequence, len(data), crc32c(data)))
        following = sequence
    after = read_checkpoint(source)
    if after is None or after.number != checkpoint.number:
        raise SourceMoved("the state was noted again each time that the journal was read: try again later")
    target.put_checkpoint(cut.checkpoint)
    return cut


def check_kept(checkpoint: Checkpoint, until_us: int) -> None:
    """Raise if what is asked for is in the checkpoint already, with everything that came later."""
    if checkpoint.time_us > until_us:
        first = to_datetime(checkpoint.time_us).isoformat(timespec="milliseconds")
        raise InvalidArgument(
            f"the state of then is not kept: it was last noted at {first}, and only what came later can be left out"
        )


def _files_until(source: Storage, checkpoint: Checkpoint, needed: list[int], until_us: int) -> list[int]:
    """The journal files up to the one in which something comes later than a time."""
    for number, sequence in enumerate(needed, 1):
        scan = scan_journal(read_file(source, file_name(sequence)), checkpoint.broker, sequence)
        if _later(scan, checkpoint, sequence, until_us) is not None:
            return needed[:number]
    return needed


def _later(scan: Scan, checkpoint: Checkpoint, sequence: int, until_us: int) -> int | None:
    """Where the first group behind the checkpoint begins that was committed later than a time."""
    for group in scan.groups:
        is_behind = (sequence, group.position) >= (checkpoint.sequence, checkpoint.position)
        if is_behind and any(entry.timestamp_us > until_us for entry, _ in bodies(group)):
            return group.position
    return None


def _whole_groups(
    source: Storage, checkpoint: Checkpoint, sequence: int, following: int | None, until_us: int | None
) -> bytes:
    """A journal file up to the end of its last complete group; nothing of one that was never written to."""
    data = read_file(source, file_name(sequence))
    scan = scan_journal(data, checkpoint.broker, sequence, known_durable_end(source, checkpoint, sequence, following))
    for damage in scan.damage:
        raise CorruptData(file_name(sequence), damage.position, damage.problem)
    end = None if until_us is None else _later(scan, checkpoint, sequence, until_us)
    return data[: scan.end if end is None else end]
