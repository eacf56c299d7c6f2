"""Extending the leases of messages in hand, and acking them: each for many messages at once."""

from __future__ import annotations

import asyncio
import logging

from penstock.model.errors import LeaseLost
from penstock.worker.surface import Consumer, Held

logger = logging.getLogger("penstock.worker")


class Work:
    """A message in hand."""

    __slots__ = ("finishing", "lease_s", "message", "task")

    def __init__(self, message: Held, lease_s: float) -> None:
        self.message = message
        self.lease_s = lease_s
        self.finishing = False  # its handler has ended
        self.task: asyncio.Task[None]


class Keeper:
    """Extends the leases of messages in hand, every third of their duration; leases of one duration together."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._works: dict[float, set[Work]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, work: Work) -> None:
        """Extend its lease from now on: its handler begins."""
        works = self._works.get(work.lease_s)
        if works is None:
            works = self._works[work.lease_s] = set()
            self._tasks.append(asyncio.create_task(self._keep(works, work.lease_s)))
        works.add(work)

    def remove(self, work: Work) -> None:
        """Stop extending its lease: its handler has ended."""
        works = self._works.get(work.lease_s)
        if works is not None:
            works.discard(work)

    def close(self) -> None:
        """Stop extending leases."""
        for task in self._tasks:
            task.cancel()

    async def _keep(self, works: set[Work], lease_s: float) -> None:
        while True:
            await asyncio.sleep(lease_s / 3)
            if works:
                await self._extend(works, lease_s)

    async def _extend(self, works: set[Work], lease_s: float) -> None:
        asked = list(works)
        try:
            await self._consumer.extend([work.message for work in asked], lease_s)
        except LeaseLost as error:
            lost = _named(error)
            for work in asked:
                if work in works and (not lost or str(work.message.id) in lost):
                    works.discard(work)
                    logger.warning(
                        "%s is not held any more while its handler runs: it may be handled twice", work.message.id
                    )
        except Exception as error:  # noqa: BLE001 - it is tried again a third of the duration later
            logger.warning("the leases of %d messages were not extended: %s", len(asked), error)


class Acks:
    """Acks finished messages: those that finish while an ack is under way are sent together in the next."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._waiting: list[tuple[Held, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    def ack(self, message: Held) -> asyncio.Future[None]:
        """A future that is done when the ack is durable; it raises LeaseLost if the lease was lost."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((message, future))
        if self._task is None:
            self._task = asyncio.create_task(self._send())
        return future

    async def _send(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting, []
            failure: Exception | None = None
            try:
                await self._consumer.ack([message for message, _ in some])
            except Exception as error:  # noqa: BLE001 - told to whoever waits for it
                failure = error
            lost = _named(failure) if isinstance(failure, LeaseLost) else set()
            for message, future in some:
                if future.done():
                    continue
                if failure is not None and (not lost or str(message.id) in lost):
                    future.set_exception(failure)
                else:
                    future.set_result(None)
        self._task = None


def _named(error: LeaseLost) -> set[str]:
    """The ids of the messages that were lost; empty if all were."""
    return set(map(str, error.ids))
