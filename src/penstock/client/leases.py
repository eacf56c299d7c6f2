"""Leases in use: extended while their messages are being processed; and acks of single messages, sent together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

from penstock.client.link import Link
from penstock.client.received import Lease, Received, held_by, named, portions
from penstock.model.errors import ConsumerNotFound, LeaseLost, NotOwner, PenstockError
from penstock.protocol.consuming import Finish, encode
from penstock.protocol.frames import Command

Message = TypeVar("Message", bound=Received)
Extend = Callable[[list[tuple[Lease, list[int]]], float], Awaitable[None]]


class LeaseKeeper:
    """Extends the leases of messages that were handed out and not finished, every third of their duration."""

    def __init__(self, loop: asyncio.AbstractEventLoop, extend: Extend) -> None:
        self._loop = loop
        self._extend = extend
        self._held: dict[Lease, set[int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._extending: asyncio.Task[None] | None = None

    def hold(self, messages: Iterable[Received]) -> None:
        """Extend the leases of these messages from now on."""
        for message in messages:
            lease = message.lease
            if lease is not None:
                self._held.setdefault(lease, set()).add(message.offset)
                if self._timer is None or self._loop.time() + lease.visibility_s / 3 < self._due_s:
                    self._wait(lease.visibility_s)

    def finished(self, leases: Iterable[tuple[Lease, list[int]]]) -> None:
        """Stop extending these leases."""
        for lease, offsets in leases:
            held = self._held.get(lease)
            if held is not None:
                held.difference_update(offsets)
                if not held:
                    del self._held[lease]

    def close(self) -> None:
        """Stop extending leases."""
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._extending is not None:
            self._extending.cancel()

    def _wait(self, shortest_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = self._loop.time() + shortest_s / 3
        self._timer = self._loop.call_later(shortest_s / 3, self._extend_soon)

    def _extend_soon(self) -> None:
        self._timer = None
        if self._held:
            self._extending = self._loop.create_task(self._extend_all())
            self._wait(min(lease.visibility_s for lease in self._held))

    async def _extend_all(self) -> None:
        by_time: dict[float, list[tuple[Lease, list[int]]]] = {}
        for lease, offsets in self._held.items():
            by_time.setdefault(lease.visibility_s, []).append((lease, sorted(offsets)))
        for visibility_s, held in by_time.items():
            await self._extend(held, visibility_s)


async def extend_held(
    link: Link, number: int, keeper: LeaseKeeper, held: list[tuple[Lease, list[int]]], seconds: float
) -> None:
    """Extend what a consumer holds; what is not leased any more is kept no longer."""
    keeper.finished([one for one in held if one[0].generation != link.generation])
    for some in portions([one for one in held if one[0].generation == link.generation]):
        body = encode(Finish(number, [held_by(*one) for one in some], "", seconds))
        try:
            await link.ask(Command.EXTEND, body)
        except (LeaseLost, ConsumerNotFound, NotOwner) as error:  # whoever settles them will hear of it
            lost = error.ids if isinstance(error, LeaseLost) else None
            keeper.finished(some if lost is None else named(some, lost))
        except PenstockError:
            pass  # it is tried again at the next third


class GatheredAcks(Generic[Message]):
    """Sends acks together, and gives each its outcome; `send` acks many, and raises LeaseLost for some of them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, send: Callable[[list[Message]], Coroutine[Any, Any, None]]
    ) -> None:
        self._loop, self._send = loop, send
        self._gathered: list[Message] = []
        self._acked: asyncio.Future[LeaseLost | None] | None = None

    async def ack(self, message: Message) -> None:
        """Ack a message together with the others of this turn of the loop."""
        if self._acked is None:
            self._acked = self._loop.create_future()
            self._loop.call_soon(self._send_gathered)
        self._gathered.append(message)
        lost = await asyncio.shield(self._acked)
        if lost is not None and message.id in lost.ids:
            raise LeaseLost.of([message.id], 1)

    def _send_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        acked, self._acked = self._acked, None
        assert acked is not None
        task = self._loop.create_task(self._send(gathered))
        task.add_done_callback(partial(_tell, acked))


def _tell(acked: asyncio.Future[LeaseLost | None], task: asyncio.Task[None]) -> None:
    if acked.done():
        return
    if task.cancelled():
        acked.cancel()
        return
    error = task.exception()
    if error is None or isinstance(error, LeaseLost):
        acked.set_result(error)
    else:
        acked.set_exception(error)
