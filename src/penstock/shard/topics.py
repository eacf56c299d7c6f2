"""Topics: made by hand or by the first publish, changed, deleted. Each is a record in the journal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from penstock.journal import Commit
from penstock.log.reservations import reserve_deletion, reserve_options, reserve_topic
from penstock.log.topics import Topic
from penstock.model.config import TopicConfig
from penstock.model.errors import LimitExceeded, TopicExists, TopicNotFound
from penstock.model.names import DEAD_LETTERS
from penstock.model.placement import check_partition, living, shard_of
from penstock.model.schedules import SCHEDULES, check_open_topic
from penstock.shard.core import Core


class Topics:
    """Finds topics, and makes, changes and deletes them."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def partition_count(self, name: str) -> int:
        """How many partitions a topic has; raises if there is none, or not for long."""
        topic = self._core.topic(name)
        if topic.deleting:
            raise TopicNotFound(f"the topic {name!r} is being deleted")
        return len(topic.partitions)

    def create(self, name: str, options: dict[str, object], floor: int = 0) -> Commit:
        """Make a topic by hand, with options of its own; its offsets begin at the floor at least."""
        check_open_topic(name)
        config = TopicConfig.parse(options, self._core.config.topic_defaults)
        now_us = self._core.clock.wall_us()
        with self._core.lock:
            self._core.check_writable(0, now_us)
            if name in self._core.catalog.by_name:
                raise TopicExists(f"the topic {name!r} exists already")
            self._check_room_for(name)
            return self.make(name, config, now_us, floor)

    def delete(self, name: str, floor: int = 0) -> Commit:
        """Delete a topic and its messages; what is in its archive stays there. A later one begins at the floor."""
        now_us = self._core.clock.wall_us()
        with self._core.lock:
            topic = self._check_changeable(name)
            return self._core.journal.gather(reserve_deletion(topic, now_us, floor), 0)

    def configure(self, name: str, options: Mapping[str, object]) -> Commit | None:
        """Change options of a topic; what to wait for, or None where they are as asked for already."""
        now_us = self._core.clock.wall_us()
        with self._core.lock:
            topic = self._check_changeable(name)
            newest = topic.changes[-1] if topic.changes else topic.config
            config = newest.changed(options)
            if config == newest:
                return self._core.journal.latest_commit()
            return self._core.journal.gather(reserve_options(topic, config, now_us), 0)

    def _check_changeable(self, name: str) -> Topic:
        """A topic that clients may change, also on a disk that is nearly full: shorter retention is the way out."""
        check_open_topic(name)
        self._core.check_not_closed()
        self._core.journal.check_writable(0)
        topic = self._core.topic(name)
        if topic.deleting:
            raise TopicNotFound(f"the topic {name!r} is being deleted")
        return topic

    def to_publish(self, name: str, asked: Iterable[object], now_us: int) -> Topic:
        """The topic, made if it is new; nothing is made when a partition that is asked for cannot be."""
        topic, config = self.find(name, asked)
        if topic is None:
            self.make(name, config, now_us)
            return self._core.catalog.by_name[name]
        return topic

    def find(self, name: str, asked: Iterable[object]) -> tuple[Topic | None, TopicConfig]:
        """The topic, if there is one, and how it is (or will be) kept; raises where nothing can be published to it."""
        topic = self._core.catalog.by_name.get(name)
        config = topic.config if topic is not None else self.default_config(name)
        for partition in asked:
            if partition is not None:
                check_partition(name, config.partitions, partition)
        if topic is None or topic.reserved:
            self._check_room_for(check_open_topic(name))
            self._check_home_of(name)
        elif topic.deleting:
            raise TopicNotFound(f"the topic {name!r} is being deleted")
        return topic, config

    def _check_room_for(self, name: str) -> None:
        """Raise if there are as many topics as there may be; one that exists always has room for its dead letters."""
        limit, topics = self._core.config.max_topics, self._core.catalog.by_name
        if len(topics) >= limit and not (name.endswith(DEAD_LETTERS) and name.removesuffix(DEAD_LETTERS) in topics):
            raise LimitExceeded(
                f"the topic {name!r} is not made: there are {len(topics):,} topics, and the limit is {limit:,} "
                "(max_topics); delete some that are not needed, or raise it"
            )

    def _check_home_of(self, name: str) -> None:
        """Raise unless a topic that nobody makes by hand lives here, or its messages die here."""
        place, known = self._core.catalog.place, self._core.catalog.by_name
        if shard_of(name, place.shards) != place.number and name not in known and living(name) not in known:
            raise TopicNotFound(f"the topic {name!r} was deleted meanwhile")

    def default_config(self, name: str) -> TopicConfig:
        """How a topic is kept that nobody configured; dead letters and schedules stay until they are dealt with."""
        if name == SCHEDULES or str(name).endswith(DEAD_LETTERS):
            spread = self._spread_of_living(name)
            return dataclasses.replace(
                self._core.config.topic_defaults, partitions=spread, spread=spread, protect_unacked=True
            )
        return self._core.config.topic_defaults

    def _spread_of_living(self, name: str) -> int:
        """How the topic is spread whose dead letters these are: each slice has a partition for its own."""
        known = self._core.catalog.by_name.get(living(name))
        return 1 if known is None else known.config.spread

    def make(self, name: str, config: TopicConfig, now_us: int, floor: int = 0) -> Commit:
        """A new topic, with these options; nobody has looked whether it may be made."""
        assert self._core.lock.held
        if config.partitions > self._core.config.max_partitions:
            raise LimitExceeded(
                f"{config.partitions} partitions are too many; "
                f"the limit is {self._core.config.max_partitions} (max_partitions)"
            )
        return self._core.journal.gather(reserve_topic(self._core.state, name, config, now_us, floor), 0)

    def to_use(self, name: str) -> tuple[Topic, Commit | None]:
        """The topic, made if it is new, and what to wait for before it can be used."""
        assert self._core.lock.held
        self._core.check_not_closed()
        topic = self._core.catalog.by_name.get(name)
        if topic is None or topic.deleting:
            topic = self.to_publish(name, (), self._core.clock.wall_us())
        return topic, None if topic.committed else self._core.journal.latest_commit()
