"""What a change of the state means to others: the fold tells it, and meters, indexes, waiters and timers listen."""

from __future__ import annotations

from typing import NamedTuple

from penstock.log.records import Events, Messages, StagedRecord
from penstock.log.topics import Partition, Topic
from penstock.model.events import Event


class Published(NamedTuple):
    """New messages of a partition are committed."""

    topic: Topic
    partition: Partition
    record: Messages
    size_bytes: int


class Happened(NamedTuple):
    """An event is committed, and the state has taken it in."""

    topic: Topic
    partition: Partition
    event: Event


class Logged(NamedTuple):
    """New events of a partition are committed: all that `Happened` tells one by one."""

    topic: Topic
    partition: Partition
    record: Events


class TopicChanged(NamedTuple):
    """A topic was made, or has other options now."""

    topic: Topic


class TopicDeleted(NamedTuple):
    """A topic is gone."""

    topic: Topic


class StepPublished(NamedTuple):
    """A staged publish is one step further."""

    step: StagedRecord


class EventRefused(NamedTuple):
    """An event could not be written: what was done for it in advance is to be undone."""

    topic: Topic
    partition: Partition
    event: Event


class MessagesRefused(NamedTuple):
    """Messages could not be written; their offsets are free again."""

    topic: Topic


Effect = Published | Happened | Logged | TopicChanged | TopicDeleted | StepPublished | EventRefused | MessagesRefused
