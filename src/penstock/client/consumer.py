"""A consumer of a server, for asyncio: `await client.consumer(...)` gives one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from penstock.client.merged import AnyRemote
from penstock.client.received import Received
from penstock.model.units import Duration, parse_duration
from penstock.protocol.frames import Command


class AsyncReceived(Received, frozen=True, gc=False):
    """A message received from a server; it comes again unless it is acked before its lease runs out."""

    async def ack(self) -> None:
        """It is done; returns when that is durable."""
        await self._owner.remote.ack_one(self)

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
    def _owner(self) -> AsyncClientConsumer:
        assert self.lease is not None
        assert isinstance(self.lease.owner, AsyncClientConsumer)
        return self.lease.owner


class AsyncClientConsumer:
    """Receives the messages of one or more topics for a group, from a server; threads and tasks may share it."""

    def __init__(self, remote: AnyRemote[AsyncReceived]) -> None:
        self.remote = remote
        remote.finish_through(self)

    @property
    def name(self) -> str:
        """Its name, as traces show it."""
        return self.remote.name

    @property
    def group(self) -> str:
        """The group that it works for."""
        return self.remote.group

    async def receive(
        self, max_messages: int = 100, wait: Duration = 0, *, visibility_timeout: Duration | None = None
    ) -> list[AsyncReceived]:
        """Up to so many messages, best lanes first; waits for the first one if there is none yet.

        `visibility_timeout` is how long these may take, if not as long as the consumer, group or topic says.
        """
        return await self.remote.receive(max_messages, wait, visibility_timeout)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncReceived:
        message = await self.remote.next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def ack(self, messages: Iterable[AsyncReceived]) -> None:
        """All of them are done; returns when that is durable. Raises LeaseLost for those that were not held."""
        await self.remote.finish(Command.ACK, messages)

    async def extend(self, messages: Iterable[AsyncReceived], seconds: Duration) -> None:
        """Hold them for so long from now, where that is longer."""
        await self.remote.finish(Command.EXTEND, messages, seconds=parse_duration(seconds))

    async def release(self, messages: Iterable[AsyncReceived]) -> None:
        """Give them back at once, through no fault of theirs."""
        await self.remote.finish(Command.RELEASE, messages)

    async def fail(self, messages: Iterable[AsyncReceived], reason: str, delay: Duration | None = None) -> None:
        """They could not be processed: another try later, or the dead letters."""
        delay_s = None if delay is None else parse_duration(delay)
        await self.remote.finish(Command.FAIL, messages, reason, delay_s)

    async def kill(self, messages: Iterable[AsyncReceived], reason: str) -> None:
        """They can never be processed: dead-letter them now."""
        await self.remote.finish(Command.KILL, messages, reason)

    async def heartbeat(self) -> None:
        """Say that it is alive, in `assigned` mode, during long work; every other call says so too."""
        await self.remote.heartbeat()

    async def close(self) -> None:
        """Give back what is held and leave the group; closing twice is harmless."""
        await self.remote.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
