"""A subscription at work: consumers one after the other, for as long as the worker runs."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic

from penstock.worker.session import Session, Slots
from penstock.worker.subscription import Subscription
from penstock.worker.surface import Broker
from penstock.worker.threads import Threads
from penstock.worker.verdict import reason_of

logger = logging.getLogger("penstock.worker")

_PAUSE_S = 0.5
_PAUSE_MAX_S = 30.0


class Running:
    """Opens a consumer and, should it fail, another one; what the old one has in hand is finished meanwhile."""

    def __init__(self, subscription: Subscription, broker: Broker) -> None:
        self._subscription = subscription
        self._broker = broker
        self._slots = Slots(subscription.concurrency)
        name = f"penstock-{subscription.group}"
        self._threads = None if subscription.asynchronous else Threads(subscription.concurrency, name)
        self._finishing: dict[asyncio.Task[None], Session] = {}

    async def consume(self) -> None:
        """Handle messages until this is cancelled; no error ends it."""
        pause_s = _PAUSE_S
        while True:
            began_s = monotonic()
            try:
                await self._consume_once()
            except Exception as error:  # noqa: BLE001 - it may be over soon, and the others go on
                if monotonic() - began_s > _PAUSE_MAX_S:
                    pause_s = _PAUSE_S
                logger.warning("%s: %s; trying again in %g s", self._subscription.name, reason_of(error), pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(_PAUSE_MAX_S, 2 * pause_s)

    async def _consume_once(self) -> None:
        subscription = self._subscription
        consumer = await self._broker.consumer(
            list(subscription.topics),
            subscription.group,
            mode=subscription.mode,
            max_in_flight=subscription.concurrency,
            visibility_timeout=subscription.visibility_s,
            start=subscription.start,
        )
        session = Session(subscription, consumer, self._slots, self._threads)
        try:
            await session.pump()
        finally:
            finishing = asyncio.create_task(session.finish())
            self._finishing[finishing] = session
            finishing.add_done_callback(self._finishing.pop)

    async def finish(self) -> None:
        """Wait for everything that is in hand; nothing more is received by now."""
        if self._finishing:
            await asyncio.wait(self._finishing)
        if self._threads is not None:
            self._threads.close()

    def stop_handlers(self) -> None:
        """Cancel what still runs and give back its messages."""
        for session in self._finishing.values():
            session.stop_handlers()
