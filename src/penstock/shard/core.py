"""What all parts of a shard share: the state, the journal that changes it, one lock and one clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from penstock.journal import Commit, Journal
from penstock.log.folding import Folding
from penstock.log.records import Events, NewRecord
from penstock.log.reservations import reserve_event, reserve_event_log
from penstock.log.topics import Topic
from penstock.model.clock import ShardClock
from penstock.model.config import BrokerConfig
from penstock.model.errors import BrokerClosed, TopicNotFound
from penstock.model.events import Event
from penstock.shard.disk_guard import DiskGuard
from penstock.shard.metering.meters import Meters
from penstock.shard.recovery import Recovered
from penstock.shard.state_lock import StateLock
from penstock.storage import Storage

MESSAGE_BYTES = 48  # what a message counts against the limits of buffers, beside what is in it
_EVENT_BYTES = 64
_EVENTS_BYTES_MAX = 256 << 10  # of one record: whoever decodes it lets nobody else run meanwhile


class Core:
    """The log of a shard: its state and its journal."""

    def __init__(
        self, storage: Storage, config: BrokerConfig, clock: ShardClock, meters: Meters, found: Recovered
    ) -> None:
        self.storage, self.config, self.clock, self.meters = storage, config, clock, meters
        self.lock = StateLock()
        self.broker_id = found.broker
        self.epoch = max(found.epoch + 1, storage.epoch)
        self.state = found.state
        self.catalog = found.state.catalog
        self.folding = Folding(found.state, self.lock)
        self.journal: Journal[NewRecord] = Journal(
            storage, config, found.broker, self.lock, self.folding, found.files, found.current, found.next_sequence
        )
        self.journal.observer = meters
        meters.listen_to(self.folding)
        self.guard = DiskGuard(storage, config, self.journal, meters.space)
        self.closed = False
        self.closing: Callable[[], BrokerClosed] = partial(BrokerClosed, "the broker is closed")
        """What those hear who come when it is closed."""

    def check_not_closed(self) -> None:
        """Raise if the shard is closed."""
        if self.closed:
            raise self.closing()

    def check_open(self) -> None:
        """Raise if the shard is closed, or nothing can be written any more."""
        self.check_not_closed()
        self.journal.check_alive()

    def check_writable(self, size_bytes: int, now_us: int) -> None:
        """Raise if messages of this size cannot be taken now; nothing has been done yet."""
        assert self.lock.held
        if self.closed:
            raise self.closing()
        self.journal.check_writable(size_bytes)
        self.guard.check(size_bytes, now_us)

    def topic(self, name: str) -> Topic:
        """The topic of a name."""
        return self.catalog.topic(name)

    def log_events(self, topic: Topic, logged: Iterable[tuple[int, Event]]) -> Commit:
        """Log what happened to messages, by partition; the state changes once that is committed.

        It is refused only when nothing can be written at all: what was done in memory must not get stuck there.
        """
        assert self.lock.held
        self.journal.check_alive()
        if self.journal.closed:
            raise self.closing()
        if topic.id not in self.catalog.by_id:
            raise TopicNotFound(f"the topic {topic.name!r} was deleted")
        gathering = self.journal.gathering
        for number, event in logged:
            partition = topic.partitions[number]
            log = reserve_event_log(partition) if partition.events is None else partition.events
            record = gathering.open.get(log)
            assert record is None or isinstance(record, Events)
            if record is None or record.size_bytes > _EVENTS_BYTES_MAX:
                record = gathering.open[log] = Events(topic.id, number, log.next_offset, self.clock.wall_us())
                self.journal.gather(record, MESSAGE_BYTES)
            reserve_event(log, record, event)
            size_bytes = _EVENT_BYTES + 8 * len(event.offsets or ())
            record.size_bytes += size_bytes
            self.journal.grow(size_bytes)
        return gathering.commit
