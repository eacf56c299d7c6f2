"""The shards of a broker on a disk in memory that fails, moved by hand: for the stateful tests and the simulation.

There is one, or as many as `pytest --shards` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.cluster import gathering
from penstock.cluster.directory import part_name
from penstock.cluster.shards import Shards, open_shards
from penstock.model.config import BrokerConfig
from penstock.model.placement import Place
from penstock.shard.shard import Shard
from penstock.shard.upkeep.retention import retain
from penstock.shard.upkeep.settling import Settler
from penstock.testing import FaultyStorage, VirtualClock
from tests.folding import assert_folded
from tests.shard.passing_time import keep_time


class MemoryShards:
    """All shards of a broker, without its threads; what is done to all is done to one after the other."""

    def __init__(self, seed: int, clock: VirtualClock, options: Mapping[str, Any]) -> None:
        self._clock, self._config = clock, BrokerConfig.parse(options)
        self.storage = FaultyStorage(seed)
        self.open()

    def open(self) -> None:
        """Open them, or open them again."""
        self._have(open_shards(self.storage, self._config, self._clock))

    def _have(self, opened: Shards) -> None:
        self.opened = opened
        self._settlers = [Settler(shard) for shard in opened]

    def __iter__(self) -> Iterator[Shard]:
        return iter(self.opened)

    def of(self, topic: str) -> Shard:
        return self.opened.of(topic)

    def beside(self, topic: str, topics: Iterable[str]) -> set[str]:
        """Those of some topics that have something in the shard that this one lives in."""
        return {name for name in topics if self.of(topic) in self.opened.slices(name)[1]}

    def contents(self) -> list[dict[str, bytearray]]:
        """All files of each shard."""
        storages = [shard.storage for shard in self]
        return [storage.contents for storage in storages if isinstance(storage, FaultyStorage)]

    # Ends and beginnings.

    def crash(self) -> None:
        """The power goes, and comes back."""
        self.storage = self.storage.crash()
        self.open()

    def cut_power_of(self, topic: str, operations: int) -> None:
        """Stop the disk of the shard of a topic after so many more changes, and have it commit."""
        storage = self.of(topic).storage
        assert isinstance(storage, FaultyStorage)
        storage.cut_power_after(operations)
        self.of(topic).flush()

    def crash_shard_of(self, topic: str) -> None:
        """As if another process had had this shard, and been killed: the others do not hear of it."""
        lost = self.of(topic)
        if len(self.opened) == 1:
            self.crash()
            return
        number = list(self).index(lost)
        name, place = part_name(number), Place(number, self.opened.count)
        self.storage.crash_part(name)
        self.opened.put(number, Shard(self.storage.part(name), self.opened.config, self.opened.clock, place))
        self._have(self.opened)

    def close(self) -> None:
        self.opened.close()

    # Upkeep.

    def flush(self) -> None:
        for shard in self:
            shard.flush()

    def settle(self, everything: bool) -> None:
        for settler in self._settlers:
            settler.settle(everything)

    def retain(self) -> None:
        for shard in self:
            retain(shard)

    def checkpoint(self) -> None:
        for shard in self:
            shard.checkpoint()

    def keep_time(self) -> None:
        keep_time(self)

    # What must hold.

    def check(self) -> None:
        """Each shard is what its disk says (F1), has the topics that belong to it, and all of them are shown."""
        for shard in self:
            assert_folded(shard)
            assert all(shard in self.opened.slices(name)[1] for name in shard.catalog.by_name)
        known = sorted({name for shard in self for name in shard.catalog.by_name})
        assert [info.name for info in gathering.topics(self.opened)] == known
