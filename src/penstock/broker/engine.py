"""The broker without threads: operations that change state at once and return a pending commit.

Faces wait on the commit (embedded), await it (asyncio) or step it (tests). One lock guards the state and is
held for memory work only; see `journal.journal` for how the disk is shared. What writes is in `publishing` and
`writing`; background work (settling, retention, checkpoints) is in `settling`, `retention` and here as plain calls,
and `background` runs them in threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from penstock.broker.checkpoint_files import write_checkpoint
from penstock.broker.deliveries import Deliveries
from penstock.broker.folding import Folding
from penstock.broker.forks import disown_in_forks
from penstock.broker.guard import DiskGuard
from penstock.broker.meters import Meters
from penstock.broker.publishing import Publishing
from penstock.broker.recovery import Recovered, recover
from penstock.broker.schedules import Schedules
from penstock.broker.staged_publishing import StagedPublishing
from penstock.journal import Journal
from penstock.journal.files import JournalFile
from penstock.log.checkpoint import VERSION, Checkpoint, topic_state
from penstock.log.records import Record
from penstock.model.clock import Clock, to_engine_clock
from penstock.model.config import BrokerConfig
from penstock.model.errors import BrokerClosed, StorageFailed
from penstock.storage import Storage
from penstock.storage.refusals import is_refusal


class Engine(Publishing):
    """All operations of a broker on one storage."""

    def __init__(self, storage: Storage, config: BrokerConfig, clock: Clock | None = None) -> None:
        self.storage = storage
        self.config = config
        self.clock = to_engine_clock(clock)
        self.meters = Meters(self.clock)
        self.lock = threading.Lock()
        self.upkeep_lock = threading.Lock()  # held by settling and by retention
        self._checkpoint_lock = threading.Lock()
        storage.lock()
        found: Recovered | None = None
        try:
            self.started_s = self.clock.monotonic_s()
            found = recover(storage, config, self.clock)
            self.broker_id = found.broker
            self.epoch = found.epoch + 1
            self.state = found.state
            self.catalog = found.state.catalog
            self.recovery = found.report
            self.untidy = not found.clean  # whether there may be files that nothing refers to
            self._checkpoint_number = found.checkpoint_number
            self.folding = Folding(found.state)
            self.journal: Journal[Record] = Journal(
                storage, config, found.broker, self.lock, self.folding, found.files, found.current, found.next_sequence
            )
            self.journal.observer = self.meters
            self.meters.listen_to(self.folding)
            self._guard = DiskGuard(storage, config, self.journal, self.meters.space)
            self.closed = False
            self._released = False  # whether the directory may belong to somebody else
            self.staging = StagedPublishing(self)
            self.deliveries = Deliveries(self)
            self.schedules = Schedules(self)
            self.schedules.load()
            self._first_checkpoint()
            disown_in_forks(self)
            self.recovery.seconds = self.clock.monotonic_s() - self.started_s
        except BaseException:
            for file in found.files.values() if found is not None else ():
                file.handle.close()
            storage.close()
            raise

    # Time and checkpoints.

    def keep_time(self) -> float:
        """Do what has become due everywhere; how many seconds until there is more."""
        if self.closed or self.journal.frozen is not None:
            return 3600.0
        now_us = self.clock.wall_us()
        wait_s = self.deliveries.tick()
        self.schedules.fire(now_us)
        next_us = self.schedules.next_time_us()
        return wait_s if next_us is None else min(wait_s, max(0.0, (next_us - now_us) / 1_000_000))

    def checkpoint(self, without: Sequence[JournalFile] = (), clean: bool = False) -> None:
        """Put the state on disk, then remove what it no longer needs: doomed files and journal files `without`."""
        with self._checkpoint_lock:
            if self._released:
                raise BrokerClosed("the broker is closed")
            started_s = self.clock.monotonic_s()
            self.journal.sync()
            if self.journal.frozen is not None:
                raise StorageFailed(*self.journal.frozen.args)
            with self.lock:
                self._checkpoint_number += 1
                doomed, self.state.files_to_delete = self.state.files_to_delete, []
                gone = {file.sequence for file in without}
                sequence, position, synced = self.journal.position()
                snapshot = Checkpoint(
                    version=VERSION,
                    number=self._checkpoint_number,
                    broker=self.broker_id,
                    epoch=self.epoch,
                    time_us=self.clock.wall_us(),
                    journal_files=[number for number in self.journal.files if number not in gone],
                    next_sequence=self.journal.next_sequence,
                    sequence=sequence,
                    position=position,
                    synced=synced,
                    next_topic_id=self.catalog.next_id,
                    floors=dict(self.catalog.floors),
                    doomed=doomed,
                    topics=[topic_state(topic) for topic in self.catalog.by_id.values() if topic.committed],
                    clean=clean,
                    staged=list(self.state.staged.values()),
                )
            try:
                write_checkpoint(self.storage, snapshot)
            except OSError:
                with self.lock:
                    self.state.files_to_delete = doomed + self.state.files_to_delete
                raise
            for file in without:
                self.journal.remove(file)
                with self.lock:
                    self.state.usage.forget(file.sequence)
            self._remove(doomed)
            self.meters.checkpoint_s.observe(self.clock.monotonic_s() - started_s)

    def _first_checkpoint(self) -> None:
        """Note the new epoch. If that is refused, the old checkpoint serves on: reading must stay possible."""
        try:
            self.checkpoint()
        except OSError as error:
            if not is_refusal(error) or self._checkpoint_number == 1:
                raise

    def _remove(self, doomed: list[str]) -> None:
        """Remove files; those that cannot be now are tried again after the next checkpoint."""
        while doomed:
            try:
                self.storage.remove(doomed[-1])
            except OSError:
                with self.lock:
                    self.state.files_to_delete += doomed
                raise
            doomed.pop()

    def refuse_work(self) -> bool:
        """The first half of closing: nothing new is taken; whether it was open until now."""
        with self.lock:
            was_open, self.closed = not self.closed, True
            self.deliveries.close()
        return was_open

    def close(self) -> None:
        """Commit what is gathered, wait for upkeep to end, note the state, and let the directory go."""
        self.refuse_work()
        self.staging.close()
        with self.upkeep_lock:
            if self._released:
                return
            try:
                self.journal.flush()
                self.checkpoint(clean=not self.untidy)
            except StorageFailed:
                pass  # everybody has heard of it; what is on disk is what the next start finds
            except OSError as error:
                if not is_refusal(error):  # what is on disk is all that there is: the next start reads it
                    raise
            finally:
                with self._checkpoint_lock:
                    self._released = True
                try:
                    self.journal.close()
                finally:
                    self.storage.close()

    def disown(self) -> None:
        """This is a fork of the broker's process: the directory belongs to the parent."""
        self.lock = threading.Lock()  # the parent's threads, which may have held these, are not here
        self.upkeep_lock = threading.Lock()
        self._checkpoint_lock = threading.Lock()
        self.journal.disown()
        self.staging.disown()
        self.closed = self._released = True
        self.storage.close()
