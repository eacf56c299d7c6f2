"""A consumer on the event loop of a client, used from threads."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterable
from typing import Any, Generic, TypeVar

from penstock.client.loop import LoopThread
from penstock.client.received import Received
from penstock.client.remote import RemoteConsumer
from penstock.model.errors import BrokerClosed
from penstock.model.units import Duration
from penstock.protocol.frames import Command

Message = TypeVar("Message", bound=Received)


class WaitedConsumer(Generic[Message]):
    """The methods of `RemoteConsumer` in plain calls."""

    def __init__(self, loop: LoopThread, remote: RemoteConsumer[Message]) -> None:
        self._loop = loop
        self._remote = remote
        self.group, self.finish_through = remote.group, remote.finish_through

    @property
    def name(self) -> str:
        return self._remote.name

    def receive(self, max_messages: int, wait: Duration, visibility_timeout: Duration | None) -> list[Message]:
        received: list[Message] = []
        self._take(self._receive(received, max_messages, wait, visibility_timeout), received)
        return received

    async def _receive(
        self, received: list[Message], max_messages: int, wait: Duration, visibility_timeout: Duration | None
    ) -> None:
        received += await self._remote.receive(max_messages, wait, visibility_timeout)

    def next(self) -> Message | None:
        received: list[Message] = []
        if not self._remote.closed:
            self._take(self._next(received), received)
        return received[0] if received else None

    async def _next(self, received: list[Message]) -> None:
        message = await self._remote.next()
        if message is not None:
            received.append(message)

    def _take(self, taking: Coroutine[Any, Any, None], received: list[Message]) -> None:
        """Wait for messages; if Ctrl-C comes when they have arrived, they are released."""
        try:
            self._loop.wait(taking)
        except BaseException:
            with contextlib.suppress(BrokerClosed):
                self._loop.call(lambda: self._remote.give_back(received))
            raise

    def ack_one(self, message: Message) -> None:
        """Ack a message together with those that other threads ack at the same moment."""
        self._loop.wait(self._remote.ack_one(message))

    def finish(
        self, command: Command, messages: Iterable[Message], reason: str = "", seconds: float | None = None
    ) -> None:
        self._loop.wait(self._remote.finish(command, messages, reason, seconds))

    def heartbeat(self) -> None:
        self._loop.wait(self._remote.heartbeat())

    def close(self) -> None:
        if not self._remote.closed:
            self._loop.wait(self._remote.close())
