"""nats-py, the client of NATS for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from benchmarks.load import batch, value_at
from benchmarks.peers.calls import call_from_tasks, take_in_turn
from benchmarks.peers.plans import Consume, Plan, Publish, Timed
from benchmarks.peers.systems.system import GROUP


class NatsPy:
    """On uvloop. It has no batches: so many publishes at once are one here."""

    def __init__(self, port: int) -> None:
        self._port = port

    def can(self, plan: Plan) -> bool:
        return isinstance(plan, Consume) or (isinstance(plan, Publish) and not plan.soon)

    def publish(self, plan: Publish, queues: list[str], seconds: float) -> Timed:
        queue, size = queues[0], plan.batch

        async def main(stream: Any) -> Timed:
            async def publish(number: int) -> None:
                if size == 1:
                    await stream.publish(queue, value_at(number))
                else:
                    await asyncio.gather(*(stream.publish(queue, value) for value in batch(number, size)))

            return await call_from_tasks(seconds, size, plan.window, publish)

        return self._run(main)

    def consume(self, plan: Consume, queue: str, count: int, seconds: float) -> Timed:
        async def main(stream: Any) -> Timed:
            from nats.js.api import ConsumerConfig

            config = ConsumerConfig(max_ack_pending=max(1000, 2 * plan.batch), ack_wait=600)
            subscription = await stream.pull_subscribe(queue, GROUP, config=config)

            async def take(wanted: int) -> int:
                messages = await subscription.fetch(wanted, timeout=5)
                await asyncio.gather(*(message.ack_sync(timeout=30) for message in messages))
                return len(messages)

            return await take_in_turn(seconds, plan.batch, count, take)

        return self._run(main)

    def _run(self, main: Callable[[Any], Awaitable[Timed]]) -> Timed:
        import nats

        async def connected() -> Timed:
            client = await nats.connect(f"nats://127.0.0.1:{self._port}")
            try:
                return await main(client.jetstream(timeout=30))
            finally:
                await client.close()

        return uvloop.run(connected())
