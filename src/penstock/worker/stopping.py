"""The life of a worker from its first message to its last: how it ends, and that it gives back what is not done."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from penstock.worker.running import Running

logger = logging.getLogger("penstock.worker")

_LEAVE_S = 10.0


class Stopping:
    """Runs subscriptions until somebody asks for the end."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Stop, gracefully; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop was closed: it has stopped
            self._loop.call_soon_threadsafe(self._asked.set)

    async def run(self, subscriptions: Sequence[Running]) -> None:
        """Consume until asked to stop, then wait for handlers; whoever cancels this does not wait for them."""
        consuming = [asyncio.create_task(subscription.consume()) for subscription in subscriptions]
        try:
            await self._asked.wait()
            await _end(consuming)
            logger.info("stopping: handlers have %g s to finish", self._grace_s)
            finished = await _finish(subscriptions, self._grace_s)
        except asyncio.CancelledError:
            await _end(consuming)
            await _give_back(subscriptions)
            raise
        if not finished:
            logger.warning("handlers still run after %g s: they are cancelled", self._grace_s)
            await _give_back(subscriptions)


async def _end(consuming: list[asyncio.Task[None]]) -> None:
    for task in consuming:
        task.cancel()
    await asyncio.wait(consuming)


async def _finish(subscriptions: Sequence[Running], timeout_s: float) -> bool:
    """Wait for everything in hand; whether it was settled in time."""
    finishing = [asyncio.create_task(subscription.finish()) for subscription in subscriptions]
    _, late = await asyncio.wait(finishing, timeout=timeout_s)
    return not late


async def _give_back(subscriptions: Sequence[Running]) -> None:
    for subscription in subscriptions:
        subscription.stop_handlers()
    if not await _finish(subscriptions, _LEAVE_S):
        logger.error("some messages could not be given back: they come again when their leases run out")
