"""Events of a topic whose slices are in several processes: each sends those of its slices, and they are passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.model.placement import Spread, share
from penstock.model.units import parse_digits
from penstock.server.http.events import EVENTS, UNBUFFERED
from penstock.server.http.forwarding import Send, disconnected
from penstock.server.http.gathering import parameters
from penstock.server.http.intake import Event, Incoming
from penstock.server.http.slice_asking import Asked, Part

CREDITS_MAX = 100_000
"""So many messages may be unfinished at a time."""
_AHEAD = 16  # pieces that wait for the client
_CREDITS = 100
_END = b"\n\n"
_HEADERS = [(b"content-type", EVENTS.encode()), *((name.encode(), text.encode()) for name, text in UNBUFFERED.items())]


class _Source:
    """What one process sends: events, or that it refuses."""

    def __init__(self, events: asyncio.Queue[bytes]) -> None:
        self._events = events
        self._begun = b""
        self._refusal: list[bytes] = []
        self._status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def take(self, given: Event) -> None:
        """Pass on events that are complete, as fast as the client takes them."""
        if not self._status.done():
            self._status.set_result(given["status"])
        elif self._status.result() != 200:
            self._refusal.append(given.get("body", b""))
        else:
            whole, end, self._begun = (self._begun + given.get("body", b"")).rpartition(_END)
            if end:
                await self._events.put(whole + end)

    async def refusal(self, sending: asyncio.Task[None]) -> Part | None:
        """What it says if it refuses, once that is known."""
        waiting: list[asyncio.Future[Any]] = [self._status, sending]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not self._status.done():
            await sending  # which raises why
        status = self._status.result()
        if status == 200:
            return None
        await sending
        return Part(status, b"".join(self._refusal))


async def stream(asked: Asked, spread: Spread, incoming: Incoming, send: Send) -> int | Part:
    """Send events until the client goes, or a process sends no more: then the client connects again."""
    processes = asked.processes(spread)
    events: asyncio.Queue[bytes] = asyncio.Queue(_AHEAD)
    sources = [_Source(events) for _ in processes]
    queries = query_of_each(parameters(asked.scope), len(processes))
    sending = [
        asyncio.create_task(asked.listen(process, query, "stream", source.take))
        for process, source, query in zip(processes, sources, queries, strict=True)
    ]
    left = asyncio.create_task(disconnected(incoming.receive))
    try:
        refusals = await asyncio.gather(*(source.refusal(task) for source, task in zip(sources, sending, strict=True)))
        for refusal in refusals:
            if refusal is not None:
                return refusal
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await _pass_on(events, {left, *sending}, send)
        await send({"type": "http.response.body", "body": b""})
        return 200
    finally:
        for task in (left, *sending):
            task.cancel()
        await asyncio.gather(left, *sending, return_exceptions=True)


async def _pass_on(events: asyncio.Queue[bytes], ends: set[asyncio.Task[None]], send: Send) -> None:
    """Send what comes until one of the others is done."""
    while True:
        coming = asyncio.create_task(events.get())
        await asyncio.wait({coming, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            coming.cancel()
            return
        await send({"type": "http.response.body", "body": coming.result(), "more_body": True})


def shares_of(credits: int | None, count: int) -> list[int] | None:
    """Credits as they are shared out, one for each at least if there are any; None if each has to judge them."""
    if credits is None or not 0 <= credits <= CREDITS_MAX:
        return None
    return [share(credits, number, count) if credits else 0 for number in range(count)]


def query_of_each(query: Mapping[str, str], count: int) -> list[dict[str, str]]:
    """The parameters for each of so many processes."""
    shares = shares_of(parse_digits(query.get("credits", str(_CREDITS))), count)
    return [dict(query) if shares is None else {**query, "credits": str(shares[number])} for number in range(count)]
