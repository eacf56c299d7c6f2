"""What a worker needs of a broker; the embedded broker and the client of a server both have it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from penstock.model.units import Duration, Time


class Held(Protocol):
    """A received message."""

    @property
    def id(self) -> object: ...

    @property
    def failures(self) -> int: ...

    async def fail(self, reason: str, delay: Duration | None = None) -> None: ...

    async def kill(self, reason: str) -> None: ...

    async def release(self) -> None: ...


class Consumer(Protocol):
    """Receives messages for a group."""

    async def receive(self, max_messages: int = ..., wait: Duration = ...) -> list[Any]: ...

    async def ack(self, messages: Iterable[Any]) -> None: ...

    async def extend(self, messages: Iterable[Any], seconds: Duration) -> None: ...

    async def heartbeat(self) -> None: ...

    async def close(self) -> None: ...


class Broker(Protocol):
    """Makes consumers."""

    async def consumer(
        self,
        topic: str | Sequence[str],
        group: str,
        *,
        mode: str = ...,
        max_in_flight: int = ...,
        visibility_timeout: Duration | None = ...,
        start: str | Time = ...,
    ) -> Consumer: ...
