"""A shard as it is on disk, read without changing a byte of it; somebody else holds the lock of its directory."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from penstock.delivery.offsets import Offsets
from penstock.journal.files import JournalFiles
from penstock.log.fold import load_schedules
from penstock.log.partition_log import BlockRef
from penstock.log.topics import Catalog, Topic
from penstock.model.clock import ShardClock
from penstock.model.config import BrokerConfig
from penstock.model.placement import Place, shard_of, shards_of
from penstock.model.schedules import SCHEDULES, Schedule
from penstock.shard.recovery import recover
from penstock.shard.schedules import schedule_messages
from penstock.shard.state_lock import StateLock
from penstock.storage.read_only import ReadableStorage

UNLIMITED = replace(BrokerConfig(), sync="never", max_producers=1 << 40)
"""The options under which nothing that is known is forgotten; the checkpoint syncs what was written."""


class KnownSchedule(NamedTuple):
    """A schedule, when it was written, and the offsets of its messages."""

    written_us: int
    schedule: Schedule
    offsets: Offsets


class StoredShard:
    """What recovery makes of the files of a shard, and the bodies that are in its journal."""

    def __init__(self, place: Place, storage: ReadableStorage, clock: ShardClock) -> None:
        self.number, self.storage = place.number, storage
        self.lock = StateLock()
        found = recover(storage, UNLIMITED, clock, place)
        self.broker, self.epoch, self.checkpoint_number = found.broker, found.epoch, found.checkpoint_number
        self.state = found.state
        self.journal = JournalFiles(found.files)

    @property
    def catalog(self) -> Catalog:
        """Its topics."""
        return self.state.catalog

    def topics(self) -> list[Topic]:
        """All but the broker's own, the oldest first."""
        known = self.catalog.by_id
        return [known[number] for number in sorted(known) if known[number].name != SCHEDULES]

    @cached_property
    def schedules(self) -> list[KnownSchedule]:
        """Everything that is scheduled here."""
        messages = list(schedule_messages(self))
        written_us = {message.offset: message.timestamp_us for message in messages}
        table = load_schedules(self.state, ((message.offset, message.value) for message in messages))
        return [
            KnownSchedule(written_us[offsets.max()], schedule, offsets) for schedule, offsets in table.known.values()
        ]

    def new_place(self, topic: str, count: int) -> int:
        """Which of so many shards gets what is here of a topic: a slice of it moves whole."""
        known = self.catalog.by_name.get(topic)
        if known is None:
            return shard_of(topic, count)
        return shards_of(topic, known.config.spread, count)[known.slice]

    def body(self, block: BlockRef) -> bytes:
        """The bytes of a block, checked."""
        return self.journal.read_body(self.journal.files[block.sequence], block.position, block.length, block.crc)

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        for file in self.journal.files.values():
            file.handle.close()
