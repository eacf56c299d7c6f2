"""How delivery goes in a whole broker, in numbers: lanes, delays, retries, and who owns what."""

from __future__ import annotations

from datetime import datetime

import msgspec


class LaneStats(msgspec.Struct):
    """What is ready in one lane."""

    priority: int
    name: str | None
    """What the priority is called, if it has a name."""
    ready: int


class TopicLanes(msgspec.Struct):
    """What is ready in the lanes of a topic, for all of its groups together."""

    topic: str
    policy: str
    """`strict`: the lowest lane first; `weighted`: each by its weight."""
    lanes: list[LaneStats]


class PriorityStats(msgspec.Struct):
    """What is ready, by priority; a message that is ready for two groups counts twice."""

    lanes: list[LaneStats]
    topics: list[TopicLanes]
    """Those with the most ready first, and at most 1000 of them."""
    groups: int
    """How many groups were counted."""
    idle_groups: int
    """Groups that nobody has used since the broker was opened: what is ready for them is not known."""


class TopicDelays(msgspec.Struct):
    """What is not due yet in a topic."""

    topic: str
    delayed: int


class DelayStats(msgspec.Struct):
    """What is not due yet, and how late delayed messages were made ready since the broker was opened."""

    delayed: int = 0
    topics: list[TopicDelays] = []
    """Those with the most delayed messages first, and at most 1000 of them."""
    idle_topics: int = 0
    """Topics that nobody has consumed since the broker was opened: what is delayed in them is not known."""
    fallen_due: int = 0
    lateness_mean_s: float | None = None
    lateness_p50_s: float | None = None
    lateness_p99_s: float | None = None
    lateness_counts: list[int] = []
    """How many became ready so late, by the bounds of the metric `penstock_due_lateness_seconds`."""


class ReliabilityStats(msgspec.Struct):
    """What became of deliveries since the broker was opened, and what is under way now."""

    since: datetime
    published: int
    delivered: int
    redelivered: int
    """Of those delivered: not for the first time."""
    acked: int
    failed: int
    expired: int
    """Their lease ran out."""
    released: int
    dead: int
    lapsed: int
    """Their time to live ended."""
    redriven: int
    groups: int
    lag: int
    """Messages that are not done, in all groups."""
    leased: int
    retrying: int
    """Failed, and waiting to be tried again."""
    oldest_unacked_s: float | None
    """How long ago the oldest message that is not done was published."""


class GroupRebalances(msgspec.Struct):
    """A group in which each partition belongs to one member."""

    topic: str
    group: str
    members: int
    rebalances: int
    """Changes of who is a member."""
    moves: int
    """How often a partition was given to a member."""
    expired: int
    """Members that were not heard of for too long."""
    revoking: int
    """Partitions whose owner finishes what it holds before the next one gets them."""


class RebalanceStats(msgspec.Struct):
    """All groups in `assigned` mode, since they are in use."""

    groups: list[GroupRebalances]
    """Those with the most rebalances first, and at most 1000 of them."""
    rebalances: int
    moves: int
    expired: int
    members: int
