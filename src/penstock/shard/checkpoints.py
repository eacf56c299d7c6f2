"""Checkpoints: the state goes to disk, and then what it no longer needs is removed.

Encoding costs what has changed (`log.checkpoint`), but all bytes are written each time: so settling, which ends with a
checkpoint, asks first whether another one is worthwhile.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence

from penstock.journal.files import JournalFile
from penstock.journal.layout import file_name
from penstock.log.checkpoint import VERSION, Checkpoint, encode_changed, encoded_topic
from penstock.log.fold import delete_later, hand_over_files, journal_file_removed, topics_noted
from penstock.log.topics import Topic
from penstock.model.errors import BrokerClosed
from penstock.shard.checkpoint_files import write_checkpoint
from penstock.shard.core import Core
from penstock.storage.refusals import is_refusal

_SMALL_BYTES, _TIMES_ITS_SIZE = 1 << 20, 8
_WORK_S, _PAUSE_S = 0.002, 0.0002  # in the pause, those who wait for the lock or for the interpreter get it


class Checkpoints:
    """Writes one at a time, until the directory is let go."""

    def __init__(self, core: Core, number: int) -> None:
        self._core = core
        self._number = number
        self._size_bytes = 0  # of the last one
        self._position = (0, 0)  # of the journal, where it was written
        self._newest_file = 0  # of the journal at that time
        self._lock = threading.Lock()
        self._released = False  # whether the directory may belong to somebody else

    def is_worthwhile(self) -> bool:
        """Whether another one is small, or little beside what was written to the journal since the last."""
        with self._core.lock:
            sequence, position = self._position
            files = self._core.journal.files.values()
            since_bytes = sum(file.end for file in files if file.sequence >= sequence) - position
        return self._size_bytes <= max(_SMALL_BYTES, since_bytes // _TIMES_ITS_SIZE)

    def lags(self) -> bool:
        """Whether a journal file was begun since the last one: those before are complete."""
        with self._core.lock:
            return max(self._core.journal.files, default=0) > self._newest_file

    def write(self, without: Sequence[JournalFile] = (), clean: bool = False) -> None:
        """Put the state on disk, then remove what it no longer needs: files, and journal files `without`."""
        core = self._core
        with self._lock:
            if self._released:
                raise BrokerClosed("the broker is closed")
            started_s = core.clock.monotonic_s()
            core.journal.sync()
            core.journal.check_alive()
            self._encode_changed_topics()
            with core.lock:
                self._number += 1
                topics = [encoded_topic(topic) for topic in self._topics()]
                newest_file = max(core.journal.files, default=0)
                checkpoint = self._take({file.sequence for file in without}, clean)
                files = hand_over_files(core.state)
                topics_noted(core.state)
            core.storage.outdate([file_name(file.sequence) for file in without])
            try:
                self._size_bytes = write_checkpoint(core.storage, checkpoint, topics)
            except OSError:
                with core.lock:
                    delete_later(core.state, files)
                raise
            self._position, self._newest_file = (checkpoint.sequence, checkpoint.position), newest_file
            for file in without:
                core.journal.remove(file)
                with core.lock:
                    journal_file_removed(core.state, file.sequence)
            self._remove(files)
            core.meters.checkpoint_s.observe(core.clock.monotonic_s() - started_s)

    def _topics(self) -> Iterator[Topic]:
        assert self._core.lock.held
        return (topic for topic in self._core.catalog.by_id.values() if topic.committed)

    def _encode_changed_topics(self) -> None:
        """Encode most of what has changed, a little at a time: publishers wait for the rest only."""
        core = self._core
        with core.lock:
            changed = [topic for topic in self._topics() if topic.noted is None]
        steps = itertools.chain.from_iterable(map(_encoding, changed))
        while self._advance(steps):
            core.clock.sleep_s(_PAUSE_S)

    def _advance(self, steps: Iterator[None]) -> bool:
        """Take some steps; whether there may be more."""
        monotonic_s = self._core.clock.monotonic_s
        with self._core.lock:
            end_s = monotonic_s() + _WORK_S
            return any(monotonic_s() >= end_s for _ in steps)

    def _take(self, gone: set[int], clean: bool) -> Checkpoint:
        core = self._core
        assert core.lock.held
        sequence, position, synced = core.journal.position()
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

    def abandon(self) -> None:
        """As `release`, without waiting for one that is being written: nobody minds what it says."""
        self._released = True

    @property
    def released(self) -> bool:
        """Whether the directory is let go."""
        return self._released

    def disown(self) -> None:
        """This is a fork of the broker's process: the directory belongs to the parent."""
        self._lock = threading.Lock()
        self._released = True


def _encoding(topic: Topic) -> Iterator[None]:
    yield from encode_changed(topic)
    encoded_topic(topic)
    yield
