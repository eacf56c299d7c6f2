"""A data directory read with no broker, and without changing a byte of it.

What recovery makes of checkpoint and journal is made here too, over a storage that refuses to write: a torn tail is
cut off in memory only. It shows the directory as it was when it was opened; a broker that is opened later may use the
journal files again, which the checksums of the blocks tell.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.journal.files import JournalFiles
from penstock.log.partition_log import BlockRef, Log
from penstock.log.topics import Topic
from penstock.model.bounds import shown
from penstock.model.clock import SystemClock
from penstock.model.config import BrokerConfig
from penstock.model.errors import CorruptData, InvalidArgument
from penstock.model.info import RecoveryReport, TopicInfo
from penstock.model.letters import DeadLetter
from penstock.model.placement import ALONE, Place
from penstock.segments.window import OFFSET_MAX
from penstock.shard.operations.dead_letters import list_dead_letters
from penstock.shard.operations.groups import group_names, standing_of
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.recovery import Recovered, recover
from penstock.shard.state_lock import StateLock
from penstock.shard.upkeep.segmenting import arrow_of_blocks, journal_opened
from penstock.storage import Storage
from penstock.storage.read_only import ReadableStorage, ReadOnlyStorage
from penstock.views.info import topic_info

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = ("messages", "events")
_READS = 6  # of a shard that changes meanwhile


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group was: the durable part of `GroupInfo`, which needs no index of what is ready."""

    topic: str
    name: str
    published: int
    """Messages since the group's beginning."""
    acked: int
    retrying: int
    dead: int
    lapsed: int
    withdrawn: int
    skipped: int
    lost: int
    lag: int
    """Messages that are not done."""
    positions: tuple[int, ...]
    """The first offset that is not done, partition by partition."""
    kind: str
    """`consumers`, or `checkpoint`: of a reader that keeps its own position."""


class Snapshot:
    """A directory as the broker that is opened next would find it; close it, or use it as a context."""

    def __init__(self, path: str | os.PathLike[str] | ReadableStorage, place: Place = ALONE) -> None:
        self.storage = ReadOnlyStorage(path) if isinstance(path, str | os.PathLike) else path
        self.lock = StateLock()
        found = _recover(self.storage, place)
        self.catalog = found.state.catalog
        self.journal = JournalFiles(found.files)
        self.broker_id = found.broker
        self.recovery: RecoveryReport = found.report

    def topics(self) -> list[TopicInfo]:
        """Every topic, by name, with its partitions."""
        return [topic_info(topic) for _, topic in sorted(self.catalog.by_name.items())]

    def log(self, topic: str, partition: int, table: str = "messages") -> Log:
        """The messages or the events of a partition, which may be none."""
        if table not in TABLES:
            raise InvalidArgument(f"{shown(table)} is not a table: there are {' and '.join(TABLES)}")
        found = self.catalog.topic(topic).partition(partition)
        if table == "messages":
            return found.messages
        return Log(found.messages.topic, table, partition) if found.events is None else found.events

    def blocks(
        self, topic: str, partition: int, table: str = "messages", start: int = 0, end: int = OFFSET_MAX
    ) -> list[BlockRef]:
        """The blocks of the journal that hold offsets from `start` to before `end`: what is in no segment."""
        log = self.log(topic, partition, table)
        found: list[BlockRef] = []
        for index in range(log.find(start), len(log)):
            block = log.block(index)
            if block.base >= end:
                break
            found.append(block)
        return found

    def reader(self, log: Log, include_deleted: bool = False) -> LogReader:
        """Reads a log over segments and journal; with `include_deleted`, over the archive too."""
        return LogReader(self, log, include_deleted)

    def offset_at(self, topic: str, time_us: int, partition: int = 0) -> int:
        """The offset of the first message with a timestamp at or after a time; the end if there is none."""
        return self.reader(self.log(topic, partition)).first_at(time_us)

    def dead_letters(self, topic: str) -> Iterator[DeadLetter]:
        """The dead letters of a topic that were neither redriven nor purged, oldest first."""
        return list_dead_letters(self, topic)

    def groups(self, topic: str | None = None) -> list[GroupProgress]:
        """Every group, or those of one topic, as far as they were."""
        topics = [self.catalog.topic(topic)] if topic is not None else list(self.catalog.by_name.values())
        found = sorted((one.name, name) for one in topics for name in group_names(one))
        return [_progress(self.catalog.topic(one), name) for one, name in found]

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        for file in self.journal.files.values():
            file.handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def read_blocks(
    storage: Storage, blocks: list[BlockRef], table: str, partition: int, start: int = 0, end: int = OFFSET_MAX
) -> Iterator[pa.RecordBatch]:
    """What blocks of one log hold, checked, with the columns of a segment; cut to offsets from `start` to before `end`.

    It needs no snapshot: another process can do it with `ReadOnlyStorage(path)`.
    """
    with journal_opened(storage) as read:
        for batch in arrow_of_blocks(table, partition, blocks, read):
            base = batch.column(0)[0].as_py()
            first, last = max(0, start - base), min(len(batch), end - base)
            if first < last:
                yield batch.slice(first, last - first)


def _recover(storage: ReadableStorage, place: Place) -> Recovered:
    """The state, if this is a data directory that nobody else has open, or a shard on a bucket."""
    storage.check_readable()
    if not storage.is_shared and not {"checkpoint-a", "checkpoint-b", "journal", "topics"} & set(storage.list("")):
        raise InvalidArgument(
            f"{storage.path} is no data directory: it has no checkpoint; give the one that `penstock serve` "
            "or penstock.open() was given"
        )
    for _ in range(_READS):
        try:
            return recover(storage, BrokerConfig(), SystemClock(), place)
        except (CorruptData, FileNotFoundError) as error:  # a broker may change what is being read
            if not storage.look_again():
                raise
            last = error
    raise CorruptData(storage.path, 0, f"it changed each of {_READS} times while it was read: {last}") from last


def _progress(topic: Topic, name: str) -> GroupProgress:
    standing = standing_of(topic, name, None)
    return GroupProgress(
        topic=topic.name,
        name=name,
        published=standing.published,
        acked=standing.acked,
        retrying=standing.retrying,
        dead=standing.dead,
        lapsed=standing.lapsed,
        withdrawn=standing.withdrawn,
        skipped=standing.skipped,
        lost=standing.lost,
        lag=standing.lag,
        positions=standing.positions,
        kind=standing.kind,
    )
