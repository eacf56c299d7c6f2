"""Which process has which shard, and where processes are reached: what clients and processes know of one another."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.model.placement import SHARDS_MAX, shard_of


class ShardPlace(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Who has a shard."""

    epoch: int = 0
    """Grows whenever it is opened: of two that say who has it, the one with the greater epoch is right."""
    process: int = -1
    """The number of the process; -1 if nobody has it."""


class ClusterMap(msgspec.Struct, frozen=True):
    """All shards of a broker, and the addresses of the processes that have them."""

    shards: Annotated[list[ShardPlace], msgspec.Meta(min_length=1, max_length=SHARDS_MAX)]
    """By number."""
    addresses: dict[int, str]
    """Of processes, `host:port` of the native protocol; without a host, that by which a client came."""

    def shard_of(self, topic: str) -> int:
        """The number of the shard that a topic lives in."""
        return shard_of(topic, len(self.shards))

    def address_of(self, shard: int) -> str | None:
        """Where the owner of a shard is reached; None if it has none."""
        return self.addresses.get(self.shards[shard].process)

    @property
    def is_complete(self) -> bool:
        """Whether every shard has an owner that can be reached."""
        return all(place.process in self.addresses for place in self.shards)

    def updated(self, newer: ClusterMap) -> ClusterMap:
        """What is known after another map was heard of: shard by shard, the greater epoch wins."""
        if len(newer.shards) != len(self.shards):
            return newer  # another directory is served there now
        places = [new if new.epoch >= old.epoch else old for old, new in zip(self.shards, newer.shards, strict=True)]
        return ClusterMap(places, {**self.addresses, **newer.addresses})
