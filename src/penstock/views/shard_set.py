"""The shards that are asked: all of a broker, as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.log.topics import Topic
    from penstock.model.clock import ShardClock
    from penstock.model.message import MessageId
    from penstock.shard.shard import Shard


class ShardSet(Protocol):
    """Some shards, and the way to those that a topic lives in."""

    def __iter__(self) -> Iterator[Shard]: ...

    clock: ShardClock

    @property
    def first(self) -> Shard:
        """The one that speaks for all where all are alike."""

    def slices(self, topic: str) -> tuple[str, Sequence[Shard]]:
        """The name of a topic, and the shards that have something of it: one unless it is spread."""

    def of_message(self, identity: MessageId) -> Shard:
        """The shard that a message is in."""

    def counts(self, topic: str) -> bool:
        """Whether a topic is counted among these: of the shards of several processes, where its home is."""

    def shows(self, shard: Shard, topic: Topic) -> bool:
        """Whether what a shard has of a topic is part of what is told of it."""
