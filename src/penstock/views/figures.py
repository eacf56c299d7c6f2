"""How topics and groups stand, for whoever watches them: taken from the state some topics at a time, reading no disk.

A group whose index is not open (nobody has used it since the broker was opened) is left as it is. Its lag, its age and
what waits to be tried again are known; nothing of it is leased; how much is ready or delayed only the index tells.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from penstock.delivery.standing import Standing
from penstock.log.partition_log import first_offset
from penstock.log.topics import Partition, Topic
from penstock.model.group_settings import GroupSettings
from penstock.model.merging import merge_settings
from penstock.shard.dispatch.active_group import ActiveGroup
from penstock.shard.dispatch.topics_in_use import TopicsInUse
from penstock.shard.metering.ages import published_us
from penstock.shard.metering.meters import COUNTED, OTHER, GroupMeter, Meters
from penstock.shard.shard import Shard
from penstock.views.shard_set import ShardSet

_TOPICS_AT_ONCE = 50


@dataclass(slots=True)
class GroupFigures:
    """A group, or all groups that are shown as one."""

    counts: tuple[int, ...] = (0,) * len(COUNTED)
    acked_bytes: int = 0
    end_to_end_s: float = 0.0
    standing: Standing = field(default_factory=Standing)
    oldest_us: int | None = None
    members: int = 0
    settings: GroupSettings = GroupSettings()
    """Of one group; of several that are shown as one, none."""

    def count(self, meter: GroupMeter) -> None:
        """Show what a meter has counted."""
        self.counts = tuple(meter.counts)
        self.acked_bytes, self.end_to_end_s = meter.acked_bytes, meter.end_to_end_s

    def add(self, other: GroupFigures, *, is_slice: bool) -> None:
        """Show those of another shard with these: of another slice of it, or of other groups."""
        self.counts = tuple(map(operator.add, self.counts, other.counts))
        self.acked_bytes += other.acked_bytes
        self.end_to_end_s += other.end_to_end_s
        self.standing.add_other(other.standing)
        times_us = [time_us for time_us in (self.oldest_us, other.oldest_us) if time_us is not None]
        self.oldest_us = min(times_us, default=None)
        if is_slice:  # whoever consumes is a member in each
            self.members = max(self.members, other.members)
            self.settings = merge_settings([self.settings, other.settings])
        else:
            self.members += other.members
            self.settings = GroupSettings()


@dataclass(slots=True)
class TopicFigures:
    """A topic, or all topics that are shown as one."""

    published: int = 0
    published_bytes: int = 0
    messages: int = 0
    journal_bytes: int = 0
    segments: int = 0
    segment_bytes: int = 0
    groups: dict[str, GroupFigures] = field(default_factory=dict)

    def add(self, other: TopicFigures, *, is_slice: bool) -> None:
        """Show those of another shard with these: of another slice of it, or of other topics."""
        self.published += other.published
        self.published_bytes += other.published_bytes
        self.messages += other.messages
        self.journal_bytes += other.journal_bytes
        self.segments += other.segments
        self.segment_bytes += other.segment_bytes
        for name, group in other.groups.items():
            if name in self.groups:
                self.groups[name].add(group, is_slice=is_slice and name != OTHER)
            else:
                self.groups[name] = group


@dataclass(slots=True)
class Figures:
    """All topics, by the names that they are shown with, and how many there are."""

    topics: dict[str, TopicFigures] = field(default_factory=dict)
    whole_topics: int = 0
    partition_count: int = 0
    whole_groups: int = 0
    spread: dict[str, set[str]] = field(default_factory=dict)
    """The groups of topics that are spread, by topic: each is in several shards and counts once."""

    @property
    def topic_count(self) -> int:
        """How many topics there are."""
        return self.whole_topics + len(self.spread)

    @property
    def group_count(self) -> int:
        """How many groups there are."""
        return self.whole_groups + sum(map(len, self.spread.values()))

    def add(self, other: Figures) -> None:
        """Add another shard: two have a topic of one name if it is spread, many are shown as one, or for schedules."""
        for name, topic in other.topics.items():
            if name in self.topics:
                self.topics[name].add(topic, is_slice=name in self.spread)
            else:
                self.topics[name] = topic
        self.whole_topics += other.whole_topics
        self.partition_count += other.partition_count
        self.whole_groups += other.whole_groups
        for name, groups in other.spread.items():
            self.spread.setdefault(name, set()).update(groups)


def for_each_topic(shard: Shard, look: Callable[[Topic], object]) -> None:
    """Look at every topic, with the state lock held, which others get in between."""
    catalog = shard.catalog
    with shard.lock:
        topics = list(catalog.by_id.values())
    for start in range(0, len(topics), _TOPICS_AT_ONCE):
        with shard.lock:
            for topic in topics[start : start + _TOPICS_AT_ONCE]:
                if topic.committed and topic.id in catalog.by_id:
                    look(topic)


def take_figures(shards: ShardSet) -> Figures:
    """The numbers of now; publishers wait for those of some topics at most."""
    whole = Figures()
    for shard in shards:
        whole.add(_figures_of(shard))
    whole.spread = {name: groups for name, groups in whole.spread.items() if shards.counts(name)}
    return whole


def _figures_of(shard: Shard) -> Figures:
    figures, meters = Figures(), shard.meters
    for_each_topic(shard, partial(_add_topic, meters, shard.dispatcher.in_use, figures))
    with shard.lock:
        others = meters.others
        if OTHER in figures.topics or others.published or any(others.others.counts):
            shown = figures.topics.setdefault(OTHER, TopicFigures())
            shown.published, shown.published_bytes = others.published, others.published_bytes
            shown.groups.setdefault(OTHER, GroupFigures()).count(others.others)
    return figures


def _add_topic(meters: Meters, in_use: TopicsInUse, figures: Figures, topic: Topic) -> None:
    meter = meters.meter_of(topic)
    shown = figures.topics.get(meter.name)
    if shown is None:
        shown = figures.topics[meter.name] = TopicFigures(meter.published, meter.published_bytes)
    if topic.config.spread == 1:
        figures.whole_topics += 1
    else:
        figures.spread.setdefault(topic.name, set())
    figures.partition_count += len(topic.own_partitions)
    for partition in topic.partitions:
        log = partition.messages
        shown.messages += log.committed_end - first_offset(log)
        for each in partition.logs():
            shown.journal_bytes += each.live_bytes
            for segment in each.segments:
                if not segment.archived:
                    shown.segments += 1
                    shown.segment_bytes += segment.size_bytes
        if partition.state is not None and partition.state.groups:
            _add_groups(meters, in_use.groups(topic), figures, shown, topic, partition)
    if any(meter.others.counts) and meter is not meters.others:
        shown.groups.setdefault(OTHER, GroupFigures()).count(meter.others)


def _add_groups(
    meters: Meters,
    active_groups: Mapping[str, ActiveGroup],
    figures: Figures,
    shown: TopicFigures,
    topic: Topic,
    partition: Partition,
) -> None:
    meter = meters.meter_of(topic)
    log, number = partition.messages, partition.messages.partition
    assert partition.state is not None
    for name, progress in partition.state.groups.items():
        counted = meters.group_of(meter, name)
        group = shown.groups.get(counted.name)
        if group is None:
            group = shown.groups[counted.name] = GroupFigures()
            group.count(counted)
        active = active_groups.get(name)
        if group.standing.add(log.committed_end, progress, None if active is None else active.group.claims[number]):
            oldest_us = published_us(log, progress.floor)
            if oldest_us is not None and (group.oldest_us is None or oldest_us < group.oldest_us):
                group.oldest_us = oldest_us
        if number == 0:
            if topic.config.spread == 1:
                figures.whole_groups += 1
            else:
                figures.spread[topic.name].add(name)
            group.members += 0 if active is None else len(active.members)
            group.settings = progress.settings if counted.name == name else GroupSettings()


def leased_and_delayed(shards: ShardSet) -> tuple[int, int]:
    """How many messages are leased, and how many are not due, where anybody consumes; cheap enough for every second."""
    leased = delayed = 0
    for shard in shards:
        with shard.lock:
            deliveries = shard.dispatcher.in_use.all()
        for start in range(0, len(deliveries), _TOPICS_AT_ONCE):
            with shard.lock:
                for delivery in deliveries[start : start + _TOPICS_AT_ONCE]:
                    leased += sum(active.group.leases.total for active in delivery.active_groups.values())
                    delayed += sum(len(index.hidden) for index in delivery.indexes)
    return leased, delayed
