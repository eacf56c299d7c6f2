"""The bodies of requests: each within its limit, and all together within what the server may hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from penstock.model.bounds import MANY_NAMES_BYTES_MAX, REQUEST_BYTES_MAX
from penstock.model.errors import InvalidArgument, LimitExceeded, Overloaded
from penstock.model.units import format_size, parse_digits

if TYPE_CHECKING:
    from penstock.server.settings.options import ServerConfig

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
_PUBLISHING = ("/v1/topics/", "/goqueue/v1/topics/", "/api/v1/queue/")
_PUBLISHES = ("/publish", "/messages", "/enqueue")
_LARGER = ("/v1/messages/", "/v1/schedules/")
_LETTERS = ("/dead-letters/redrive", "/dead-letters/purge")


def body_limit(path: str) -> int | None:
    """The most bytes that the body of a request to a path may have; None: as many as a request to publish."""
    if path.startswith(_PUBLISHING) and path.endswith(_PUBLISHES):
        return None
    return MANY_NAMES_BYTES_MAX if path.startswith(_LARGER) or path.endswith(_LETTERS) else REQUEST_BYTES_MAX


class Intake:
    """How much memory the bodies of all requests under way hold."""

    def __init__(self, config: ServerConfig) -> None:
        self.limit = config.max_request_bytes
        self.limit_of_all = config.max_buffered_bytes
        self.held_bytes = 0


class Incoming:
    """The body of one request."""

    __slots__ = ("_again", "_held_bytes", "_intake", "_limit", "_receive")

    def __init__(self, intake: Intake, length: bytes, receive: Receive, limit: int | None = None) -> None:
        """Raises LimitExceeded where `length`, the request's own word, is more than it may be."""
        self._intake = intake
        self._receive = receive
        self._limit = intake.limit if limit is None else min(limit, intake.limit)
        self._held_bytes = 0
        self._again: bytes | None = None
        announced = parse_digits(length.decode("latin-1"))
        if announced is not None:
            self._check(announced)

    async def receive(self) -> Event:
        """The next part of the body, or the event behind it."""
        if self._again is not None:
            again, self._again = self._again, None
            return {"type": "http.request", "body": again, "more_body": False}
        event = await self._receive()
        size = len(event.get("body", b""))
        if size:
            self._held_bytes += size
            self._intake.held_bytes += size
            self._check(self._held_bytes)
            if self._intake.held_bytes > self._intake.limit_of_all:
                raise Overloaded("too many large requests are under way at once (max_buffered_bytes): try later")
        return event

    async def read(self) -> bytes:
        """All of it; raises InvalidArgument when the client goes in the middle."""
        event = await self.receive()
        body: bytes = event.get("body", b"")
        if event["type"] == "http.request" and not event.get("more_body"):
            return body
        parts = [body]
        while event["type"] == "http.request" and event.get("more_body"):
            event = await self.receive()
            parts.append(event.get("body", b""))
        if event["type"] != "http.request":
            raise InvalidArgument("the connection ended before the body did")
        return b"".join(parts)

    def put_back(self, body: bytes) -> None:
        """Have a body that was read come again."""
        self._again = body

    def let_go(self) -> None:
        """Release the memory that the body held."""
        self._intake.held_bytes -= self._held_bytes
        self._held_bytes = 0

    def _check(self, size: int) -> None:
        if size > self._limit:
            which = " (max_request_bytes)" if self._limit == self._intake.limit else ""
            raise LimitExceeded(
                f"the body has {format_size(size)} or more; the limit is {format_size(self._limit)}{which}"
            )
