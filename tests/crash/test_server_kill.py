"""A server is killed again and again while clients publish and consume; the clients live on, and keep the books."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import AsyncClient, Client
from penstock.model.errors import ConnectionLost
from tests.server.harness import Child, run, soon

OPTIONS = ("--sync", "always")


class Books:
    """What was acknowledged: by the server to publishers, and by consumers to the server."""

    def __init__(self) -> None:
        self.published: dict[str, penstock.MessageId] = {}
        self.confirmed: set[penstock.MessageId] = set()
        self.unsure: set[penstock.MessageId] = set()
        self.received = 0

    def take(self, message: Any) -> None:
        """A message came."""
        assert message.id not in self.confirmed, f"{message.id} was acked, and came again"
        self.received += 1

    def grew(self, published: int, confirmed: int) -> bool:
        """Whether much has happened since."""
        return len(self.published) >= published + 200 and len(self.confirmed) >= confirmed + 20

    def check(self, stored: list[penstock.StoredMessage]) -> None:
        """Nothing acknowledged is missing, nothing is there twice."""
        values = {message.id: message.value.decode() for message in stored}
        doubled = [value for value, count in Counter(values.values()).items() if count > 1]
        assert not doubled, doubled[:5]
        missing = {value for value, identity in self.published.items() if values.get(identity) != value}
        assert not missing, sorted(missing)[:5]
        assert set(values.values()) == set(self.published), "every publish was repeated until it was answered"


@pytest.mark.crash
def test_L1_L4_Q2_clients_live_on_through_kills_and_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path) -> None:
    chance = random.Random(7)
    books = Books()

    async def main(child: Child) -> None:
        async with AsyncClient(child.address, batch_size=50) as client:
            await client.create_topic("t", partitions=2)
            stopping = asyncio.Event()

            async def publish(name: str) -> None:
                number = 0
                while not stopping.is_set():
                    value = f"{name}.{number}"
                    books.published[value] = await client.publish("t", value)
                    number += 1

            async def publish_soon(name: str) -> None:
                reports: dict[str, asyncio.Future[penstock.MessageId]] = {}
                number = 0
                while not stopping.is_set():
                    value = f"{name}.{number}"
                    reports[value] = await client.publish_soon("t", value)
                    number += 1
                    if number % 100 == 0:
                        await client.flush()
                await client.flush()
                books.published |= {value: report.result() for value, report in reports.items()}

            async def publish_many(name: str) -> None:
                number = 0
                while not stopping.is_set():
                    values = [f"{name}.{number}.{n}" for n in range(20)]
                    messages = [penstock.Message(value, key=value[-1]) for value in values]
                    books.published |= dict(zip(values, await client.publish_many("t", messages), strict=True))
                    number += 1
                    await asyncio.sleep(0.01)

            async def settle(consumer: Any, messages: list[Any]) -> None:
                try:
                    await consumer.ack(messages)
                except ConnectionLost:
                    books.unsure |= {message.id for message in messages}
                except penstock.LeaseLost as lost:
                    books.confirmed |= {message.id for message in messages} - set(lost.ids)
                else:
                    books.confirmed |= {message.id for message in messages}

            async def receive(consumer: Any) -> None:
                while not stopping.is_set():
                    messages = await consumer.receive(20, wait=0.5)
                    for message in messages:
                        books.take(message)
                    await settle(consumer, messages)

            async def iterate(consumer: Any) -> None:
                async for message in consumer:
                    books.take(message)
                    await settle(consumer, [message])

            consumers = [await client.consumer("t", "g", visibility_timeout=5) for _ in range(4)]
            publishers = [publish, publish, publish_soon, publish_many]
            tasks = [asyncio.create_task(work(f"{n}")) for n, work in enumerate(publishers)]
            tasks += [asyncio.create_task(receive(consumer)) for consumer in consumers[:2]]
            loops = [asyncio.create_task(iterate(consumer)) for consumer in consumers[2:]]
            for _ in range(4):
                before = len(books.published), len(books.confirmed)
                await soon(partial(books.grew, *before), "progress")
                await asyncio.sleep(chance.random() / 10)
                child.kill()
                await asyncio.to_thread(child.start)
            stopping.set()
            await asyncio.gather(*tasks)
            assert not any(loop.done() for loop in loops)
            for consumer in consumers:
                await consumer.close()
            await asyncio.gather(*loops)
            stored = [message async for message in client.read("t")]
            books.check(stored)
            async with await client.consumer("t", "g", max_in_flight=100_000) as consumer:
                left: list[Any] = []
                while received := await consumer.receive(10_000, wait=0.3):
                    for message in received:
                        books.take(message)
                    await consumer.ack(received)
                    left += received
            assert len({message.id for message in left}) == len(left)
            everything = {message.id for message in stored}
            assert {message.id for message in left} | books.confirmed | books.unsure >= everything
            assert (await client.group("t", "g")).lag == 0

    with Child(tmp_path / "data", *OPTIONS) as child:
        run(main(child))
    assert len(books.published) > 1000
    assert books.received > 100


@pytest.mark.crash
def test_L1_L4_Q4_plain_clients_live_on_through_kills_too(tmp_path: Path) -> None:
    books = Books()
    stopping = threading.Event()
    failures: list[BaseException] = []

    def work(act: Any, *arguments: Any) -> None:
        try:
            number = 0
            while not stopping.is_set():
                act(*arguments, number)
                number += 1
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)
            stopping.set()

    def publish(client: Client, name: str, number: int) -> None:
        books.published[f"{name}.{number}"] = client.publish("t", f"{name}.{number}")

    def publish_many(client: Client, name: str, number: int) -> None:
        values = [f"{name}.{number}.{n}" for n in range(10)]
        ids = client.publish_many("t", values)
        for value, identity in zip(values, ids, strict=True):
            books.published[value] = identity

    def consume(consumer: Any, _: int) -> None:
        for message in consumer.receive(10, wait=0.3):
            books.take(message)
            try:
                message.ack()
            except (ConnectionLost, penstock.LeaseLost):
                books.unsure.add(message.id)
            else:
                books.confirmed.add(message.id)

    with Child(tmp_path / "data") as child, Client(child.address) as client:
        consumer = client.consumer("t", "g", name="mine")
        books.published |= dict(zip("abc", client.publish_many("t", ["a", "b", "c"]), strict=True))
        held = consumer.receive(3)
        held[0].ack()
        books.confirmed.add(held[0].id)
        threads = [
            *(threading.Thread(target=work, args=(publish, client, f"p{n}")) for n in range(3)),
            threading.Thread(target=work, args=(publish_many, client, "b")),
            threading.Thread(target=work, args=(consume, consumer)),
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                before, deadline_s = len(books.published), time.monotonic() + 30
                while len(books.published) < before + 100 and not failures:
                    assert time.monotonic() < deadline_s
                    time.sleep(0.01)
                child.kill()
                child.start()
        finally:
            time.sleep(0.3)
            stopping.set()
            for thread in threads:
                thread.join(60)
        assert not failures, failures[0]
        books.check(list(client.read("t")))
        assert {held[1].id, held[2].id} <= books.confirmed, "what was held at a kill comes again"
        with pytest.raises(penstock.LeaseLost) as lost:
            consumer.ack(held)
        assert lost.value.ids == tuple(message.id for message in held), "and cannot be acked after it"
