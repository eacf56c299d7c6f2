"""The reports of a check and of a repair, and their texts."""

from __future__ import annotations

from dataclasses import dataclass, field

NO_CHECKPOINT = (
    "nothing: without a checkpoint the directory cannot be repaired; restore it from a backup "
    "(the Parquet files below topics/ can be read as they are)"
)
"""The repair where no copy of the checkpoint is left."""
BY_HAND = "nothing: make it readable, or move it away so that it counts as missing, and check again"
"""The repair of a file that the disk cannot read."""
MOUNT = "nothing: make the archive reachable, such as by mounting it, and check again"
"""The repair of an archive that is not there."""
COPY = "write it again from the other copy"
"""The repair of one copy of the checkpoint."""
NEW_HEADER = "set a copy of the file aside and write the header again"
"""The repair of a journal file's header."""
STEP_OVER = "set a copy of the file aside and step over the damaged part; every whole block stays"
"""The repair of anything else in a journal file."""
GO_ON = "set it aside, if it is there, and go on without it"
"""The repair of a file that is lost completely."""
RESTORE = "nothing: stop the brokers and restore the bucket from a copy, or put this object back as it was"
"""The repair of an object that the state is folded from."""
KEEP_SEALS = (
    "nothing: let no rule of the bucket remove objects; a broker that slept since then could write where nobody reads, "
    "so restart all that ran at the time"
)
"""The repair of a seal that only keeps out who has slept."""
EVERYTHING = "every topic"
"""What is lost without a checkpoint."""
MAY_BE_NEWEST = "perhaps the newest messages of partitions that nothing was published to afterwards"
"""What may be lost if it is not known what was there."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written."""

    file: str
    position: int
    wrong: str
    affected: list[str]
    """What is lost, such as `orders/2 offsets 100..199`; empty if nothing is."""
    repair: str
    """What a repair does about it."""
    repairable: bool = True


@dataclass(frozen=True, slots=True)
class ChainCounts:
    """What a chain on a bucket has."""

    epoch: int
    """The last one that something was found of."""
    pieces: int
    bundles: int


@dataclass
class CheckReport:
    """What a check read, and what it found."""

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
    chain: ChainCounts | None = None
    """On a bucket."""
    notes: list[str] = field(default_factory=list)
    """Facts that are not damage, such as a torn tail."""
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


def offset_run(topic: str, partition: int, table: str, start: int, end: int) -> str:
    """Offsets of a log, in words: `orders/2 offsets 100..199`."""
    return f"{topic}/{partition} {'offsets' if table == 'messages' else 'events'} {start}..{end - 1}"
