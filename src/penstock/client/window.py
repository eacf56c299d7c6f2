"""How many messages a consumer of several shards holds: one window, wherever they came from."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

from penstock.client.received import Lease, Received

_LOOK_S = 1.0  # how often a full window is looked at: leases end with a connection, too

_Place = tuple[str, int, int]


class Window:
    """What was handed out and not finished, and what is being asked for."""

    def __init__(self, size: int, lives: Callable[[Lease], bool]) -> None:
        """`lives`: whether a lease is one still, as far as that is known without looking at the time."""
        self._size, self._lives = size, lives
        self._held: dict[_Place, tuple[Lease, float]] = {}  # and until when they are leased
        self._asked = 0
        self._changed = asyncio.Event()

    @contextlib.contextmanager
    def reserved(self, wanted: int) -> Iterator[int]:
        """Room for so many or less, kept while they are asked for."""
        room = min(wanted, self._room())
        self._asked += room
        try:
            yield room
        finally:
            self._asked -= room
            self._changed.set()

    def hold(self, messages: Iterable[Received], until_s: float | None = None) -> None:
        """These are leased until then, or for as long as they were leased for."""
        for message in messages:
            lease = message.lease
            assert lease is not None
            self._held[_place(message)] = lease, lease.deadline_s if until_s is None else until_s

    def extend(self, messages: Iterable[Received], until_s: float) -> None:
        """These are leased until then, if they are held, and not for longer anyway."""
        for message in messages:
            held = self._held.get(_place(message))
            if held is not None and held[0] is message.lease:
                self._held[_place(message)] = held[0], max(held[1], until_s)

    def drop(self, messages: Iterable[Received]) -> None:
        """These are finished; those that came again meanwhile are held by their other lease."""
        for message in messages:
            held = self._held.get(_place(message))
            if held is not None and held[0] is message.lease:
                del self._held[_place(message)]
        self._changed.set()

    def wake(self) -> None:
        """Let those who wait look again."""
        self._changed.set()

    async def wait(self, wait_s: float) -> None:
        """Wait until something is finished, or a lease may have ended."""
        self._changed.clear()
        first_s = min((until_s for _, until_s in self._held.values()), default=float("inf")) - time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.001, min(wait_s, first_s, _LOOK_S))):
                await self._changed.wait()

    def _room(self) -> int:
        """How many more may be asked for."""
        if len(self._held) + self._asked >= self._size:
            now_s = time.monotonic()
            held = {lease for lease, _ in self._held.values() if self._lives(lease)}
            self._held = {
                place: (lease, until_s)
                for place, (lease, until_s) in self._held.items()
                if until_s > now_s and lease in held
            }
        return max(0, self._size - len(self._held) - self._asked)


def _place(message: Received) -> _Place:
    return message.topic, message.partition, message.offset
