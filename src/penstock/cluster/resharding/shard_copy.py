"""Writes one new shard: segments are linked, the journal is carried, and a checkpoint says at the end what it is."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from pathlib import Path

from penstock.cluster.resharding.shard_plan import ShardPlan, TopicMove
from penstock.cluster.resharding.stored_shard import UNLIMITED
from penstock.journal import Commit
from penstock.log.records import Carried
from penstock.log.reservations import reserve_batch
from penstock.log.topics import Topic
from penstock.model.clock import ShardClock
from penstock.model.schedules import SCHEDULES
from penstock.model.stored import place_of_segment
from penstock.shard.checkpoints import Checkpoints
from penstock.shard.core import Core
from penstock.shard.metering.meters import Meters
from penstock.shard.schedules import batch_of_schedule, withdraw_schedules
from penstock.storage import FileStorage
from penstock.storage.read_only import ReadableStorage

_GROUP_BYTES = 1 << 20


class ShardCopy:
    """A shard that is being written to an empty directory."""

    def __init__(self, storage: FileStorage, plan: ShardPlan, clock: ShardClock) -> None:
        self._storage, self._plan = storage, plan
        self._storages: dict[str | None, FileStorage] = {None: storage}  # by archive
        self._core = Core(storage, UNLIMITED, clock, Meters(clock), plan.begin())

    def write(self, tell: Callable[[str], None]) -> None:
        """Write everything; `tell` hears of each topic before it is copied."""
        core, plan = self._core, self._plan
        try:
            for move in plan.moves:
                tell(move.name)
                self._link_segments(move)
                self._carry(move, core.catalog.topic(move.name))
            self._write_schedules()
            Checkpoints(core, plan.checkpoint_number).write(clean=True)
        finally:
            core.journal.close()

    def _link_segments(self, move: TopicMove) -> None:
        """Have the segments of a topic here too, also those in an archive whose path is relative to the directory."""
        made: dict[tuple[str | None, str], None] = {}
        for log in move.topic.logs():
            for segment in log.segments:
                place = (log.table, log.partition, move.topic.config.archive)
                archive, old = place_of_segment(segment, move.topic.name, *place)
                _, new = place_of_segment(segment, move.name, *place)
                directory = _directory(move.shard.storage, archive)
                if directory != _directory(self._storage, archive):
                    self._storage_of(archive).adopt(directory / old, new)
                    made[archive, posixpath.dirname(new)] = None
        for archive, name in made:
            self._storage_of(archive).sync_directory(name)

    def _storage_of(self, archive: str | None) -> FileStorage:
        if archive not in self._storages:
            assert archive is not None
            self._storages[archive] = self._storage.elsewhere(archive)
        return self._storages[archive]

    def _carry(self, move: TopicMove, topic: Topic) -> None:
        """Write those blocks of a topic that are in no segment, in groups of about a megabyte."""
        core, size = self._core, 0
        commit: Commit | None = None
        for old, new in zip(move.topic.logs(), topic.logs(), strict=True):
            for block in old.blocks():
                body = move.shard.body(block)
                with core.lock:
                    commit = core.journal.gather(Carried(new, block, body), len(body))
                size += len(body)
                if size >= _GROUP_BYTES:
                    core.journal.wait(commit)
                    size = 0
        if commit is not None:
            core.journal.wait(commit)

    def _write_schedules(self) -> None:
        core, plan = self._core, self._plan
        commit: Commit | None = None
        with core.lock:
            if plan.withdrawn:
                commit = withdraw_schedules(core, plan.withdrawn)
            for schedule in plan.schedules:
                log = core.catalog.by_name[SCHEDULES].partitions[0].messages
                batch = batch_of_schedule(schedule)
                commit = core.journal.gather(reserve_batch(log, batch, core.clock.wall_us()), len(batch.values[0]))
        if commit is not None:
            core.journal.wait(commit)


def _directory(storage: FileStorage | ReadableStorage, archive: str | None) -> Path:
    """The directory of an archive, or of the shard itself."""
    return Path(storage.path) if archive is None else Path(storage.base_path) / archive
