"""The shards that are asked: all of a broker, as one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.model.clock import ShardClock
    from penstock.shard.shard import Shard


class ShardSet(Protocol):
    """Some shards, and the way to the one that a topic lives in."""

    def __iter__(self) -> Iterator[Shard]: ...

    clock: ShardClock

    @property
    def first(self) -> Shard:
        """The one that speaks for all where all are alike."""

    def of(self, topic: str) -> Shard:
        """The shard that a topic lives in."""

    def is_home(self, shard: Shard, topic: str) -> bool:
        """Whether a topic lives in a shard."""
