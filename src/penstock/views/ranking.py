"""The sizes of all topics and the lags of their groups, for lists that are sorted by size or backlog.

One pass reads every topic, some at a time. Its result is used for a while, which is longer if the pass takes longer:
however many users watch, and however many topics there are, this takes a small fixed share of one core.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.log.partition_log import first_offset
from penstock.log.topics import Partition
from penstock.shard.shard import Shard
from penstock.views.shard_set import ShardSet

_PARTITIONS_AT_ONCE = 100
_SHARE = 0.01  # of the time that passes may take


@dataclass(slots=True)
class RankedTopic:
    """The size of a topic, and the lags of its groups."""

    messages: int = 0
    bytes: int = 0
    lags: dict[str, int] = field(default_factory=dict)
    """By group."""

    @property
    def backlog(self) -> int:
        """The lag of all its groups."""
        return sum(self.lags.values())


class Ranking:
    """The sizes and lags of all topics, as fresh as the cost of a pass allows."""

    def __init__(self, shards: ShardSet) -> None:
        self._shards = shards
        self._clock = shards.clock
        self._looking = threading.Lock()
        self._topics: dict[str, RankedTopic] = {}
        self._fresh_until_s = float("-inf")

    def topics(self) -> Mapping[str, RankedTopic]:
        """Every topic by its name."""
        with self._looking:
            self._look()
            return self._topics

    def _look(self) -> None:
        started_s = self._clock.monotonic_s()
        if started_s < self._fresh_until_s:
            return
        found: dict[str, RankedTopic] = {}
        for shard in self._shards:
            _look_at(shard, self._shards, found)
        self._topics = found
        ended_s = self._clock.monotonic_s()
        self._fresh_until_s = ended_s + (ended_s - started_s) / _SHARE


def _look_at(shard: Shard, shards: ShardSet, found: dict[str, RankedTopic]) -> None:
    """Add the topics of a shard to what other slices of them have."""
    with shard.lock:
        known = [topic for topic in shard.catalog.by_name.values() if topic.committed and not topic.deleting]
        topics = [topic for topic in known if shards.shows(shard, topic)]
    for topic in topics:
        found.setdefault(topic.name, RankedTopic())
    pairs = [(found[topic.name], partition) for topic in topics for partition in topic.partitions]
    for start in range(0, len(pairs), _PARTITIONS_AT_ONCE):
        with shard.lock:
            for ranked, partition in pairs[start : start + _PARTITIONS_AT_ONCE]:
                _add(ranked, partition)


def _add(ranked: RankedTopic, partition: Partition) -> None:
    """Add what one partition has."""
    log = partition.messages
    end = log.committed_end
    ranked.messages += end - first_offset(log)
    ranked.bytes += log.live_bytes
    for segment in log.segments:
        if not segment.archived:
            ranked.bytes += segment.size_bytes
    if partition.state is not None:
        lags = ranked.lags
        for name, progress in partition.state.groups.items():
            lags[name] = lags.get(name, 0) + progress.backlog(end)
