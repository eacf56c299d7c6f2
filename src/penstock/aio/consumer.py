"""A consumer for asyncio: `await broker.consumer(...)` gives one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.journal import Commit
from penstock.model.errors import LeaseLost
from penstock.model.options import duration, optional, whole
from penstock.model.units import Duration, parse_duration
from penstock.shard.dispatch.waiting import Waiter
from penstock.shard.operations.consuming import Consuming
from penstock.shard.operations.delivered import Delivered, Leased

if TYPE_CHECKING:
    from penstock.aio.outcomes import Outcomes
    from penstock.shard.dispatch.waiting import Fetched
    from penstock.shard.shard import Engine


class AsyncDelivery(Delivered, frozen=True, gc=False):
    """A received message; it comes again unless it is acked before its lease runs out."""

    async def ack(self) -> None:
        """It is done; returns when that is durable."""
        owner = self._owner
        commit, lost = owner._consuming.ack_one(self)  # noqa: SLF001 - one coroutine less on the way of most acks
        if commit is not None:
            if not commit.done:
                await owner._outcomes.of(commit)  # noqa: SLF001
            if commit.failed:
                commit.result()
        if lost is not None:
            raise lost

    async def extend(self, seconds: Duration) -> None:
        """Hold it for so long from now, if that is longer than it is held anyway."""
        await self._owner.extend([self], seconds)

    async def release(self) -> None:
        """Give it back at once, through no fault of its own."""
        await self._owner.release([self])

    async def fail(self, reason: str, delay: Duration | None = None) -> None:
        """It could not be processed: try again after `delay` (or the topic's backoff), or dead-letter it."""
        await self._owner.fail([self], reason, delay)

    async def kill(self, reason: str) -> None:
        """It can never be processed: dead-letter it now."""
        await self._owner.kill([self], reason)

    @property
    def _owner(self) -> AsyncConsumer:
        assert isinstance(self.lease.owner, AsyncConsumer)
        return self.lease.owner


class AsyncConsumer:
    """Receives the messages of one or more topics for a group; any number of tasks may share it.

    >>> import asyncio, tempfile, penstock.aio
    >>> async def main():
    ...     async with penstock.aio.open(tempfile.mkdtemp()) as broker:
    ...         await broker.publish_many("orders", ["two coffees", "one tea"])
    ...         async with await broker.consumer("orders", "kitchen") as consumer:
    ...             messages = await consumer.receive(10, wait=1)
    ...             await consumer.ack(messages)
    ...             return [message.value for message in messages]
    >>> asyncio.run(main())
    [b'two coffees', b'one tea']
    """

    def __init__(self, engine: Engine, outcomes: Outcomes, autoack: bool) -> None:
        self._engine = engine
        self._outcomes = outcomes
        self._autoack = autoack
        self._buffer: deque[AsyncDelivery] = deque()
        self._consuming: Consuming[AsyncDelivery]

    @property
    def name(self) -> str:
        """Its name, as traces show it."""
        return self._consuming.name

    @property
    def group(self) -> str:
        """The group that it works for."""
        return self._consuming.group

    async def receive(
        self, max_messages: int = 100, wait: Duration = 0, *, visibility_timeout: Duration | None = None
    ) -> list[AsyncDelivery]:
        """Up to so many messages, best lanes first; waits for the first one if there is none yet.

        `visibility_timeout` is how long these may take, if not as long as the consumer, group or topic says.
        """
        wanted, wait_s = whole(1, 1_000_000)(max_messages), parse_duration(wait)
        visibility_s = optional(duration(0.001))(visibility_timeout)
        ready = self._consuming.take_ready(self._buffer, wanted)  # a loop may have left some
        return ready or await self._receive(wanted, wait_s, visibility_s)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncDelivery:
        while not self._consuming.closed:
            while self._buffer:
                message = self._buffer.popleft()
                if self._consuming.hand_out(message):
                    return message
            received = await self._receive(1 if self._autoack else self._consuming.prefetch(), 0.5)
            if received:
                self._consuming.hold_ready(received[1:])
                self._buffer.extend(received[1:])
                return received[0]
        raise StopAsyncIteration

    async def ack(self, messages: Iterable[AsyncDelivery] | Leased) -> None:
        """All of them are done; returns when that is durable. Raises LeaseLost for those that were not held."""
        commit, lost = self._consuming.ack(messages)
        await self._outcome(commit, lost)

    async def extend(self, messages: Iterable[AsyncDelivery] | Leased, seconds: Duration) -> None:
        """Hold them for so long from now, where that is longer."""
        _, lost = self._consuming.extend(messages, seconds)
        if lost is not None:
            raise lost

    async def release(self, messages: Iterable[AsyncDelivery] | Leased) -> None:
        """Give them back at once, through no fault of theirs."""
        commit, lost = self._consuming.release(messages)
        await self._outcome(commit, lost)

    async def fail(
        self, messages: Iterable[AsyncDelivery] | Leased, reason: str, delay: Duration | None = None
    ) -> None:
        """They could not be processed: another try later, or the dead letters."""
        commit, lost = await asyncio.to_thread(self._consuming.fail, messages, reason, delay)
        await self._outcome(commit, lost)

    async def kill(self, messages: Iterable[AsyncDelivery] | Leased, reason: str) -> None:
        """They can never be processed: dead-letter them now."""
        commit, lost = await asyncio.to_thread(self._consuming.kill, messages, reason)
        await self._outcome(commit, lost)

    async def heartbeat(self) -> None:
        """Say that it is alive, in `assigned` mode, during long work; every other call says so too."""
        self._consuming.heartbeat()

    async def close(self) -> None:
        """Give back what is held and leave the group; closing twice is harmless."""
        if not self._consuming.closed:
            await self._outcome(self._consuming.close(), None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.close()

    async def _receive(self, wanted: int, wait_s: float, visibility_s: float | None = None) -> list[AsyncDelivery]:
        deliveries, seats = self._engine.deliveries, self._consuming.seats
        with self._engine.lock:
            found = self._consuming.fetch(wanted, visibility_s)
            if not found and wait_s > 0:
                loop = asyncio.get_running_loop()
                arrived = loop.create_future()

                def wake() -> None:
                    with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                        loop.call_soon_threadsafe(_finish, arrived)

                waiter = Waiter(seats, wanted, visibility_s, wake)
                deliveries.wait(waiter, seats)
        if found:
            return await self._take(found)
        if wait_s <= 0:
            return []
        try:
            await asyncio.wait([arrived], timeout=wait_s)
        except asyncio.CancelledError:
            self._stop_waiting(waiter)
            if waiter.found:
                self._consuming.give_back(waiter.found)
            raise
        self._stop_waiting(waiter)
        if waiter.found:
            return await self._take(waiter.found)
        if waiter.found is None or self._consuming.closed:
            return []
        return await self._receive(wanted, 0)  # which tells what is wrong

    def _stop_waiting(self, waiter: Waiter) -> None:
        with self._engine.lock:
            self._engine.deliveries.stop_waiting(waiter, self._consuming.seats)

    async def _take(self, found: Fetched) -> list[AsyncDelivery]:
        if self._consuming.must_read_segments(found):
            try:
                messages = await asyncio.to_thread(self._consuming.messages, found)
            except asyncio.CancelledError:
                self._consuming.give_back(found)
                raise
        else:
            messages = self._consuming.messages(found)
        if self._autoack and messages:
            await self.ack(messages)
        return messages

    async def _outcome(self, commit: Commit | None, lost: LeaseLost | None) -> None:
        if commit is not None:
            if not commit.done:
                await self._outcomes.of(commit)
            commit.result()
        if lost is not None:
            raise lost


def _finish(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
