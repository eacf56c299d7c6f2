"""What a broker tells of itself, its topics and its groups, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.config import TopicConfig
from penstock.model.group_settings import GroupSettings


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


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """One consumer of a group."""

    name: str
    mode: str
    in_flight: int
    partitions: tuple[int, ...]
    """What it is assigned, in `assigned` mode."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group of a topic, in numbers; they add up: `published` is the sum of what became of the messages."""

    topic: str
    name: str
    published: int
    """Messages since the group's beginning."""
    acked: int
    ready: int
    leased: int
    delayed: int
    retrying: int
    """Failed, and waiting to be tried again."""
    dead: int
    lapsed: int
    """Their time to live ended; those that are about to be counted so are among them."""
    withdrawn: int
    """Cancelled, purged or redriven for everybody."""
    skipped: int
    lost: int
    """Removed by retention before they were acked."""
    lag: int
    """Messages that are not done: ready, leased, delayed or retrying."""
    oldest_unacked_s: float | None
    """How long ago the oldest message that is not done was published."""
    positions: tuple[int, ...]
    """The first offset that is not done, partition by partition."""
    members: tuple[MemberInfo, ...]
    kind: str = "consumers"
    """`checkpoint`: it shows how far a reader is that keeps its own position, such as a query of Spark."""
    settings: GroupSettings = GroupSettings()


@dataclass
class RecoveryReport:
    """What recovery found; `broker.recovery` shows it."""

    journal_files: int = 0
    journal_bytes: int = 0
    groups: int = 0
    messages: int = 0
    torn_bytes: int = 0
    """The length of the unacknowledged write that was cut off."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker at one instant."""

    broker_id: str
    """Its identity, in hexadecimal; the same for as long as its directory lives."""
    epoch: int
    """How often it has been opened."""
    version: str
    directory: str | None
    """Where its data is; None where that is no directory of its machine."""
    sync: str
    """When a publish is acknowledged: the option `sync`."""
    uptime_s: float
    topics: int
    partitions: int
    groups: int
    journal_bytes: int
    journal_files: int
    segments: int
    """Of messages and of events, without those in archives."""
    segment_bytes: int
    unwritten_bytes: int
    """What waits for the disk."""
    frozen: str | None
    """Why nothing can be written any more; None: it can."""
    recovery: RecoveryReport
