"""A consumer on the event loop of a client, used from threads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

from penstock.client.direct import Direct, Directs
from penstock.client.loop import LoopThread
from penstock.client.merged import AnyRemote
from penstock.client.pending import DIRECT
from penstock.client.received import Received
from penstock.client.remote import RemoteConsumer
from penstock.client.requests import wanted_of
from penstock.model.errors import BrokerClosed, ConnectionLost, ConsumerNotFound, LeaseLost, NotOwner, PenstockError
from penstock.model.units import Duration
from penstock.protocol.frames import Command

_FINISHED_HERE_MAX = 1000

Message = TypeVar("Message", bound=Received)


class WaitedConsumer(Generic[Message]):
    """The methods of `RemoteConsumer` in plain calls."""

    def __init__(self, loop: LoopThread, remote: AnyRemote[Message], directs: Directs) -> None:
        self._loop = loop
        self._remote = remote
        self._alone = remote if isinstance(remote, RemoteConsumer) else None  # which threads may use past the loop
        self._directs = directs
        self.group, self.finish_through = remote.group, remote.finish_through

    @property
    def name(self) -> str:
        return self._remote.name

    def receive(self, max_messages: int, wait: Duration, visibility_timeout: Duration | None) -> list[Message]:
        received: list[Message] = []
        if direct := self._direct():
            wanted, wait_s, visibility_s = wanted_of(max_messages, wait, visibility_timeout)
            until_s = time.monotonic() + wait_s
            self._receive_here(direct, received, wanted, wait_s, visibility_s)
            wait = max(0.0, until_s - time.monotonic())
            if received or not wait:
                return received
        self._take(self._receive(received, max_messages, wait, visibility_timeout), received)
        return received

    def _direct(self) -> Direct | None:
        """What this thread can ask the server with, if it can."""
        if self._alone is None:
            return None
        direct = self._directs.of_link(self._alone.link)
        generation = direct.generation
        return direct if generation > 0 and self._alone.may_be_asked_past(generation) else None

    def _receive_here(
        self, direct: Direct, received: list[Message], wanted: int, wait_s: float, visibility_s: float | None
    ) -> None:
        """Receive messages in this thread, if that can be done."""
        assert self._alone is not None
        body = self._alone.asking_for(wanted, wait_s, visibility_s)
        replies: list[bytes] = []
        generation = direct.generation
        unwanted = partial(self._unwanted, generation)
        try:
            patience_s = wait_s + self._remote.timeout_s
            if direct.ask(Command.RECEIVE, body, replies, timeout_s=patience_s, unwanted=unwanted):
                received += self._alone.messages_in(replies[0], generation)
        except (ConnectionLost, ConsumerNotFound, NotOwner):
            pass  # the loop subscribes again
        except PenstockError:
            raise
        except BaseException:
            with contextlib.suppress(BrokerClosed):
                self._loop.call(partial(self._give_up, replies, generation))
            raise

    def _give_up(self, replies: list[bytes], generation: int) -> None:
        """Nobody waits for messages any more; those that came are released."""
        assert self._alone is not None
        if not replies:
            self._alone.cancel(DIRECT)
        for reply in replies:
            self._unwanted(generation, reply, None)

    def _unwanted(self, generation: int, reply: bytes | None, _: PenstockError | None) -> None:
        if reply is not None and self._alone is not None:
            self._alone.give_back(self._alone.messages_in(reply, generation))

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
        if not self._finish_here(Command.ACK, [message], "", None):
            self._loop.wait(self._remote.ack_one(message))

    def finish(
        self, command: Command, messages: Iterable[Message], reason: str = "", seconds: float | None = None
    ) -> None:
        if not isinstance(messages, list) or not self._finish_here(command, messages, reason, seconds):
            self._loop.wait(self._remote.finish(command, messages, reason, seconds))

    def _finish_here(self, command: Command, messages: list[Message], reason: str, seconds: float | None) -> bool:
        """Finish messages in this thread, if that can be done in one request; whether it was."""
        direct = self._direct()
        if direct is None or self._alone is None or len(messages) > _FINISHED_HERE_MAX:
            return False
        finishing = self._alone.finishing(messages)
        for body, some in finishing.requests(self._alone.number, reason, seconds):
            try:
                if not direct.ask(command, body, []):
                    return False
            except (LeaseLost, ConsumerNotFound, NotOwner) as error:
                finishing.refused(some, error)
        finishing.conclude()
        return True

    def heartbeat(self) -> None:
        self._loop.wait(self._remote.heartbeat())

    def close(self) -> None:
        if not self._remote.closed:
            self._loop.wait(self._remote.close())
