"""The topics that somebody consumes: their indexes and their deliveries, kept up to date with what is committed."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.delivery.index import Columns, PartitionIndex
from penstock.log.effects import EventRefused, Happened, Published, TopicChanged, TopicDeleted
from penstock.log.partition_log import Log, first_offset
from penstock.log.topics import Partition, Topic
from penstock.shard.core import Core
from penstock.shard.dispatch.active_group import ActiveGroup
from penstock.shard.dispatch.topic_dispatcher import TopicDispatcher
from penstock.shard.reading.indexing import Indexed, index_columns

_NONE: Mapping[str, ActiveGroup] = {}


class NewColumns:
    """What is committed while an index is being built: it is added at the end."""

    def __init__(self) -> None:
        self.columns: list[Columns] = []

    def add(self, columns: Columns) -> None:
        """Keep it for the index."""
        self.columns.append(columns)


class TopicsInUse:
    """Deliveries by topic, and indexes by log."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._deliveries: dict[int, TopicDispatcher] = {}
        self._indexes: dict[Log, PartitionIndex | NewColumns] = {}
        core.folding.listen(Published, self._published)
        core.folding.listen(Happened, self._happened)
        core.folding.listen(EventRefused, self._refused)
        core.folding.listen(TopicChanged, self._configured)
        core.folding.listen(TopicDeleted, self._deleted)

    def of(self, topic: Topic) -> TopicDispatcher | None:
        """The delivery of a topic, if somebody consumes it."""
        return self._deliveries.get(topic.id)

    def groups(self, topic: Topic) -> Mapping[str, ActiveGroup]:
        """The groups of a topic that are in use."""
        assert self._core.lock.held
        delivery = self._deliveries.get(topic.id)
        return _NONE if delivery is None else delivery.active_groups

    def all(self) -> list[TopicDispatcher]:
        """The deliveries of all topics, in the order of their use."""
        return list(self._deliveries.values())

    def is_current(self, delivery: TopicDispatcher) -> bool:
        """Whether a delivery is that of a topic which is there."""
        return not delivery.topic.deleting and self._deliveries.get(delivery.topic.id) is delivery

    def add(self, delivery: TopicDispatcher) -> None:
        """From now on a topic is consumed; its indexes are there."""
        assert self._core.lock.held
        self._deliveries[delivery.topic.id] = delivery

    def index(self, partition: Partition) -> PartitionIndex:
        """Build the index of everything that a partition holds, while publishing goes on; without the lock."""
        log, core = partition.messages, self._core
        by_key = log.topic.config.order == "key"
        with core.lock:
            state, new = partition.delivery_state(), NewColumns()
            self._indexes[log] = new
            found = Indexed.of(core, log)
            index = PartitionIndex(first_offset(log), state, by_key, core.clock.wall_us())
            index.on_due = core.meters.fell_due
        try:
            for columns in index_columns(core, log, found, by_key):
                index.add(columns)
        except BaseException:
            with core.lock:
                del self._indexes[log]
            raise
        finally:
            with core.lock:
                found.unpin(core)
        with core.lock:
            for columns in new.columns:
                index.add(columns)
            index.reach(log.committed_end)
            self._indexes[log] = index
        return index

    # What was committed, and what was refused.

    def _published(self, effect: Published) -> None:
        """Put new messages into the index of their partition."""
        log, record = effect.partition.messages, effect.record
        index = self._indexes.get(log)
        if index is None:
            return
        batch = record.columns()
        keys = batch.keys if effect.topic.config.order == "key" else None
        times = (batch.deliver_at, batch.expires_at)
        index.add(Columns(record.base, record.count, batch.priority, batch.priorities, *times, keys))
        delivery = self._deliveries.get(effect.topic.id)
        if delivery is not None:
            delivery.published(log, record.base, batch, record.timestamp_us, effect.size_bytes)

    def _happened(self, effect: Happened) -> None:
        delivery = self._deliveries.get(effect.topic.id)
        if delivery is not None:
            number, now_us = effect.partition.messages.partition, self._core.clock.wall_us()
            for event in effect.events:
                delivery.committed(number, event, now_us)

    def _refused(self, effect: EventRefused) -> None:
        delivery = self._deliveries.get(effect.topic.id)
        if delivery is not None:
            delivery.refused(effect.partition.messages.partition, effect.event)

    def _configured(self, effect: TopicChanged) -> None:
        delivery = self._deliveries.get(effect.topic.id)
        if delivery is not None:
            delivery.configure(effect.topic.config)

    def _deleted(self, effect: TopicDeleted) -> None:
        for partition in effect.topic.partitions:
            self._indexes.pop(partition.messages, None)
        delivery = self._deliveries.pop(effect.topic.id, None)
        if delivery is not None:
            delivery.close()
