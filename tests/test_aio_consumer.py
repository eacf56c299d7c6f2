"""The asynchronous consumer does what the other one does."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

import penstock
import penstock.aio
from penstock.aio.consumer import AsyncConsumer, AsyncDelivery
from penstock.testing import MemoryStorage

Work = Callable[[penstock.aio.AsyncBroker], Awaitable[None]]


def run(work: Work) -> None:
    async def main() -> None:
        async with penstock.aio.open(storage=MemoryStorage()) as broker:
            await asyncio.wait_for(work(broker), 60)

    asyncio.run(main())


def public(kind: type) -> dict[str, list[str]]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: list(inspect.signature(f).parameters) for name, f in found if not name.startswith("_")}


def test_both_faces_have_the_same_operations() -> None:
    assert public(penstock.aio.AsyncBroker) == public(penstock.Broker)
    assert public(AsyncConsumer) == public(penstock.Consumer)
    assert public(AsyncDelivery) == public(penstock.Delivery)


def test_receive_and_every_way_to_settle() -> None:
    async def work(broker: penstock.aio.AsyncBroker) -> None:
        await broker.publish_many("t", [f"{n}" for n in range(6)])
        async with await broker.consumer("t", "g", name="me") as consumer:
            assert (consumer.name, consumer.group) == ("me", "g")
            messages = await consumer.receive(10)
            await messages[0].ack()
            await messages[0].ack()
            await messages[1].extend(60)
            await messages[1].release()
            await messages[2].fail("busy", delay=0)
            await messages[3].kill("no")
            await consumer.ack(messages[4:5])
            await consumer.heartbeat()
            again = await consumer.receive()
            assert [(m.offset, m.deliveries, m.failures) for m in again] == [(1, 2, 0), (2, 2, 1)]
            with pytest.raises(penstock.LeaseLost) as refused:
                await consumer.ack([*messages[1:3], *again])
            assert refused.value.ids == (messages[1].id, messages[2].id)
        info = await broker.group("t", "g")
        assert (info.acked, info.dead, info.ready, info.leased) == (4, 1, 1, 0)
        with pytest.raises(penstock.BrokerClosed):
            await consumer.receive()

    run(work)


def test_a_loop_ends_when_the_consumer_is_closed() -> None:
    async def work(broker: penstock.aio.AsyncBroker) -> None:
        await broker.publish_many("t", [f"{n}" for n in range(150)])
        seen = []
        consumer = await broker.consumer("t", "g")
        async for message in consumer:
            await message.ack()
            seen.append(message.offset)
            if len(seen) == 150:
                await consumer.close()
        assert seen == list(range(150))

    run(work)


def test_autoack_acks_what_is_handed_out_and_nothing_else() -> None:
    async def work(broker: penstock.aio.AsyncBroker) -> None:
        await broker.publish_many("t", [f"{n}" for n in range(10)])
        async with await broker.consumer("t", "g", autoack=True) as consumer:
            assert (await anext(consumer)).offset == 0
            assert len(await consumer.receive(3)) == 3
        assert (await broker.group("t", "g")).acked == 4

    run(work)


def test_many_tasks_share_a_consumer() -> None:
    async def work(broker: penstock.aio.AsyncBroker) -> None:
        consumer = await broker.consumer(["a", "b"], "g")
        seen: list[penstock.MessageId] = []

        async def take() -> None:
            while received := await consumer.receive(2, wait=0.5):
                for message in received:
                    await message.ack()
                    seen.append(message.id)

        tasks = [asyncio.create_task(take()) for _ in range(32)]
        for n in range(100):
            await broker.publish("ab"[n % 2], f"{n}")
        await asyncio.gather(*tasks)
        assert len(seen) == len(set(seen)) == 100
        await consumer.close()

    run(work)


def test_a_receive_that_is_cancelled_gives_back_what_it_was_given() -> None:
    async def work(broker: penstock.aio.AsyncBroker) -> None:
        consumer = await broker.consumer("t", "g")
        acked = 0
        for n in range(100):
            receiving = asyncio.create_task(consumer.receive(1, wait=20))
            await asyncio.sleep(0)
            publishing = asyncio.create_task(broker.publish("t", f"{n}"))
            await asyncio.sleep(0.0003 * (n % 10))
            receiving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                received = await receiving
                await consumer.ack(received)
                acked += len(received)
            await publishing
        while received := await consumer.receive(100, wait=0.5):
            assert all(message.failures == 0 for message in received)
            await consumer.ack(received)
            acked += len(received)
        assert acked == (await broker.group("t", "g")).acked == 100

    run(work)


def test_those_who_wait_hear_of_a_deleted_topic_and_of_the_end() -> None:
    async def work(broker: penstock.aio.AsyncBroker) -> None:
        one, two, three = [await broker.consumer(topic, "g") for topic in "abc"]
        waiting = [asyncio.create_task(consumer.receive(1, wait=20)) for consumer in (one, two, three)]
        await asyncio.sleep(0)
        await broker.delete_topic("a")
        with pytest.raises(penstock.TopicNotFound):
            await waiting[0]
        await two.close()
        assert await waiting[1] == []
        await broker.close()
        with pytest.raises(penstock.BrokerClosed):
            await waiting[2]

    run(work)


def test_settled_messages_are_received_too() -> None:
    async def work(broker: penstock.aio.AsyncBroker) -> None:
        await broker.publish_many("t", [penstock.Message(f"{n}", f"{n}", priority=n % 3) for n in range(300)])
        await broker.settle()
        async with await broker.consumer("t", "g") as consumer:
            seen = [message for _ in range(30) for message in await consumer.receive(10)]
            assert sorted(int(message.value) for message in seen) == list(range(300))
            assert [message.priority for message in seen] == sorted(message.priority for message in seen)
            assert all(message.key == message.value for message in seen)

    run(work)


def test_the_administration_can_be_awaited() -> None:
    async def work(broker: penstock.aio.AsyncBroker) -> None:
        await broker.create_group("t", "g", max_in_flight=5)
        ids = [await broker.publish("t", f"{n}", delay=None if n < 3 else 600) for n in range(5)]
        assert [one.id for one in await broker.delayed("t")] == ids[3:]
        assert await broker.cancel_delayed(ids[3])
        assert await broker.reschedule_delayed(ids[4], deliver_at=datetime(2020, 1, 1, tzinfo=UTC)) is not None
        async with await broker.consumer("t", "g") as consumer:
            messages = await consumer.receive(2)
            await consumer.kill(messages, "no")
        assert len(await broker.dead_letters("t")) == 2
        assert (await broker.dead_letter("t.dlq/0/0")).origin == ids[0]
        assert (await broker.redrive("t", filter=lambda letter: letter.value == b"0")).redriven == 1
        assert await broker.purge_dead_letters("t") == 1
        await broker.seek_group("t", "g", "latest")
        assert [info.name for info in await broker.groups("t")] == ["g"]
        seen: list[penstock.StoredMessage] = []
        assert await broker.replay("t", seen.append, to_offset=2) == len(seen) == 2
        assert (await broker.trace(ids[0])).lines[-1].kind == "redriven"
        await broker.delete_group("t", "g")
        assert (await broker.schedule("s", "@daily", "t", "x")).name == "s"
        assert (await broker.pause_schedule("s")).paused
        assert not (await broker.resume_schedule("s")).paused
        assert [schedule.name for schedule in await broker.schedules()] == ["s"]
        await broker.remove_schedule("s")

    run(work)
