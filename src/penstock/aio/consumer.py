"""A consumer for asyncio: `await broker.consumer(...)` gives one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.aio.receiving import read_fetched, take_or_wait
from penstock.cluster.consuming import AnyConsuming
from penstock.journal import Commit
from penstock.model.errors import LeaseLost
from penstock.model.options import duration, optional, whole
from penstock.model.units import Duration, parse_duration
from penstock.shard.operations.leased_messages import Leased, LeasedMessage
from penstock.shard.operations.read_ahead import LOOP_WAIT_S, ReadAhead

if TYPE_CHECKING:
    from penstock.aio.outcomes import Outcomes
    from penstock.model.clock import ShardClock


class AsyncDelivery(LeasedMessage, frozen=True, gc=False):
    """A received message; it comes again unless it is acked before its lease runs out."""

    async def ack(self) -> None:
        """It is done; returns when that is durable."""
        owner = self._owner
        commit, lost = owner.consuming.ack_one(self)  # one coroutine less on the way of most acks
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

    def __init__(
        self, consuming: AnyConsuming[AsyncDelivery], outcomes: Outcomes, clock: ShardClock, autoack: bool
    ) -> None:
        self.consuming = consuming
        self._outcomes = outcomes
        self._autoack = autoack
        self._ready = ReadAhead(consuming, clock, autoack)

    @property
    def name(self) -> str:
        """Its name, as traces show it."""
        return self.consuming.name

    @property
    def group(self) -> str:
        """The group that it works for."""
        return self.consuming.group

    async def receive(
        self, max_messages: int = 100, wait: Duration = 0, *, visibility_timeout: Duration | None = None
    ) -> list[AsyncDelivery]:
        """Up to so many messages, best lanes first; waits for the first one if there is none yet.

        `visibility_timeout` is how long these may take, if not as long as the consumer, group or topic says.
        """
        wanted, wait_s = whole(1, 1_000_000)(max_messages), parse_duration(wait)
        visibility_s = optional(duration(0.001))(visibility_timeout)
        return self._ready.take(wanted) or await self._receive(wanted, wait_s, visibility_s)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncDelivery:
        while not self.consuming.closed:
            message = self._ready.next() or self._ready.hold(await self._receive(self._ready.wanted, LOOP_WAIT_S))
            if message is not None:
                return message
        raise StopAsyncIteration

    async def ack(self, messages: Iterable[AsyncDelivery] | Leased) -> None:
        """All of them are done; returns when that is durable. Raises LeaseLost for those that were not held."""
        commit, lost = self.consuming.ack(messages)
        await self._outcome(commit, lost)

    async def extend(self, messages: Iterable[AsyncDelivery] | Leased, seconds: Duration) -> None:
        """Hold them for so long from now, where that is longer."""
        _, lost = self.consuming.extend(messages, seconds)
        if lost is not None:
            raise lost

    async def release(self, messages: Iterable[AsyncDelivery] | Leased) -> None:
        """Give them back at once, through no fault of theirs."""
        commit, lost = self.consuming.release(messages)
        await self._outcome(commit, lost)

    async def fail(
        self, messages: Iterable[AsyncDelivery] | Leased, reason: str, delay: Duration | None = None
    ) -> None:
        """They could not be processed: another try later, or the dead letters."""
        commit, lost = await asyncio.to_thread(self.consuming.fail, messages, reason, delay)
        await self._outcome(commit, lost)

    async def kill(self, messages: Iterable[AsyncDelivery] | Leased, reason: str) -> None:
        """They can never be processed: dead-letter them now."""
        commit, lost = await asyncio.to_thread(self.consuming.kill, messages, reason)
        await self._outcome(commit, lost)

    async def heartbeat(self) -> None:
        """Say that it is alive, in `assigned` mode, during long work; every other call says so too."""
        self.consuming.heartbeat()

    async def close(self) -> None:
        """Give back what is held and leave the group; closing twice is harmless."""
        if not self.consuming.closed:
            await self._outcome(self.consuming.close(), None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.close()

    async def _receive(self, wanted: int, wait_s: float, visibility_s: float | None = None) -> list[AsyncDelivery]:
        found = self.consuming.fetch_now(wanted, visibility_s)
        if not found:
            if wait_s <= 0:
                return []
            found = await take_or_wait(self.consuming, wanted, wait_s, visibility_s)
        messages = await read_fetched(self.consuming, found, self, asyncio.to_thread)
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
