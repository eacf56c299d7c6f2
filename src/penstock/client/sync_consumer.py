"""A consumer of a server in plain calls: `client.consumer(...)` gives one."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from penstock.client.loop import LoopThread
from penstock.client.received import Received
from penstock.client.remote import RemoteConsumer
from penstock.model.errors import BrokerClosed
from penstock.model.units import Duration, parse_duration
from penstock.protocol.frames import Command


class ClientDelivery(Received, frozen=True, gc=False):
    """A message received from a server; it comes again unless it is acked before its lease runs out."""

    def ack(self) -> None:
        """It is done; returns when that is durable."""
        self._owner.ack_one(self)

    def extend(self, seconds: Duration) -> None:
        """Hold it for so long from now, if that is longer than it is held anyway."""
        self._owner.extend([self], seconds)

    def release(self) -> None:
        """Give it back at once, through no fault of its own."""
        self._owner.release([self])

    def fail(self, reason: str, delay: Duration | None = None) -> None:
        """It could not be processed: try again after `delay` (or the topic's backoff), or dead-letter it."""
        self._owner.fail([self], reason, delay)

    def kill(self, reason: str) -> None:
        """It can never be processed: dead-letter it now."""
        self._owner.kill([self], reason)

    @property
    def _owner(self) -> ClientConsumer:
        assert self.lease is not None
        assert isinstance(self.lease.owner, ClientConsumer)
        return self.lease.owner


class ClientConsumer:
    """Receives the messages of one or more topics for a group, from a server. Safe to use from several threads."""

    def __init__(self, loop: LoopThread, remote: RemoteConsumer[ClientDelivery]) -> None:
        self._loop = loop
        self._remote = remote
        remote.face = self

    @property
    def name(self) -> str:
        """Its name, as traces show it."""
        return self._remote.name

    @property
    def group(self) -> str:
        """The group that it works for."""
        return self._remote.group

    def receive(
        self, max_messages: int = 100, wait: Duration = 0, *, visibility_timeout: Duration | None = None
    ) -> list[ClientDelivery]:
        """Up to so many messages, best lanes first; waits for the first one if there is none yet.

        `visibility_timeout` is how long these may take, if not as long as the consumer, group or topic says.
        """
        received: list[ClientDelivery] = []

        async def take() -> None:
            received.extend(await self._remote.receive(max_messages, wait, visibility_timeout))

        self._take(take(), received)
        return received

    def __iter__(self) -> Iterator[ClientDelivery]:
        """Messages one by one, for as long as the consumer is open."""
        received: list[ClientDelivery] = []

        async def take() -> None:
            message = await self._remote.next()
            received.extend([] if message is None else [message])

        while not self._remote.closed:
            self._take(take(), received)
            if received:
                yield received.pop()

    def _take(self, taking: Coroutine[Any, Any, None], received: list[ClientDelivery]) -> None:
        """Wait for messages; if Ctrl-C comes when they are here already, they are given back."""
        try:
            self._loop.wait(taking)
        except BaseException:
            with contextlib.suppress(BrokerClosed):
                self._loop.call(lambda: self._remote.give_back(received))
            raise

    def ack_one(self, message: ClientDelivery) -> None:
        """Ack a message together with those that other threads ack at the same moment."""
        self._loop.wait(self._remote.ack_one(message))

    def ack(self, messages: Iterable[ClientDelivery]) -> None:
        """All of them are done; returns when that is durable. Raises LeaseLost for those that were not held."""
        self._loop.wait(self._remote.settle(Command.ACK, messages))

    def extend(self, messages: Iterable[ClientDelivery], seconds: Duration) -> None:
        """Hold them for so long from now, where that is longer."""
        self._loop.wait(self._remote.settle(Command.EXTEND, messages, seconds=parse_duration(seconds)))

    def release(self, messages: Iterable[ClientDelivery]) -> None:
        """Give them back at once, through no fault of theirs."""
        self._loop.wait(self._remote.settle(Command.RELEASE, messages))

    def fail(self, messages: Iterable[ClientDelivery], reason: str, delay: Duration | None = None) -> None:
        """They could not be processed: another try later, or the dead letters."""
        delay_s = None if delay is None else parse_duration(delay)
        self._loop.wait(self._remote.settle(Command.FAIL, messages, reason, delay_s))

    def kill(self, messages: Iterable[ClientDelivery], reason: str) -> None:
        """They can never be processed: dead-letter them now."""
        self._loop.wait(self._remote.settle(Command.KILL, messages, reason))

    def heartbeat(self) -> None:
        """Say that it is alive, in `assigned` mode, during long work; every other call says so too."""
        self._loop.wait(self._remote.heartbeat())

    def close(self) -> None:
        """Give back what is held and leave the group; closing twice is harmless."""
        if not self._remote.closed:
            self._loop.wait(self._remote.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
