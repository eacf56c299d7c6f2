"""What the broker tells of a topic."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.broker.topics import Partition, Topic, first_offset
from penstock.model.config import TopicConfig


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition, in numbers."""

    number: int
    first_offset: int
    """The lowest offset that can still be read."""
    end_offset: int
    """The offset that the next message gets."""
    segments: int
    segment_bytes: int
    journal_bytes: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic, its options and its partitions."""

    name: str
    config: TopicConfig
    partitions: tuple[PartitionInfo, ...]


def topic_info(topic: Topic) -> TopicInfo:
    """The numbers of now; under the state lock."""
    return TopicInfo(topic.name, topic.config, tuple(map(_partition_info, topic.partitions)))


def _partition_info(partition: Partition) -> PartitionInfo:
    log = partition.messages
    live = [segment for segment in log.segments if not segment.archived]
    return PartitionInfo(
        log.partition,
        first_offset(log),
        log.committed_end,
        len(live),
        sum(segment.size_bytes for segment in live),
        log.live_bytes,
    )
