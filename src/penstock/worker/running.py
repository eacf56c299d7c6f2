"""Running subscriptions: consumers one after the other until the worker stops, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from time import monotonic

from penstock.worker.session import Slots, Threads, WorkerSession
from penstock.worker.subscription import Subscription
from penstock.worker.surface import Broker
from penstock.worker.verdict import reason_of

logger = logging.getLogger("penstock.worker")

_PAUSE_S = 0.5
_PAUSE_MAX_S = 30.0
_LEAVE_S = 10.0


class Running:
    """Opens a consumer, and another one if it fails; the old one finishes the messages that it has in hand."""

    def __init__(self, subscription: Subscription, broker: Broker) -> None:
        self._subscription = subscription
        self._broker = broker
        self._slots = Slots(subscription.concurrency)
        name = f"penstock-{subscription.group}"
        self._threads = None if subscription.asynchronous else Threads(subscription.concurrency, name)
        self._finishing: dict[asyncio.Task[None], WorkerSession] = {}

    async def consume(self) -> None:
        """Handle messages until this is cancelled; no error ends it."""
        pause_s = _PAUSE_S
        while True:
            began_s = monotonic()
            try:
                await self._consume_once()
            except Exception as error:  # noqa: BLE001 - it may be temporary, and other subscriptions go on
                if monotonic() - began_s > _PAUSE_MAX_S:
                    pause_s = _PAUSE_S
                logger.warning("%s: %s; trying again in %g s", self._subscription.name, reason_of(error), pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(_PAUSE_MAX_S, 2 * pause_s)

    async def _consume_once(self) -> None:
        subscription = self._subscription
        consumer = await self._broker.consumer(
            subscription.topics,
            subscription.group,
            mode=subscription.mode,
            max_in_flight=subscription.concurrency,
            visibility_timeout=subscription.visibility_s,
            start=subscription.start,
        )
        session = WorkerSession(subscription, consumer, self._slots, self._threads)
        try:
            await session.pump()
        finally:
            finishing = asyncio.create_task(session.finish())
            self._finishing[finishing] = session
            finishing.add_done_callback(self._finishing.pop)

    async def finish(self) -> None:
        """Wait until all messages in hand are finished; receiving has ended before."""
        if self._finishing:
            await asyncio.wait(self._finishing)
        if self._threads is not None:
            self._threads.close()

    def stop_handlers(self) -> None:
        """Cancel running handlers and release their messages."""
        for session in self._finishing.values():
            session.stop_handlers()


class Stopping:
    """Runs subscriptions until it is asked to stop."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Stop, gracefully; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop was closed: it has stopped
            self._loop.call_soon_threadsafe(self._asked.set)

    async def run(self, subscriptions: Sequence[Running]) -> None:
        """Consume until asked to stop, then wait for handlers; if this is cancelled, it does not wait for them."""
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
    """Wait until all messages in hand are finished; whether that was in time."""
    finishing = [asyncio.create_task(subscription.finish()) for subscription in subscriptions]
    _, late = await asyncio.wait(finishing, timeout=timeout_s)
    return not late


async def _give_back(subscriptions: Sequence[Running]) -> None:
    for subscription in subscriptions:
        subscription.stop_handlers()
    if not await _finish(subscriptions, _LEAVE_S):
        logger.error("some messages could not be given back: they come again when their leases run out")


@contextlib.contextmanager
def on_signals(
    act: Callable[[int], object], *numbers: signal.Signals, loop: asyncio.AbstractEventLoop | None = None
) -> Iterator[None]:
    """Call `act` with each of these signals, on the loop if there is one.

    Only the main thread receives signals; in another thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if loop is None:
            signal.signal(number, lambda number, _: act(number))
        else:
            loop.add_signal_handler(number, act, number)  # which also wakes it, whatever thread the signal comes to
    try:
        yield
    finally:
        for number, handler in before.items():
            if loop is not None:
                loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
