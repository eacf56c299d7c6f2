"""Everything that writes but publishing: topics and events, gathered for the next commit under the state lock."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.broker.routing import check_partition
from penstock.journal import Commit, Journal
from penstock.log.records import Events, Record
from penstock.log.reservations import reserve_deletion, reserve_event, reserve_topic
from penstock.log.state import State
from penstock.log.topics import Catalog, Topic
from penstock.model.clock import EngineClock
from penstock.model.config import BrokerConfig, TopicConfig
from penstock.model.errors import (
    BrokerClosed,
    LimitExceeded,
    TopicExists,
    TopicNotFound,
)
from penstock.model.events import Event
from penstock.model.names import DEAD_LETTERS
from penstock.model.schedules import SCHEDULES, check_open_topic

if TYPE_CHECKING:
    from penstock.broker.guard import DiskGuard

_EVENT_BYTES = 64
MESSAGE_BYTES = 48  # what a message counts against the limits of buffers, beside what is in it


class Writing:
    """The part of the engine that changes topics and logs events."""

    config: BrokerConfig
    clock: EngineClock
    lock: threading.Lock
    journal: Journal[Record]
    state: State
    catalog: Catalog
    closed: bool
    _guard: DiskGuard

    def _check_writable(self, size_bytes: int, now_us: int) -> None:
        if self.closed:
            raise BrokerClosed("the broker is closed")
        self.journal.check_writable(size_bytes)
        self._guard.check(size_bytes, now_us)

    # Topics.

    def topic(self, name: str) -> Topic:
        """The topic of a name; under the state lock."""
        return self.catalog.topic(name)

    def create_topic(self, name: str, options: dict[str, object]) -> Commit:
        """Make a topic by hand, with options of its own."""
        check_open_topic(name)
        config = TopicConfig.parse(options, self.config.topic_defaults)
        now_us = self.clock.wall_us()
        with self.lock:
            self._check_writable(0, now_us)
            if name in self.catalog.by_name:
                raise TopicExists(f"the topic {name!r} exists already")
            self._check_room_for(name)
            return self._create(name, config, now_us)

    def delete_topic(self, name: str) -> Commit:
        """Delete a topic and its messages; what is in its archive stays there."""
        now_us = self.clock.wall_us()
        with self.lock:
            if self.closed:
                raise BrokerClosed("the broker is closed")
            self.journal.check_writable(0)
            topic = self.topic(name)
            if topic.deleting:
                raise TopicNotFound(f"the topic {name!r} is being deleted")
            check_open_topic(name)
            return self.journal.gather(reserve_deletion(topic, now_us), 0)

    def _topic_to_publish(self, name: str, asked: Iterable[object], now_us: int) -> Topic:
        """The topic, made if it is new; nothing is made when a partition that is asked for cannot be."""
        topic, config = self._find_topic(name, asked)
        if topic is None:
            self._create(name, config, now_us)
            return self.catalog.by_name[name]
        return topic

    def _find_topic(self, name: str, asked: Iterable[object]) -> tuple[Topic | None, TopicConfig]:
        """The topic, if there is one, and how it is (or will be) kept; raises where nothing can be published to it."""
        topic = self.catalog.by_name.get(name)
        config = topic.config if topic is not None else self._default_config(name)
        for partition in asked:
            if partition is not None:
                check_partition(name, config.partitions, partition)
        if topic is None or topic.reserved:
            self._check_room_for(check_open_topic(name))
        elif topic.deleting:
            raise TopicNotFound(f"the topic {name!r} is being deleted")
        return topic, config

    def _check_room_for(self, name: str) -> None:
        """Raise if there are as many topics as there may be; one that exists always has room for its dead letters."""
        limit, topics = self.config.max_topics, self.catalog.by_name
        if len(topics) >= limit and not (name.endswith(DEAD_LETTERS) and name.removesuffix(DEAD_LETTERS) in topics):
            raise LimitExceeded(
                f"the topic {name!r} is not made: there are {len(topics):,} topics, and the limit is {limit:,} "
                "(max_topics); delete some that are not needed, or raise it"
            )

    def _default_config(self, name: str) -> TopicConfig:
        """How a topic is kept that nobody configured; dead letters and schedules stay until they are dealt with."""
        if name == SCHEDULES or str(name).endswith(DEAD_LETTERS):
            return dataclasses.replace(self.config.topic_defaults, partitions=1, protect_unacked=True)
        return self.config.topic_defaults

    def _create(self, name: str, config: TopicConfig, now_us: int) -> Commit:
        if config.partitions > self.config.max_partitions:
            raise LimitExceeded(
                f"{config.partitions} partitions are too many; "
                f"the limit is {self.config.max_partitions} (max_partitions)"
            )
        return self.journal.gather(reserve_topic(self.state, name, config, now_us), 0)

    def topic_to_use(self, name: str) -> tuple[Topic, Commit | None]:
        """The topic, made if it is new, and what to wait for before it can be used; under the state lock."""
        if self.closed:
            raise BrokerClosed("the broker is closed")
        topic = self.catalog.by_name.get(name)
        if topic is None or topic.deleting:
            topic = self._topic_to_publish(name, (), self.clock.wall_us())
        return topic, None if topic.committed else self.journal.latest_commit()

    # Events; under the state lock.

    def log_events(self, topic: Topic, logged: Iterable[tuple[int, Event]]) -> Commit:
        """Log what happened to messages, by partition; the state changes once that is committed.

        It is refused only when nothing can be written at all: what was done in memory must not get stuck there.
        """
        self.journal.check_alive()
        if topic.id not in self.catalog.by_id:
            raise TopicNotFound(f"the topic {topic.name!r} was deleted")
        gathering = self.journal.gathering
        for number, event in logged:
            partition = topic.partitions[number]
            log = partition.event_log(partition.messages.next_offset)
            record = gathering.open.get(log)
            if record is None:
                record = gathering.open[log] = Events(topic.id, number, log.next_offset, self.clock.wall_us())
                self.journal.gather(record, MESSAGE_BYTES)
            assert isinstance(record, Events)
            reserve_event(log, record, event)
            self.journal.grow(_EVENT_BYTES + 8 * len(event.offsets or ()))
        return gathering.commit
