"""Acks of single messages: those of one turn of the loop travel together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

from penstock.client.received import Received
from penstock.model.errors import LeaseLost

Message = TypeVar("Message", bound=Received)


class GatheredAcks(Generic[Message]):
    """Gathers them, and tells each what became of it; `send` acks many, and raises LeaseLost for some of them."""

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
