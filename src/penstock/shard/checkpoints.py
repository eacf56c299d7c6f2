"""Checkpoints: the state goes to disk, and then what it no longer needs is removed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast

from penstock.journal.files import JournalFile
from penstock.log.checkpoint import VERSION, Checkpoint, TopicState, encoded_topic
from penstock.log.fold import delete_later, hand_over_files, journal_file_removed, topics_noted
from penstock.model.errors import BrokerClosed, StorageFailed
from penstock.shard.checkpoint_files import write_checkpoint
from penstock.shard.core import Core
from penstock.storage.refusals import is_refusal

_TOPICS_AT_ONCE = 20


class Checkpoints:
    """Writes one at a time, until the directory is let go."""

    def __init__(self, core: Core, number: int) -> None:
        self._core = core
        self._number = number
        self._lock = threading.Lock()
        self._released = False  # whether the directory may belong to somebody else

    def write(self, without: Sequence[JournalFile] = (), clean: bool = False) -> None:
        """Put the state on disk, then remove what it no longer needs: files, and journal files `without`."""
        core = self._core
        with self._lock:
            if self._released:
                raise BrokerClosed("the broker is closed")
            started_s = core.clock.monotonic_s()
            core.journal.sync()
            if core.journal.frozen is not None:
                raise StorageFailed(*core.journal.frozen.args)
            self._encode_changed_topics()
            with core.lock:
                self._number += 1
                checkpoint = self._take({file.sequence for file in without}, clean)
                files = hand_over_files(core.state)
                topics_noted(core.state)
            try:
                write_checkpoint(core.storage, checkpoint)
            except OSError:
                with core.lock:
                    delete_later(core.state, files)
                raise
            for file in without:
                core.journal.remove(file)
                with core.lock:
                    journal_file_removed(core.state, file.sequence)
            self._remove(files)
            core.meters.checkpoint_s.observe(core.clock.monotonic_s() - started_s)

    def _encode_changed_topics(self) -> None:
        """Encode most of what has changed, some topics at a time: publishers wait for the rest only."""
        core = self._core
        with core.lock:
            changed = [topic for topic in core.catalog.by_id.values() if topic.noted is None and topic.committed]
        for start in range(0, len(changed), _TOPICS_AT_ONCE):
            with core.lock:
                for topic in changed[start : start + _TOPICS_AT_ONCE]:
                    encoded_topic(topic)

    def _take(self, gone: set[int], clean: bool) -> Checkpoint:
        core = self._core
        assert core.lock.held
        sequence, position, synced = core.journal.position()
        encoded = [encoded_topic(topic) for topic in core.catalog.by_id.values() if topic.committed]
        return Checkpoint(
            version=VERSION,
            number=self._number,
            broker=core.broker_id,
            epoch=core.epoch,
            time_us=core.clock.wall_us(),
            journal_files=[number for number in core.journal.files if number not in gone],
            next_sequence=core.journal.next_sequence,
            sequence=sequence,
            position=position,
            synced=synced,
            next_topic_id=core.catalog.next_id,
            floors=dict(core.catalog.floors),
            doomed=core.state.files_to_delete,
            topics=cast("list[TopicState]", encoded),
            clean=clean,
            staged=list(core.state.staged.values()),
        )

    def write_first(self) -> None:
        """Note the new epoch. If that is refused, the old checkpoint serves on: reading must stay possible."""
        try:
            self.write()
        except OSError as error:
            if not is_refusal(error) or self._number == 1:
                raise

    def _remove(self, files: list[str]) -> None:
        """Remove files; those that cannot be now are tried again after the next checkpoint."""
        while files:
            try:
                self._core.storage.remove(files[-1])
            except OSError:
                with self._core.lock:
                    delete_later(self._core.state, files)
                raise
            files.pop()

    def release(self) -> bool:
        """Write no more: the directory is let go; whether that is news."""
        with self._lock:
            was_held, self._released = not self._released, True
        return was_held

    @property
    def released(self) -> bool:
        """Whether the directory is let go."""
        return self._released

    def disown(self) -> None:
        """This is a fork of the broker's process: the directory belongs to the parent."""
        self._lock = threading.Lock()
        self._released = True
