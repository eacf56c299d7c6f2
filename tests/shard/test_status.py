"""The broker at one instant: who it is, how much it holds, whether it can write."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
import penstock.aio
from penstock.shard.shard import Shard
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from penstock.views import info


def test_a_new_broker_holds_nothing(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as broker:
        status = broker.status()
        assert status.broker_id == broker.shard.broker_id.hex()
        assert (status.epoch, status.version, status.sync) == (1, penstock.__version__, "always")
        assert status.directory == str(tmp_path / "data")
        assert (status.topics, status.partitions, status.groups, status.segments) == (0, 0, 0, 0)
        assert (status.segment_bytes, status.unwritten_bytes, status.frozen) == (0, 0, None)
        assert status.recovery == broker.recovery
    with penstock.open(tmp_path / "data") as broker:
        again = broker.status()
        assert (again.broker_id, again.epoch) == (status.broker_id, 2)


def test_it_counts_topics_groups_and_files(tmp_path: Path) -> None:
    with penstock.open(tmp_path, sync="never") as broker:
        broker.create_topic("wide", partitions=3)
        broker.publish_many("wide", [penstock.Message("x" * 100, partition=n % 3) for n in range(30)])
        broker.publish("narrow", "x")
        for group in ("a", "b"):
            broker.create_group("wide", group)
        broker.create_group("narrow", "a")
        before = broker.status()
        assert (before.topics, before.partitions, before.groups, before.sync) == (2, 4, 3, "never")
        assert (before.segments, before.journal_files) == (0, 1)
        assert before.journal_bytes == broker.shard.journal.position()[1] > 3000
        broker.settle()
        after = broker.status()
        files = list(tmp_path.rglob("*.parquet"))
        assert after.segments == len(files) == 8  # the messages and the events of four partitions
        assert after.segment_bytes == sum(file.stat().st_size for file in files)
        assert after.journal_files == len(list(tmp_path.glob("journal/*.journal")))
        broker.delete_topic("wide")
        assert (broker.status().topics, broker.status().groups, broker.status().segments) == (1, 1, 2)


def test_what_is_archived_does_not_count(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as broker:
        broker.create_topic("t", archive="../cold", retention_bytes=0)
        broker.publish("t", "x")
        broker.settle()
        assert broker.status().segments == 1
        broker.retain()
        assert (broker.status().segments, broker.status().segment_bytes) == (0, 0)


def test_more_topics_than_are_counted_at_once_are_all_counted() -> None:
    with penstock.open(storage=MemoryStorage()) as broker:
        for number in range(1203):
            broker.shard.publish(f"topic-{number}", penstock.Message(b"x"))
        status = broker.status()
        assert (status.topics, status.partitions, status.directory) == (1203, 1203, None)


def test_it_tells_for_how_long_it_runs_and_what_waits_for_the_disk(
    shard_on: Callable[..., Shard], clock: VirtualClock
) -> None:
    shard = shard_on(MemoryStorage())
    clock.advance(90)
    shard.publish("t", penstock.Message(bytes(5000)))
    status = info.status(shard)
    assert status.uptime_s == 90
    assert 5000 <= status.unwritten_bytes < 6000
    shard.journal.flush()
    assert info.status(shard).unwritten_bytes == 0


def test_R5_it_tells_why_writes_are_frozen_and_a_closed_broker_tells_nothing(clock: VirtualClock) -> None:
    storage = FaultyStorage()
    broker = penstock.open(storage=storage, clock=clock, min_free_bytes=0)
    storage.fail("sync", errno.EIO, always=True, name_contains="journal")
    with pytest.raises(penstock.StorageFailed):
        broker.publish("t", "x")
    assert "writes are frozen" in (broker.status().frozen or "")
    broker.close()
    with pytest.raises(penstock.BrokerClosed):
        broker.status()


def test_the_asynchronous_face_tells_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with penstock.aio.open(tmp_path) as broker:
            await broker.create_topic("t", partitions=2)
            changed = await broker.configure_topic("t", max_deliveries=9)
            assert changed.config.max_deliveries == 9
            status = await broker.status()
            assert (status.topics, status.partitions, status.epoch) == (1, 2, 1)
            with pytest.raises(penstock.InvalidArgument, match="partitions: it is 2 and cannot be changed"):
                await broker.configure_topic("t", partitions=3)

    asyncio.run(main())
