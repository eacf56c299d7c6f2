"""What a change of the state means to others: the fold tells it, and meters, indexes, waiters and timers listen."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from penstock.delivery.offsets import Offsets
from penstock.log.records import Messages
from penstock.log.topics import Partition, Topic
from penstock.model.events import Event


class Published(msgspec.Struct, frozen=True, gc=False):
    """New messages of a partition are committed; there are more of these than of all others, so it is made quickly."""

    topic: Topic
    partition: Partition
    record: Messages
    size_bytes: int


class Happened(NamedTuple):
    """New events of a partition are committed, and the state has taken them in."""

    topic: Topic
    partition: Partition
    events: list[Event]
    """Neighbouring acks of a group are one."""
    base: int
    """The number of the first one in the log of events."""


class TopicChanged(NamedTuple):
    """A topic was made, or has other options now."""

    topic: Topic


class TopicDeleted(NamedTuple):
    """A topic is gone."""

    topic: Topic


class SchedulesWritten(NamedTuple):
    """Messages of the topic of schedules are committed, and in the table."""

    offsets: range


class SchedulesWithdrawn(NamedTuple):
    """Messages of the topic of schedules are withdrawn, and not in the table any more."""

    offsets: Offsets


class SchedulesRefused(NamedTuple):
    """A change of schedules could not be written, nor any that came after it."""


class EventRefused(NamedTuple):
    """An event could not be written: what was done for it in advance is to be undone."""

    topic: Topic
    partition: Partition
    event: Event


Effect = (
    Published
    | Happened
    | TopicChanged
    | TopicDeleted
    | SchedulesWritten
    | SchedulesWithdrawn
    | SchedulesRefused
    | EventRefused
)
