"""What the tests of staged publishing share."""

from __future__ import annotations

from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.testing import MemoryStorage


def stage(shard: Shard, name: str, *values: str, topic: str = "t") -> None:
    """A sealed stage."""
    shard.stages.stage_many(name, topic, list(values))
    assert shard.stages.seal_stage(name) == len(values)


def values(shard: Shard, topic: str = "t") -> list[str]:
    found = shard.catalog.by_name.get(topic)
    if found is None:
        return []
    readers = [LogReader(shard, partition.messages) for partition in found.partitions]
    return [message.value.decode() for reader in readers for message in reader.messages(Window())]


def files(storage: MemoryStorage) -> list[str]:
    return storage.list("staging")


def publish(shard: Shard, *stages: str, sequence: int = 1, producer: str = "q") -> int:
    return shard.staging.publish_staged(stages, producer, sequence)
