"""The asynchronous face does what the synchronous one does."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
import penstock.aio


def test_tasks_that_publish_at_once_share_commits(tmp_path: Path) -> None:
    async def main() -> None:
        async with penstock.aio.open(tmp_path) as broker:
            await broker.publish("t", "first")
            before = broker._broker.shard.journal.commits
            ids = await asyncio.gather(*(broker.publish("t", f"{n}") for n in range(200)))
            assert sorted(identity.offset for identity in ids) == list(range(1, 201))
            assert broker._broker.shard.journal.commits - before < 20
            assert len([message async for message in broker.read("t")]) == 201

    asyncio.run(main())


def test_everything_can_be_awaited(tmp_path: Path) -> None:
    async def main() -> None:
        async with penstock.aio.open(tmp_path) as broker:
            await broker.create_topic("t", partitions=2)
            ids = await broker.publish_many("t", [f"{n}" for n in range(2500)], producer="p", sequence=1)
            assert list(
                await broker.publish_many("t", [f"{n}" for n in range(2500)], producer="p", sequence=1)
            ) == list(ids)
            await broker.settle()
            assert [m.value async for m in broker.read("t", offset=2, limit=3)] == [b"2", b"3", b"4"]
            table = pa.Table.from_batches([batch async for batch in broker.read_arrow("t")])
            assert len(table) == 2500
            partition = ids[0].partition
            assert await broker.offset_at("t", 0, partition) == 0
            assert [event async for event in broker.events("t")] == []
            assert await broker.retain() == 0
            assert [topic.name for topic in await broker.topics()] == ["t"]
            assert broker.recovery.messages == 0
            await broker.delete_topic("t")
            assert await broker.topics() == []

    asyncio.run(main())


def test_errors_reach_the_task_that_caused_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with penstock.aio.open(tmp_path) as broker:
            results = await asyncio.gather(
                broker.publish("t", "good"), broker.publish("bad name", "x"), return_exceptions=True
            )
            assert isinstance(results[0], penstock.MessageId)
            assert isinstance(results[1], penstock.InvalidArgument)

    asyncio.run(main())


def test_a_cancelled_publisher_disturbs_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with penstock.aio.open(tmp_path) as broker:
            tasks = [asyncio.create_task(broker.publish("t", f"{n}")) for n in range(50)]
            await asyncio.sleep(0)
            tasks[7].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(result, penstock.MessageId) for result in results) >= 49
            assert len([message async for message in broker.read("t")]) == 50

    asyncio.run(main())


def test_a_broker_that_was_not_entered_says_how_to_open_it(tmp_path: Path) -> None:
    broker = penstock.aio.open(tmp_path)
    with pytest.raises(penstock.BrokerClosed, match="async with"):
        asyncio.run(broker.topics())


def test_both_faces_have_the_same_operations_with_the_same_arguments() -> None:
    def operations(face: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(face)
            if not name.startswith("_") and callable(member)
        }

    assert operations(penstock.aio.AsyncBroker) == operations(penstock.Broker)
