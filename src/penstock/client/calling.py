"""What everything that a client asks for stands on; for asyncio."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any, TypeVar

from penstock.api.operations import OPERATIONS
from penstock.client.link import Link
from penstock.client.requests import decode_result, encode_call, topic_of
from penstock.client.slices import Slices
from penstock.protocol.frames import Command
from penstock.protocol.session import encode

Result = TypeVar("Result")
_PATIENCE_S = 3600.0


class AsyncCaller(ABC):
    """Asks a server for operations by their names."""

    @property
    @abstractmethod
    def link(self) -> Link:
        """The connection, and what is known of the server."""

    @property
    @abstractmethod
    def slices(self) -> Slices:
        """What is known of topics that are spread."""

    @abstractmethod
    async def ask(
        self,
        command: Command,
        body: bytes,
        *,
        topic: str | None = None,
        repeatable: bool = False,
        timeout_s: float | None = None,
    ) -> bytes:
        """Ask for something, of the owner of a topic if it is about one, and wait for the reply."""

    async def call(self, operation: str, result: type[Result] | None, /, **arguments: Any) -> Result:
        """Call an operation of the broker by its name."""
        body = encode_call(operation, arguments)
        rules = OPERATIONS.get(operation)  # a newer server may have more
        repeatable = rules is not None and rules.repeatable
        timeout_s = max(self.link.timeout_s, _PATIENCE_S) if rules is not None and rules.is_patient else None
        topic = None if rules is None else topic_of(rules, arguments)
        reply = await self.ask(Command.CALL, body, topic=topic, repeatable=repeatable, timeout_s=timeout_s)
        return decode_result(result, reply)

    async def ping(self) -> float:
        """Ask the server whether it is there; how many seconds the answer took."""
        started_s = time.perf_counter()
        await self.ask(Command.PING, encode(None), repeatable=True)
        return time.perf_counter() - started_s
