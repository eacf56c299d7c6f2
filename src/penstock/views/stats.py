"""Statistics of delivery in the whole broker: counted some topics at a time, without opening topics or reading disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.log.partition_log import first_offset
from penstock.log.topics import Topic
from penstock.model.histograms import WAIT_S, quantile
from penstock.model.merging import by
from penstock.model.names import PRIORITIES
from penstock.model.stats import (
    DelayStats,
    GroupRebalances,
    LaneStats,
    PriorityStats,
    RebalanceStats,
    ReliabilityStats,
    TopicDelays,
    TopicLanes,
)
from penstock.model.units import to_datetime
from penstock.shard.metering.meters import COUNTED
from penstock.shard.metering.totals import Totals
from penstock.views.figures import for_each_topic, take_figures
from penstock.views.shard_set import ShardSet

if TYPE_CHECKING:
    from penstock.shard.shard import Shard

Sees = Callable[[str], bool]
"""Whether a topic of this name is to be counted."""
Item = TypeVar("Item")

_LISTED_MAX = 1000
_NAMES = {priority: name for name, priority in PRIORITIES.items()}


def _for_each_topic(shards: ShardSet, sees: Sees, count: Callable[[Shard, Topic], None]) -> None:
    for shard in shards:
        for_each_topic(shard, partial(_count_seen, shards, shard, sees, count))


def _count_seen(
    shards: ShardSet, shard: Shard, sees: Sees, count: Callable[[Shard, Topic], None], topic: Topic
) -> None:
    if sees(topic.name) and shards.shows(shard, topic):
        count(shard, topic)


def _largest(found: Iterable[tuple[int, Item]]) -> list[Item]:
    return [item for _, item in sorted(found, key=lambda pair: -pair[0])[:_LISTED_MAX]]


def _sum(parts: Sequence[object], name: str) -> Any:
    return sum(getattr(part, name) for part in parts)


def priority_stats(shards: ShardSet, sees: Sees) -> PriorityStats:
    """What is ready, by priority."""
    total: Counter[int] = Counter()
    lanes: dict[str, tuple[str, Counter[int]]] = {}
    used: set[tuple[str, str]] = set()
    known: set[tuple[str, str]] = set()

    def count(shard: Shard, topic: Topic) -> None:
        active_groups = shard.dispatcher.in_use.groups(topic)
        state = topic.partitions[0].state
        used.update((topic.name, name) for name in active_groups)
        known.update((topic.name, name) for name in (() if state is None else state.groups))
        if active_groups:
            _, ready = lanes.setdefault(topic.name, (topic.config.lanes, Counter()))
            for active in active_groups.values():
                for claims in active.group.claims:
                    ready.update(claims.ready_by_lane())

    _for_each_topic(shards, sees, count)
    for _, ready in lanes.values():
        total.update(ready)
    found = ((ready.total(), TopicLanes(name, policy, _lanes(ready))) for name, (policy, ready) in lanes.items())
    return PriorityStats(_lanes(total), _largest(found), groups=len(used), idle_groups=len(known - used))


def merge_priorities(parts: Sequence[PriorityStats]) -> PriorityStats:
    """Those of several processes as one."""
    total: Counter[int] = Counter()
    for lane in chain.from_iterable(part.lanes for part in parts):
        total[lane.priority] += lane.ready
    topics = by(chain.from_iterable(part.topics for part in parts), lambda topic: topic.topic, _one_topic)
    largest = _largest((sum(lane.ready for lane in topic.lanes), topic) for topic in topics)
    return PriorityStats(_lanes(total), largest, _sum(parts, "groups"), _sum(parts, "idle_groups"))


def _one_topic(slices: Sequence[TopicLanes]) -> TopicLanes:
    ready: Counter[int] = Counter()
    for lane in chain.from_iterable(slice_.lanes for slice_ in slices):
        ready[lane.priority] += lane.ready
    return TopicLanes(slices[0].topic, slices[0].policy, _lanes(ready))


def _lanes(ready: Counter[int]) -> list[LaneStats]:
    return [LaneStats(lane, _NAMES.get(lane), count) for lane, count in sorted(ready.items())]


def delay_stats(shards: ShardSet, sees: Sees) -> DelayStats:
    """What is not due yet, and how late messages were made ready that were due before."""
    delayed: Counter[str] = Counter()
    used: set[str] = set()
    known: set[str] = set()

    def count(shard: Shard, topic: Topic) -> None:
        delivery = shard.dispatcher.in_use.of(topic)
        known.add(topic.name)
        if delivery is not None:
            used.add(topic.name)
            delayed[topic.name] += sum(len(index.hidden) for index in delivery.indexes)

    _for_each_topic(shards, sees, count)
    stats = DelayStats(delayed=delayed.total(), idle_topics=len(known - used))
    stats.topics = _largest((number, TopicDelays(name, number)) for name, number in delayed.items() if number)
    lateness = Totals.of([shard.meters for shard in shards]).due_lateness_s
    _tell_lateness(stats, list(lateness.counts), lateness.sum)
    return stats


def merge_delays(parts: Sequence[DelayStats]) -> DelayStats:
    """Those of several processes as one."""
    delayed: Counter[str] = Counter()
    for topic in chain.from_iterable(part.topics for part in parts):
        delayed[topic.topic] += topic.delayed
    stats = DelayStats(
        delayed=_sum(parts, "delayed"),
        topics=_largest((number, TopicDelays(name, number)) for name, number in delayed.items()),
        idle_topics=_sum(parts, "idle_topics"),
    )
    counts = [sum(some) for some in zip(*(part.lateness_counts for part in parts), strict=True)]
    _tell_lateness(stats, counts, sum((part.lateness_mean_s or 0.0) * part.fallen_due for part in parts))
    return stats


def _tell_lateness(stats: DelayStats, counts: list[int], sum_s: float) -> None:
    stats.lateness_counts, stats.fallen_due = counts, sum(counts)
    stats.lateness_mean_s = sum_s / stats.fallen_due if stats.fallen_due else None
    stats.lateness_p50_s = quantile(WAIT_S, counts, 0.5)
    stats.lateness_p99_s = quantile(WAIT_S, counts, 0.99)


def reliability_stats(shards: ShardSet) -> ReliabilityStats:
    """The outcomes of deliveries, and what is under way."""
    figures = take_figures(shards)
    groups = [group for topic in figures.topics.values() for group in topic.groups.values()]
    totals = Totals.of([shard.meters for shard in shards])
    now_us, now_s = shards.clock.wall_us(), shards.clock.monotonic_s()
    open_us = round(max((now_s - shard.started_s for shard in shards), default=0.0) * 1_000_000)
    oldest_us = min((group.oldest_us for group in groups if group.oldest_us is not None), default=None)
    return ReliabilityStats(
        since=to_datetime(max(0, now_us - open_us)),
        published=totals.published,
        **dict(zip(COUNTED, totals.totals, strict=True)),
        groups=figures.group_count,
        lag=sum(group.standing.lag for group in groups),
        leased=sum(group.standing.leased for group in groups),
        retrying=sum(group.standing.retrying for group in groups),
        oldest_unacked_s=None if oldest_us is None else max(0, now_us - oldest_us) / 1_000_000,
    )


def merge_reliability(parts: Sequence[ReliabilityStats]) -> ReliabilityStats:
    """Those of several processes as one."""
    ages_s = (part.oldest_unacked_s for part in parts if part.oldest_unacked_s is not None)
    summed = ("published", *COUNTED, "groups", "lag", "leased", "retrying")
    return ReliabilityStats(
        since=min(part.since for part in parts),
        oldest_unacked_s=max(ages_s, default=None),
        **{name: _sum(parts, name) for name in summed},
    )


def rebalance_stats(shards: ShardSet, sees: Sees) -> RebalanceStats:
    """Who got which partitions, and how often that changed."""
    found: list[GroupRebalances] = []

    def count(shard: Shard, topic: Topic) -> None:
        for name, active in shard.dispatcher.in_use.groups(topic).items():
            if active.assignment is None:
                continue
            assignment, members = active.assignment, active.assignment.members()
            revoking = sum(len(member.revoking) for member in members.values())
            numbers = (assignment.epoch, assignment.moves, assignment.expired, revoking)
            found.append(GroupRebalances(topic.name, name, len(members), *numbers))

    _for_each_topic(shards, sees, count)
    groups = by(found, _topic_and_group, _one_group)
    return RebalanceStats(
        groups=_largest((group.rebalances, group) for group in groups),
        rebalances=sum(group.rebalances for group in groups),
        moves=sum(group.moves for group in groups),
        expired=sum(group.expired for group in groups),
        members=sum(group.members for group in groups),
    )


def merge_rebalances(parts: Sequence[RebalanceStats]) -> RebalanceStats:
    """Those of several processes as one."""
    groups = by(chain.from_iterable(part.groups for part in parts), _topic_and_group, _one_group)
    summed = ("rebalances", "moves", "expired", "members")
    return RebalanceStats(
        _largest((group.rebalances, group) for group in groups), **{name: _sum(parts, name) for name in summed}
    )


def _topic_and_group(group: GroupRebalances) -> tuple[str, str]:
    return group.topic, group.group


def _one_group(slices: Sequence[GroupRebalances]) -> GroupRebalances:
    """A group of a topic that is spread: all slices see the same members, and each moves its own partitions."""
    first = slices[0]
    return GroupRebalances(
        first.topic,
        first.group,
        members=max(slice_.members for slice_ in slices),
        rebalances=max(slice_.rebalances for slice_ in slices),
        moves=_sum(slices, "moves"),
        expired=max(slice_.expired for slice_ in slices),
        revoking=_sum(slices, "revoking"),
    )


def queue_lengths(shards: ShardSet, sees: Sees) -> dict[str, int]:
    """The backlog of each partition (`orders-0`): of the slowest group, or all messages if there is no group."""
    found: dict[str, int] = {}

    def count(_: Shard, topic: Topic) -> None:
        for number in topic.own_partitions:
            partition = topic.partitions[number]
            log = partition.messages
            end, groups = log.committed_end, {} if partition.state is None else partition.state.groups
            waiting = [progress.backlog(end) for progress in groups.values()]
            found[f"{topic.name}-{log.partition}"] = max(waiting) if waiting else end - first_offset(log)

    _for_each_topic(shards, sees, count)
    return found
