"""Steady publishers, one for each topic: how long each of their messages took, whatever happened to the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from math import ceil
from time import perf_counter
from typing import NamedTuple

from penstock.client.client import AsyncClient

_PER_SECOND = 100


class Trip(NamedTuple):
    """A message, from when it was due until it was acknowledged."""

    since_s: float
    until_s: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.until_s - self.since_s


class Steady:
    """Publishes single messages to a topic by a schedule, one at a time.

    One that is late, because the one before took long, is measured from the time at which it was due.
    """

    def __init__(self, client: AsyncClient, topic: str) -> None:
        self._client = client
        self.topic = topic
        self.trips: list[Trip] = []

    async def run(self, stopping: asyncio.Event) -> None:
        """Publish until it is enough."""
        start_s, until_s = perf_counter(), 0.0
        while not stopping.is_set():
            due_s = start_s + len(self.trips) / _PER_SECOND
            await asyncio.sleep(due_s - perf_counter())
            since_s = due_s if until_s > due_s else perf_counter()  # timers are coarse
            await self._client.publish(self.topic, b"steady")
            until_s = perf_counter()
            self.trips.append(Trip(since_s, until_s))

    async def answer_after(self, moment_s: float) -> float:
        """Wait for the answer to the first message that was due after a moment; when it came."""
        while not self.trips or self.trips[-1].since_s < moment_s:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        return next(trip.until_s for trip in self.trips if trip.since_s >= moment_s)

    def during(self, windows: Sequence[tuple[float, float]]) -> list[float]:
        """How long the messages took that were under way in one of these times."""
        return [
            trip.seconds
            for trip in self.trips
            if any(trip.until_s > since and trip.since_s < until for since, until in windows)
        ]


def p99_s(publishers: Sequence[Steady], windows: Sequence[tuple[float, float]]) -> float:
    """What 99 % of all their messages of these times did not exceed."""
    seconds = sorted(each for publisher in publishers for each in publisher.during(windows))
    return seconds[ceil(len(seconds) * 0.99) - 1]


@contextlib.asynccontextmanager
async def steady(address: str, topics: Sequence[str]) -> AsyncIterator[list[Steady]]:
    """A publisher for each topic, with a client of its own, at work meanwhile."""
    stopping = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(address)) for _ in topics]
        publishers = [Steady(client, topic) for client, topic in zip(clients, topics, strict=True)]
        tasks = [asyncio.create_task(publisher.run(stopping)) for publisher in publishers]
        try:
            yield publishers
        finally:
            stopping.set()
            await asyncio.gather(*tasks)
