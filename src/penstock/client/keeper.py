"""Leases kept alive while somebody works on their messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from penstock.client.received import Lease, Received

Extend = Callable[[list[tuple[Lease, list[int]]], float], Awaitable[None]]


class LeaseKeeper:
    """Extends what was handed out and is not settled, every third of its time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, extend: Extend) -> None:
        self._loop = loop
        self._extend = extend
        self._held: dict[Lease, set[int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._extending: asyncio.Task[None] | None = None

    def hold(self, messages: Iterable[Received]) -> None:
        """These were handed out."""
        for message in messages:
            lease = message.lease
            if lease is not None:
                self._held.setdefault(lease, set()).add(message.offset)
                if self._timer is None or self._loop.time() + lease.visibility_s / 3 < self._due_s:
                    self._wait(lease.visibility_s)

    def settled(self, leases: Iterable[tuple[Lease, list[int]]]) -> None:
        """These are not worked on any more."""
        for lease, offsets in leases:
            held = self._held.get(lease)
            if held is not None:
                held.difference_update(offsets)
                if not held:
                    del self._held[lease]

    def close(self) -> None:
        """Extend nothing any more."""
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
