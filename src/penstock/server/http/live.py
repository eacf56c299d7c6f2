"""What all processes do, second by second: the stream of each is listened to, and one comes of them."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Sequence

import msgspec

from penstock.model.errors import PenstockError
from penstock.server.http.events import EventReader, event
from penstock.server.http.failures import encode
from penstock.server.http.forwarding import Forwarder, Scope
from penstock.server.http.intake import Event
from penstock.server.http.members import Members
from penstock.server.metrics.live import LivePoint, merge_points

_AGAIN_S = 0.5
_HISTORIES_S = 2.0  # how long one that does not tell of the past is waited for
_APART_S = 1.5  # points of two processes that belong together are not further apart


class _History(msgspec.Struct):
    points: list[LivePoint]


_decode_history = msgspec.json.Decoder(_History).decode
_decode_point = msgspec.json.Decoder(LivePoint).decode


class _Listener:
    """Listens to one process for as long as somebody watches."""

    def __init__(self, forwarder: Forwarder, process: int, scope: Scope) -> None:
        self._forwarder, self._process, self._scope = forwarder, process, scope
        self._reader = EventReader()
        self.history: list[LivePoint] = []
        self.latest: LivePoint | None = None
        self.has_begun = asyncio.Event()

    async def run(self) -> None:
        """Listen; a process that ends is listened to again when another has taken its place."""
        while True:
            try:
                await self._forwarder.listen(self._process, self._scope, self._take)
            except PenstockError:
                self.latest = None
            self._reader = EventReader()
            await asyncio.sleep(_AGAIN_S)

    async def _take(self, given: Event) -> None:
        for name, data in self._reader.feed(given.get("body", b"")):
            if name == "history":
                self.history = _decode_history(data).points
                self.has_begun.set()
            elif name == "point":
                self.latest = _decode_point(data)


async def points_of_all(
    forwarder: Forwarder, processes: Sequence[int], scope: Scope, members: Members
) -> AsyncGenerator[bytes]:
    """The events of `/v1/live`, of all processes together, until the server stops."""
    listeners = [_Listener(forwarder, process, scope) for process in processes]
    tasks = [asyncio.create_task(listener.run()) for listener in listeners]
    try:
        begun = [asyncio.create_task(listener.has_begun.wait()) for listener in listeners]
        await asyncio.wait(begun, timeout=_HISTORIES_S)
        for waiting in begun:
            waiting.cancel()
        history = merge_histories([listener.history for listener in listeners])
        yield event("history", encode({"points": history}))
        last_s = history[-1].time if history else 0.0
        while not members.stopping:
            await members.pause(1.0)
            points = [listener.latest for listener in listeners if listener.latest is not None]
            newest_s = max((point.time for point in points), default=0.0)
            if newest_s > last_s:
                last_s = newest_s
                yield event("point", encode(merge_points([p for p in points if newest_s - p.time < _APART_S])))
            else:
                yield b": nothing new\n\n"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def merge_histories(histories: Sequence[list[LivePoint]]) -> list[LivePoint]:
    """The past of all: to each point of the longest, those of the others that are nearest."""
    longest = max(histories, key=len, default=[])
    merged: list[LivePoint] = []
    for point in longest:
        together = [point]
        for history in histories:
            near = _nearest(history, point.time) if history is not longest else None
            if near is not None and abs(near.time - point.time) < _APART_S:
                together.append(near)
        merged.append(msgspec.structs.replace(merge_points(together), time=point.time))
    return merged


def _nearest(history: list[LivePoint], time_s: float) -> LivePoint | None:
    place = bisect_left(history, time_s, key=lambda point: point.time)
    return min(history[max(0, place - 1) : place + 1], key=lambda point: abs(point.time - time_s), default=None)
