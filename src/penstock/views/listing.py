"""Topics and groups in pages, for people who look at thousands of them.

Nothing is opened for it: of a group that nobody has used since the broker was opened, everything is known but how much
of its lag is ready and how much is delayed. The state lock is held for a few topics at a time.
"""

from __future__ import annotations

import fnmatch
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.delivery.offsets import Offsets
from penstock.log.topics import Topic
from penstock.model.bounds import shown
from penstock.model.errors import GroupNotFound
from penstock.model.info import GroupInfo, TopicInfo
from penstock.model.merging import by, merge_groups, merge_topics
from penstock.shard.dispatch.active_group import ActiveGroup
from penstock.shard.dispatch.topic_dispatcher import TopicDispatcher
from penstock.shard.metering.ages import published_us
from penstock.shard.operations.groups import group_info, standing_of
from penstock.views.info import topic_info
from penstock.views.ranking import Ranking
from penstock.views.shard_set import ShardSet

if TYPE_CHECKING:
    from penstock.shard.shard import Shard

_TOPICS_AT_ONCE = 20
_NAMES_AT_ONCE = 500

Sees = Callable[[str], bool]
"""Whether a topic is to be seen by whoever asks."""


class ListedTopic(NamedTuple):
    """A topic in a list."""

    info: TopicInfo
    groups: int


class ListedGroup(NamedTuple):
    """A group in a list."""

    info: GroupInfo
    in_use: bool
    """Whether it is known how much is ready and how much is delayed; else `ready` has both."""


class Lane(NamedTuple):
    """What some group is not done with yet, of one priority."""

    priority: int
    messages: int


class ShownTopic(NamedTuple):
    """A topic with all that is known of it."""

    topic: ListedTopic
    lanes: list[Lane]
    groups: list[ListedGroup]


def list_topics(
    shards: ShardSet,
    ranking: Ranking,
    sees: Sees,
    *,
    search: str = "",
    sort: str = "name",
    descending: bool = False,
    skip: int = 0,
    limit: int = 100,
) -> tuple[list[ListedTopic], int]:
    """A page of topics, and how many there are in all; they are sorted by `name`, or as they stand."""
    names = [name for name in _topic_names(shards) if sees(name)]
    names = list(filter(_matching(search), names))
    end = skip + limit
    if sort == "name":
        page = sorted(names, reverse=descending)[skip:end]
    else:
        known = ranking.topics()
        sizes = {name: getattr(known[name], sort) if name in known else 0 for name in names}
        first = sorted if end > len(names) // 4 else lambda found, key: heapq.nsmallest(end, found, key)
        sign = -1 if descending else 1
        page = first(names, key=lambda name: (sign * sizes[name], name))[skip:end]
    return _topics_of(shards, page), sum(map(shards.counts, names))


def busiest_topics(shards: ShardSet, ranking: Ranking, sees: Sees, limit: int) -> list[tuple[ListedTopic, float]]:
    """The topics that most is published to now, with messages a second; those with much in them if nothing is."""
    known = ranking.topics()
    rates: Counter[str] = Counter()
    for shard in shards:
        with shard.lock:
            rates.update(shard.meters.traffic.rates())
    names = (name for name in known if sees(name))
    first = heapq.nsmallest(limit, names, lambda name: (-rates.get(name, 0.0), -known[name].messages, name))
    return [(listed, rates.get(listed.info.name, 0.0)) for listed in _topics_of(shards, first)]


def lagging_groups(shards: ShardSet, ranking: Ranking, sees: Sees, limit: int) -> list[ListedGroup]:
    """The groups that are furthest behind."""
    behind = (
        (-lag, topic, group)
        for topic, ranked in ranking.topics().items()
        for group, lag in ranked.lags.items()
        if lag and sees(topic)
    )
    return _groups_of(shards, [(topic, group) for _, topic, group in heapq.nsmallest(limit, behind)])


def list_groups(
    shards: ShardSet, sees: Sees, *, topic: str | None = None, search: str = "", skip: int = 0, limit: int = 100
) -> tuple[list[ListedGroup], int]:
    """A page of groups, by topic and name, and how many there are in all."""
    chosen = _matching(search)
    pairs = [pair for pair in _group_names(shards, sees, topic) if chosen(pair[1])]
    pairs.sort()
    return _groups_of(shards, pairs[skip : skip + limit]), _count(shards, pairs)


def show_everywhere(
    shards: ShardSet, sees: Sees, group: str, *, skip: int = 0, limit: int | None = None
) -> tuple[list[ListedGroup], int]:
    """A group in its topics, a page of them or all, and in how many it is."""
    pairs = sorted(pair for pair in _group_names(shards, sees, None) if pair[1] == group)
    if not pairs:
        raise GroupNotFound(f"no topic has a group {shown(group)}")
    return _groups_of(shards, pairs[skip : None if limit is None else skip + limit]), _count(shards, pairs)


def show_listed(shards: ShardSet, topic: str, group: str) -> ListedGroup:
    """A group of one topic."""
    name, slices = shards.slices(topic)
    for shard in slices:
        with shard.lock:
            shard.topic(name)
    found = [listed for shard in slices for listed in _groups_in_shard(shard, [(name, group)])]
    if not found:
        raise GroupNotFound(f"{name} has no group {shown(group)}")
    return _one_group(found)


def show_topic(shards: ShardSet, topic: str) -> ShownTopic:
    """Everything about a topic."""
    name, slices = shards.slices(topic)
    infos: list[TopicInfo] = []
    lanes: Counter[int] = Counter()
    found: set[str] = set()
    for shard in slices:
        with shard.lock:
            shard.check_not_closed()
            known = shard.topic(name)
            infos.append(topic_info(known))
            lanes.update(_lanes(shard.dispatcher.in_use.of(known)))
            found.update(_groups_in(known))
    groups = [listed for shard in slices for listed in _groups_in_shard(shard, [(name, one) for one in sorted(found)])]
    return ShownTopic(
        ListedTopic(merge_topics(infos), len(found)),
        [Lane(priority, lanes[priority]) for priority in sorted(lanes) if lanes[priority]],
        by(groups, _place_of, _one_group),
    )


def _matching(search: str) -> Callable[[str], bool]:
    """Whether a name has some text in it; or looks like a pattern with `*`, if it has one."""
    wanted = search.lower()
    if "*" in wanted:
        return lambda name: fnmatch.fnmatchcase(name.lower(), wanted)
    return lambda name: wanted in name.lower()


def _topic_names(shards: ShardSet) -> list[str]:
    """Every name once, however many shards have a slice of it."""
    found: set[str] = set()
    for shard in shards:
        with shard.lock:
            shard.check_not_closed()
            found.update(name for name, topic in shard.catalog.by_name.items() if shards.shows(shard, topic))
    return list(found)


def _topics_of(shards: ShardSet, names: Sequence[str]) -> list[ListedTopic]:
    """The topics of these names that are still there, in this order."""
    found: dict[str, list[TopicInfo]] = {}
    groups: dict[str, set[str]] = {}
    for shard in shards:
        for start in range(0, len(names), _TOPICS_AT_ONCE):
            with shard.lock:
                for name in names[start : start + _TOPICS_AT_ONCE]:
                    topic = shard.catalog.by_name.get(name)
                    if topic is not None and shards.shows(shard, topic):
                        found.setdefault(name, []).append(topic_info(topic))
                        groups.setdefault(name, set()).update(_groups_in(topic))
    return [ListedTopic(merge_topics(found[name]), len(groups[name])) for name in names if name in found]


def _one_group(slices: Sequence[ListedGroup]) -> ListedGroup:
    """What the slices of a topic tell of a group."""
    return ListedGroup(merge_groups([one.info for one in slices]), all(one.in_use for one in slices))


def _place_of(listed: ListedGroup) -> tuple[str, str]:
    return listed.info.topic, listed.info.name


def _groups_in(topic: Topic) -> Collection[str]:
    state = topic.partitions[0].state
    return () if state is None else state.groups


def _has(topic: Topic, group: str) -> bool:
    return all(partition.state is not None and group in partition.state.groups for partition in topic.partitions)


def _group_names(shards: ShardSet, sees: Sees, topic: str | None) -> list[tuple[str, str]]:
    """The topics and names of groups."""
    if topic is not None:
        topic_name, slices = shards.slices(topic)
        found: set[tuple[str, str]] = set()
        for shard in slices:
            with shard.lock:
                shard.check_not_closed()
                found.update((topic_name, name) for name in _groups_in(shard.topic(topic_name)))
        return list(found)
    found = set()
    for shard in shards:
        with shard.lock:
            shard.check_not_closed()
            names = [name for name, known in shard.catalog.by_name.items() if sees(name) and shards.shows(shard, known)]
        for start in range(0, len(names), _NAMES_AT_ONCE):
            with shard.lock:
                for name in names[start : start + _NAMES_AT_ONCE]:
                    known = shard.catalog.by_name.get(name)
                    if known is not None:
                        found.update((name, group) for group in _groups_in(known))
    return list(found)


def _count(shards: ShardSet, pairs: Sequence[tuple[str, str]]) -> int:
    return sum(shards.counts(topic) for topic, _ in pairs)


def _groups_of(shards: ShardSet, pairs: Sequence[tuple[str, str]]) -> list[ListedGroup]:
    """The groups of these topics and names that are still there, in this order."""
    found = [listed for shard in shards for listed in _groups_in_shard(shard, pairs)]
    places = {pair: place for place, pair in enumerate(pairs)}
    return sorted(by(found, _place_of, _one_group), key=lambda listed: places[_place_of(listed)])


def _groups_in_shard(shard: Shard, pairs: Sequence[tuple[str, str]]) -> list[ListedGroup]:
    """The same, of one shard."""
    found: list[ListedGroup] = []
    now_us = shard.clock.wall_us()
    for start in range(0, len(pairs), _TOPICS_AT_ONCE):
        with shard.lock:
            shard.check_not_closed()
            for topic_name, name in pairs[start : start + _TOPICS_AT_ONCE]:
                topic = shard.catalog.by_name.get(topic_name)
                if topic is not None and _has(topic, name):
                    found.append(_listed(topic, name, shard.dispatcher.in_use.groups(topic).get(name), now_us))
    return found


def _listed(topic: Topic, name: str, active: ActiveGroup | None, now_us: int) -> ListedGroup:
    """A group as it stands."""
    standing = standing_of(topic, name, active)
    oldest = [
        time_us
        for partition, floor, lag in zip(topic.partitions, standing.positions, standing.lags, strict=True)
        if lag and (time_us := published_us(partition.messages, floor)) is not None
    ]
    age_s = max(0, now_us - min(oldest)) / 1_000_000 if oldest else None
    return ListedGroup(group_info(topic, name, standing, active, age_s), standing.is_indexed)


def _lanes(delivery: TopicDispatcher | None) -> dict[int, int]:
    """What some group in use is not done with, by priority; nothing where none is in use."""
    counts: dict[int, int] = {}
    if delivery is None or not delivery.active_groups:
        return counts
    for number, index in enumerate(delivery.indexes):
        pending = Offsets()
        for active in delivery.active_groups.values():
            claims = active.group.claims[number]
            pending |= claims.progress.pending(claims.end())
        for priority, known in index.lanes.items():
            counts[priority] = counts.get(priority, 0) + known.intersection_cardinality(pending)
    return counts
