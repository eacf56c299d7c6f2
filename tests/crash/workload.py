"""Clients that publish, delay, cancel, consume, fail, kill and redrive in every shard, and keep the books."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import penstock
from penstock.client import AsyncClient
from penstock.model.errors import ConnectionLost
from penstock.model.placement import shard_of
from penstock.model.processes import ClusterInfo
from tests.crash.books import ACTS, MAX_FAILURES, Books, check_sum, is_cancelled

SHARDS = 4
TOPICS = [next(f"t-{n}" for n in range(1000) if shard_of(f"t-{n}", SHARDS) == shard) for shard in range(SHARDS)]
GROUP = "g"
_FOR_LONG_S = 3600.0


class Workload:
    """The clients of a server, and what they do until they are told to stop."""

    def __init__(self, client: AsyncClient, books: Books, pause_s: float = 0.002) -> None:
        """`pause_s`: between two messages of a publisher."""
        self.client, self.books, self._pause_s = client, books, pause_s
        self._chance = random.Random(17)
        self._stopping = asyncio.Event()

    async def prepare(self) -> None:
        """Make the topics, and a group that adds up from the start."""
        for topic in TOPICS:
            await self.client.create_topic(topic, max_deliveries=MAX_FAILURES, retry_backoff=0)
            for group in (GROUP, "idle"):
                await self.client.create_group(topic, group)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Everybody works meanwhile; what goes wrong with anybody is raised."""
        await self.prepare()
        async with asyncio.TaskGroup() as tasks:
            for number, topic in enumerate(TOPICS):
                for act in (self._publish, self._publish_many, self._delay, self._redrive):
                    tasks.create_task(act(topic, number))
            for topics in (TOPICS, TOPICS[:1], TOPICS[2:]):
                tasks.create_task(self._receive(topics))
            tasks.create_task(self._iterate(TOPICS[1:]))
            try:
                yield
            finally:
                self._stopping.set()

    # Publishers.

    async def _publish(self, topic: str, shard: int) -> None:
        number, last = 0, -1
        while not self._stopping.is_set():
            value = f"a{shard}.{number}"
            identity = await self.client.publish(topic, value)
            assert identity.offset > last, "C13: offsets increase"
            self.books.publish([value], [identity])
            number, last = number + 1, identity.offset
            await asyncio.sleep(self._pause_s)

    async def _publish_many(self, topic: str, shard: int) -> None:
        number = 0
        while not self._stopping.is_set():
            values = [f"b{shard}.{number + n}" for n in range(20)]
            self.books.publish(values, await self.client.publish_many(topic, values))
            number += 20
            await asyncio.sleep(15 * self._pause_s)

    async def _delay(self, topic: str, shard: int) -> None:
        """Messages that are due soon, cancelled just before or after; and some for long, cancelled for sure."""
        number = 0
        while not self._stopping.is_set():
            value, wanted = f"c{shard}.{number}", is_cancelled(number)
            delay_s = _FOR_LONG_S if wanted and number % 2 else self._chance.random() / 4
            self.books.delay(value, delay_s)
            identity = await self.client.publish(topic, value, delay=delay_s)
            self.books.publish([value], [identity])
            if wanted:
                await asyncio.sleep(self._chance.random() * min(0.3, 1.2 * delay_s))
                said = await self._cancel(identity)
                assert said or delay_s < _FOR_LONG_S, "T4: it was delayed, and nobody else cancels it"
            number += 1
            await asyncio.sleep(2 * self._pause_s)

    async def _cancel(self, identity: penstock.MessageId) -> bool:
        """Cancel a message, again until there is an answer."""
        self.books.cancels_asked.add(identity)
        while True:
            with contextlib.suppress(ConnectionLost):
                said = await self.client.cancel_delayed(identity)
                self.books.cancel(identity, said)
                return said

    # Consumers.

    async def _receive(self, topics: list[str]) -> None:
        async with await self.client.consumer(topics, GROUP, visibility_timeout=60) as consumer:
            while not self._stopping.is_set():
                await self._finish(consumer, await consumer.receive(20, wait=0.3))

    async def _iterate(self, topics: list[str]) -> None:
        async with await self.client.consumer(topics, GROUP, visibility_timeout=60, max_in_flight=20) as consumer:
            while not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.3):
                        message = await anext(consumer)
                    await self._finish(consumer, [message])

    async def _finish(self, consumer: Any, messages: list[Any]) -> None:
        """Do with messages what their fates are."""
        for message in messages:
            self.books.take(message)
        fates = [(message, self.books.fate(message)) for message in messages]
        for act in ACTS:
            if some := [message for message, fate in fates if fate == act]:
                await self._act(consumer, act, some)

    async def _act(self, consumer: Any, act: str, messages: list[Any]) -> None:
        ids = {message.id for message in messages}
        self.books.ask(act, ids)
        try:
            match act:
                case "ack":
                    await consumer.ack(messages)
                case "fail":
                    await consumer.fail(messages, "not now", delay=0)
                case "kill":
                    await consumer.kill(messages, "never")
        except ConnectionLost:
            return  # nobody knows
        except penstock.LeaseLost as lost:
            ids -= set(lost.ids)
        self.books.answer(act, ids)

    # Dead letters.

    async def _redrive(self, topic: str, _: int) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(ConnectionLost):
                await self.redrive(topic)
            await asyncio.sleep(0.1)

    async def redrive(self, topic: str) -> None:
        """Send back the dead letters that there are."""
        origins = self.books.letters(await self.client.dead_letters(topic))
        self.books.redrives_asked |= origins
        report = await self.client.redrive(topic, filter=lambda letter: letter.origin in origins)
        assert report.redriven <= len(origins)
        assert report.copied == 0

    # Whether all adds up.

    async def check(self) -> None:
        """Every group of every topic adds up, and what can be read is what could be."""
        for topic in TOPICS:
            known = self.books.known(topic)
            self.books.check_group(await self.client.group(topic, GROUP), known)
            check_sum(await self.client.group(topic, "idle"))
            self.books.check_read([message async for message in self.client.read(topic, 0)])

    async def check_end(self) -> None:
        """Nobody works any more: finish what is left; then everything is accounted for, exactly."""
        for topic in TOPICS:
            stored = [message async for message in self.client.read(topic, 0)]
            self.books.check_log(topic, stored)
            await self._finish_all(topic)
            yes = sum(said and identity.topic == topic for identity, said in self.books.cancelled.items())
            group = await self.client.group(topic, GROUP)
            check_sum(group)
            assert (group.published, group.acked, group.withdrawn) == (len(stored), len(stored) - yes, yes)
            letters = f"{topic}.dlq"
            if letters in [found.name for found in await self.client.topics()]:
                self.books.check_letters(topic, [message async for message in self.client.read(letters, 0)])
            events = [event async for event in self.client.events(topic)]
            self.books.check_lives(topic, stored, events)

    async def _finish_all(self, topic: str) -> None:
        """Consume a topic until nothing is left, also of what has to fail first."""
        async with await self.client.consumer(topic, GROUP, max_in_flight=100_000) as consumer:
            while (group := await self.client.group(topic, GROUP)).lag or group.dead:
                if group.dead:
                    await self.redrive(topic)
                await self._finish(consumer, await consumer.receive(10_000, wait=0.2))


async def whole(client: AsyncClient) -> ClusterInfo:
    """How all stands, as soon as every shard is open."""
    while True:
        with contextlib.suppress(ConnectionLost):
            found = await client.cluster()
            if all(shard.state == "open" for shard in found.shards):
                return found
        await asyncio.sleep(0.01)
