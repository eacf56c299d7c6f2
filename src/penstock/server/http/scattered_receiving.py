"""Receiving from a topic whose slices are in several processes: each leases what it has, and is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.model.errors import InvalidArgument, PenstockError
from penstock.model.placement import Spread
from penstock.model.units import parse_digits
from penstock.server.http.destinations import split_by_process
from penstock.server.http.forwarding import disconnected
from penstock.server.http.gathering import parameters
from penstock.server.http.intake import Incoming
from penstock.server.http.slice_asking import Asked, Part, all_of

if TYPE_CHECKING:
    from penstock.server.services import Services

_LIMIT_MAX, _WAIT_S_MAX = 10_000, 60.0
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_GROUP = "next"
_decode = msgspec.json.decode
_encode = msgspec.json.encode
Messages = list[dict[str, Any]]


class _Refused(Exception):
    """One of the processes has refused: so is the whole, as long as nothing was received."""

    def __init__(self, reply: Part) -> None:
        super().__init__(reply.status)
        self.reply = reply


class Receiving:
    """One request to receive."""

    def __init__(self, services: Services, asked: Asked, spread: Spread, incoming: Incoming) -> None:
        self._services, self._asked, self._incoming = services, asked, incoming
        self._processes = asked.processes(spread)
        turn = next(services.shards.turns) % len(self._processes)
        self._processes = self._processes[turn:] + self._processes[:turn]
        self._query = parameters(asked.scope)

    async def many(self) -> Part:
        """The reply to `/receive`."""
        limit = parse_digits(self._query.get("limit", "1"))
        wait_s = _seconds(self._query.get("wait", "0"))
        if limit is None or not 1 <= limit <= _LIMIT_MAX or wait_s is None:
            return await self._asked.process(self._processes[0], self._query, "receive")  # which refuses it
        try:
            return Part(200, _encode({"messages": await self._receive(limit, wait_s)}))
        except _Refused as refused:
            return refused.reply

    async def one(self) -> Part:
        """The reply to `/next`: a message that is to be acked before it is sent is so when it is known to be sent."""
        wait_s = _seconds(self._query.get("wait", "0"))
        acks = self._query.pop("autoack", "false").lower()
        if wait_s is None or acks not in _YES + _NO:
            raise InvalidArgument(f"wait is 0 to {_WAIT_S_MAX:g} seconds, and autoack is true or false")
        self._query.setdefault("group", _GROUP)
        try:
            found = await self._receive(1, wait_s)
        except _Refused as refused:
            return refused.reply
        if not found:
            return Part(204, b"")
        if acks in _YES:
            finished = await self._finish("ack", found)
            if finished.status != 200:
                return finished
        return Part(200, _encode(found[0]))

    async def _receive(self, limit: int, wait_s: float) -> Messages:
        found = await self._in_turn(limit)
        if found or wait_s <= 0:
            return found
        found = await self._wait(limit, wait_s)
        if len(found) > limit:
            found, others = found[:limit], found[limit:]
            await self._finish("release", others)
        return found

    async def _in_turn(self, limit: int) -> Messages:
        """What is there now."""
        found: Messages = []
        refusals: list[Part] = []
        for process in self._processes:
            try:
                reply = await self._ask(process, limit - len(found), 0)
            except PenstockError:
                if found:
                    break  # what was received is handed out, and the next request hears what is wrong
                raise
            if reply.status == 200:
                found += _decode(reply.body)["messages"]
            else:
                refusals.append(reply)
            if len(found) >= limit:
                break
        if refusals and not found and not self._is_nothing(refusals):
            raise _Refused(_worst(refusals))
        return found

    def _is_nothing(self, refusals: Sequence[Part]) -> bool:
        """Whether those who refused had merely no slice any more, and others answered."""
        return len(refusals) < len(self._processes) and all(reply.status == 404 for reply in refusals)

    async def _wait(self, limit: int, wait_s: float) -> Messages:
        """What comes first; a client that goes takes the request with it."""
        asking = [asyncio.create_task(self._ask(process, limit, wait_s)) for process in self._processes]
        left = asyncio.create_task(disconnected(self._incoming.receive))
        waiting: set[asyncio.Task[Any]] = {*asking, left}
        try:
            found: Messages = []
            while not found and not left.done() and len(waiting) > 1:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                found = [message for task in asking if task in done for message in _messages_of(task)]
            if left.done() and found:
                await self._finish("release", found)
                return []
            if not found and not left.done():
                refusals = [reply for reply in await all_of(asking) if reply.status != 200]
                if refusals and not self._is_nothing(refusals):
                    raise _Refused(_worst(refusals))
            return found
        finally:
            for task in (*asking, left):
                task.cancel()  # what a process was about to give is given back
            await asyncio.gather(*asking, left, return_exceptions=True)

    async def _ask(self, process: int, limit: int, wait_s: float) -> Part:
        query = {**self._query, "limit": str(limit), "wait": str(wait_s)}
        return await self._asked.process(process, query, "receive")

    async def _finish(self, verb: str, messages: Messages) -> Part:
        """Ack or release messages where they were received."""
        handles = split_by_process(message["receipt_handle"] for message in messages)
        asking = [
            asyncio.create_task(self._asked.other(process, f"/v1/messages/{verb}", _encode({"receipt_handles": some})))
            for process, some in handles.items()
            if process is not None
        ]
        return _worst(await all_of(asking))


def _messages_of(task: asyncio.Task[Part]) -> Messages:
    if task.exception() is not None or task.result().status != 200:
        return []
    found: Messages = _decode(task.result().body)["messages"]
    return found


def _worst(replies: Sequence[Part]) -> Part:
    return max(replies, key=lambda reply: reply.status)


def _seconds(text: str) -> float | None:
    """A number of seconds to wait; None if it is none."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= _WAIT_S_MAX else None
