"""Penstock's own clients: in plain calls, and for asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter_ns

import uvloop

import penstock
from benchmarks.load import batch, value_at
from benchmarks.peers.calls import call_for, call_from_tasks, take_for, take_in_turn
from benchmarks.peers.plans import Consume, Plan, Publish, Timed
from benchmarks.peers.systems.system import GROUP
from penstock.client.client import AsyncClient
from penstock.client.consumer import AsyncClientConsumer

_WAIT_S = 5.0


class PlainClient:
    """`penstock.connect`."""

    def __init__(self, address: str) -> None:
        self._address = address

    def can(self, plan: Plan) -> bool:
        if isinstance(plan, Publish):
            return plan.window == 1 or plan.soon
        return isinstance(plan, Consume)

    def publish(self, plan: Publish, queues: list[str], seconds: float) -> Timed:
        queue = queues[0]
        with penstock.connect(self._address) as client:
            if plan.soon:
                start_ns = perf_counter_ns()
                called = call_for(seconds, 1, lambda number: client.publish_soon(queue, value_at(number)))
                client.flush()
                return Timed(called.messages, (perf_counter_ns() - start_ns) / 1e9)
            if plan.batch == 1:
                return call_for(seconds, 1, lambda number: client.publish(queue, value_at(number)))
            size = plan.batch
            return call_for(seconds, size, lambda number: client.publish_many(queue, batch(number, size)))

    def consume(self, plan: Consume, queue: str, count: int, seconds: float) -> Timed:
        with (
            penstock.connect(self._address) as client,
            client.consumer(queue, GROUP, max_in_flight=max(1000, 2 * plan.batch)) as consumer,
        ):

            def take(wanted: int) -> int:
                messages = consumer.receive(wanted, wait=_WAIT_S)
                consumer.ack(messages)
                return len(messages)

            return take_for(seconds, plan.batch, count, take)


class AsyncioClient:
    """`penstock.aconnect` on uvloop."""

    def __init__(self, address: str) -> None:
        self._address = address

    def can(self, plan: Plan) -> bool:
        return isinstance(plan, Consume) or (isinstance(plan, Publish) and not plan.soon)

    def publish(self, plan: Publish, queues: list[str], seconds: float) -> Timed:
        queue, size = queues[0], plan.batch

        async def main() -> Timed:
            async with AsyncClient(self._address) as client:

                def publish(number: int) -> Awaitable[object]:
                    if size == 1:
                        return client.publish(queue, value_at(number))
                    return client.publish_many(queue, batch(number, size))

                return await call_from_tasks(seconds, size, plan.window, publish)

        return uvloop.run(main())

    def consume(self, plan: Consume, queue: str, count: int, seconds: float) -> Timed:
        async def main() -> Timed:
            in_flight = max(1000, 2 * plan.batch)
            async with (
                AsyncClient(self._address) as client,
                await client.consumer(queue, GROUP, max_in_flight=in_flight) as consumer,
            ):
                return await take_in_turn(seconds, plan.batch, count, _take_from(consumer))

        return uvloop.run(main())


def _take_from(consumer: AsyncClientConsumer) -> Callable[[int], Awaitable[int]]:
    async def take(wanted: int) -> int:
        messages = await consumer.receive(wanted, wait=_WAIT_S)
        await consumer.ack(messages)
        return len(messages)

    return take
