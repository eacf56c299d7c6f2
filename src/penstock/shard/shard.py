"""A shard: one log with its delivery, without threads. Operations change state at once and return a pending commit.

Faces wait on the commit (embedded), await it (asyncio) or step it (tests). One lock guards the state and is
held for memory work only; see `journal.journal` for how the disk is shared. Background work (settling, retention,
tidying) is in `upkeep` as plain calls on a shard; `upkeep.background` runs them in threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from penstock.journal.commit import Committer
from penstock.model.clock import Clock, to_shard_clock
from penstock.model.config import BrokerConfig, TopicConfig
from penstock.model.errors import NotOwner, StorageFailed
from penstock.model.placement import ALONE, Place
from penstock.shard.checkpoints import Checkpoints
from penstock.shard.core import Core
from penstock.shard.dispatch.dispatcher import Dispatcher
from penstock.shard.forks import disown_in_forks
from penstock.shard.metering.meters import Meters
from penstock.shard.publishing import Publishing
from penstock.shard.recovery import Recovered, recover
from penstock.shard.schedules import Schedules
from penstock.shard.staging.staged_publishing import StagedPublishing
from penstock.shard.staging.stages import Stages
from penstock.shard.topics import Topics
from penstock.storage import Storage
from penstock.storage.refusals import is_refusal


class Shard:
    """All operations on the log in one storage."""

    def __init__(
        self, storage: Storage, config: BrokerConfig, clock: Clock | None = None, place: Place = ALONE
    ) -> None:
        self.storage, self.config, self.clock, self.place = storage, config, to_shard_clock(clock), place
        self.started_s = self.clock.monotonic_s()
        self.meters = Meters(self.clock)
        self.upkeep_lock = threading.Lock()  # held by settling and by retention
        storage.lock()
        found: Recovered | None = None
        try:
            found = recover(storage, config, self.clock, place)
            self._put_together(found)
        except BaseException:
            for file in found.files.values() if found is not None else ():
                file.handle.close()
            storage.close()
            raise

    def _put_together(self, found: Recovered) -> None:
        self.core = core = Core(self.storage, self.config, self.clock, self.meters, found)
        self.lock, self.state, self.catalog, self.folding = core.lock, core.state, core.catalog, core.folding
        self.journal, self.broker_id, self.epoch = core.journal, core.broker_id, core.epoch
        self.recovery = found.report
        self.untidy = not found.clean or self.storage.remote  # whether there may be files that nothing refers to
        self.topics = Topics(core)
        self.publishing = Publishing(core, self.topics)
        self.checkpoints = Checkpoints(core, found.checkpoint_number)
        self.stages = Stages(core, self.publishing)
        self.staging = StagedPublishing(core, self.publishing, self.stages)
        self.dispatcher = Dispatcher(core, self.topics)
        self.schedules = Schedules(core, self.publishing, self.dispatcher)
        self.schedules.load()
        self._offer_operations()
        self.checkpoints.write_first()
        disown_in_forks(self)
        self.recovery.seconds = self.clock.monotonic_s() - self.started_s

    def _offer_operations(self) -> None:
        """Its operations, each by the part that does it."""
        publishing, topics = self.publishing, self.topics
        self.publish, self.publish_many = publishing.publish, publishing.publish_many
        self.publish_single, self.publish_runs = publishing.publish_single, publishing.publish_runs
        self.publish_intake, self.append_internal = publishing.publish_intake, publishing.append_internal
        self.create_topic, self.delete_topic = topics.create, topics.delete
        self.configure_topic = topics.configure
        self.topic, self.log_events = self.core.topic, self.core.log_events
        self.check_not_closed = self.core.check_not_closed
        self.checkpoint, self.flush = self.checkpoints.write, self.journal.flush
        self.partition_count = topics.partition_count

    @property
    def closed(self) -> bool:
        """Whether nothing new is taken."""
        return self.core.closed

    @property
    def frozen(self) -> StorageFailed | NotOwner | None:
        """Why nothing can be written any more, if so."""
        return self.journal.frozen

    @property
    def committer(self) -> Committer:
        """Who does the work of its commits."""
        return self.journal

    def name_topics(self, topics_max: int) -> None:
        """Have so many topics, and groups, with meters of their own: the oldest topics first."""
        with self.lock:
            topics = [topic for topic in self.catalog.by_id.values() if topic.committed]
            self.meters.limit(topics_max, sorted(topics, key=lambda topic: topic.id))

    def keep_time(self) -> float:
        """Do what has become due everywhere; how many seconds until there is more."""
        if self.closed or self.journal.frozen is not None:
            return 3600.0
        now_us = self.clock.wall_us()
        wait_s = self.dispatcher.tick()
        self.schedules.fire(now_us)
        next_us = self.schedules.next_time_us()
        return wait_s if next_us is None else min(wait_s, max(0.0, (next_us - now_us) / 1_000_000))

    def set_topic_defaults(self, defaults: TopicConfig) -> None:
        """Keep topics that are made from now on by these options, where they have none of their own."""
        self.config = self.core.config = replace(self.config, topic_defaults=defaults)

    def lock_once(self) -> bool:
        """Take the state lock, which returns unless somebody has it for ever; whether the shard is open."""
        with self.lock:
            return not self.closed

    def drain(self) -> int:
        """Lease no more messages, for it is about to move; how many are leased still."""
        with self.lock:
            self.dispatcher.drain()
            return self.dispatcher.leased

    def deliver_while(self, tenure: Callable[[], bool], broker: str) -> None:
        """Lease messages only while this holds: otherwise another process may have the shard; traces say which has."""
        self.dispatcher.lease_book.tenure, self.dispatcher.lease_book.broker = tenure, broker

    def stalled_s(self) -> float:
        """How long the oldest write has waited, or is under way; takes no lock."""
        return self.journal.stalled_s(self.clock.monotonic_s())

    def prove(self) -> None:
        """Return if the shard is this process's still; raises NotOwner if another one has taken it."""
        self.journal.prove()

    def serve_all(self) -> None:
        """Messages may be leased again: serve whoever waits for some."""
        with self.lock:
            for delivery in self.dispatcher.in_use.all() if not self.closed else ():
                delivery.serve(self.dispatcher.now())

    def refuse_work(self) -> bool:
        """The first half of closing: nothing new is taken; whether it was open until now."""
        with self.lock:
            was_open, self.core.closed = not self.core.closed, True
            self.dispatcher.close()
        return was_open

    def close(self) -> None:
        """Commit what is gathered, wait for upkeep to end, note the state, and let the directory go."""
        if isinstance(self.frozen, NotOwner):
            self.abandon(self.frozen)
            return
        self.refuse_work()
        self.stages.close()
        with self.upkeep_lock:
            if self.checkpoints.released:
                return
            try:
                self.journal.flush()
                self.checkpoint(clean=not self.untidy)
            except (StorageFailed, NotOwner):
                pass  # everybody has heard of it; what is on disk is what the next start finds
            except OSError as error:
                if not is_refusal(error):  # what is on disk is all that there is: the next start reads it
                    raise
            finally:
                self.checkpoints.release()
                try:
                    self.journal.close()
                finally:
                    self.storage.close()

    def abandon(self, error: NotOwner) -> Storage:
        """Close it at once, for another process has it: nothing is written any more, and nobody is waited for.

        What is to be opened the next time.
        """
        self.journal.abandon(error)
        self.refuse_work()
        self.checkpoints.abandon()
        return self.storage.abandon()

    def disown(self) -> None:
        """This is a fork of the broker's process: the directory belongs to the parent."""
        self.lock.disown()  # the parent's threads, which may have held these, are not here
        self.upkeep_lock = threading.Lock()
        self.checkpoints.disown()
        self.journal.disown()
        self.stages.disown()
        self.core.closed = True
        self.storage.close()
