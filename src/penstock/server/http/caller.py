"""The sender of a request, as the routes see it."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.api.operations import OPERATIONS
from penstock.model.errors import PenstockError, Unauthenticated
from penstock.model.message import MessageId
from penstock.server.access.principal import Principal, Scope
from penstock.server.http.browsers import Headers, check_taking

if TYPE_CHECKING:
    from litestar.connection import ASGIConnection
    from litestar.handlers import BaseRouteHandler
    from litestar.types import Guard

    from penstock.aio.consumer import AsyncDelivery
    from penstock.server.http.members import Member, Members
    from penstock.server.services import Services

Answer = TypeVar("Answer")
CALLER = "penstock_caller"
"""Where the front puts it among what a request carries along."""


class Caller:
    """The way from a route to the broker; it checks what the sender of the request may do."""

    __slots__ = ("_headers_of_get", "_receive", "members", "principal", "services")

    def __init__(
        self,
        services: Services,
        members: Members,
        principal: Principal,
        receive: Callable[[], Awaitable[Any]],
        headers_of_get: Headers | None,
    ) -> None:
        """`headers_of_get`: those of a GET, HEAD or WebSocket, which pages can send without saying from where."""
        self.services = services
        self.members = members
        self.principal = principal
        self._receive = receive
        self._headers_of_get = headers_of_get

    async def call(self, operation: str, **arguments: Any) -> Any:
        """The result of an operation of the broker; arguments that are None are left out."""
        given = {name: value for name, value in arguments.items() if value is not None}
        return await self.services.call(self.principal, operation, **given)

    async def ask(self, view: Callable[..., Answer], about: MessageId | str, *arguments: Any) -> Answer:
        """What a function of a shard answers about a message, or a topic that lives in one; called in a thread."""
        shards = self.services.shards
        shard = shards.of(about) if isinstance(about, str) else shards.of_message(about)
        return await self.services.workers.run(partial(view, shard, about, *arguments))

    async def ask_all(self, view: Callable[..., Answer], *arguments: Any, slow: bool = False) -> Answer:
        """What a function answers about all shards, or about a topic wherever it lives; called in a thread."""
        return await self.services.workers.run(partial(view, self.services.shards, *arguments), slow=slow)

    async def left(self) -> None:
        """Return when the client has disconnected, for requests without a body that wait for something."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def is_gone(self) -> bool:
        """Whether a stream must end: the server is stopping, or the token of the caller is no longer valid."""
        return self.members.stopping or not self.services.access.is_valid(self.principal)

    async def receive(
        self, member: Member, wanted: int, wait_s: float, visibility_s: float | None = None
    ) -> list[AsyncDelivery]:
        """Messages for a member, unless the token of the caller became invalid while it waited."""
        found = await self.members.receive(member, wanted, wait_s, self.left, visibility_s)
        try:
            self.services.access.check(self.principal, now=True)
        except Unauthenticated:
            with contextlib.suppress(PenstockError):  # they are not held any more
                await member.consumer.release(found)
            raise
        return found

    def require(self, scope: Scope, topic: str | None = None) -> None:
        """Raise Forbidden unless this is allowed; what is more than reading, also to the page that may have sent it."""
        self.principal.require(scope, topic)
        if scope is not Scope.READ and self._headers_of_get is not None:
            check_taking(self._headers_of_get)


def permits(operation: str) -> list[Guard]:
    """The guard of a route whose body the framework reads: it checks the permission before the body is read.

    The handler checks a topic that is named in the body.
    """

    def check(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        caller = connection.scope["state"][CALLER]
        caller.require(OPERATIONS[operation].scope, connection.path_params.get("topic"))

    return [check]


async def provide_caller(request: ASGIConnection[Any, Any, Any, Any]) -> Caller:
    """The caller of a request, for handlers that ask for it."""
    caller = request.scope["state"][CALLER]
    assert isinstance(caller, Caller)
    return caller


def caller_given() -> dict[str, Any]:
    """The arguments of an application whose handlers ask for the caller."""
    from litestar.di import NamedDependency, Provide  # the framework is loaded after the server has started

    return {
        "dependencies": {"caller": Provide(provide_caller)},
        "signature_namespace": {"Caller": NamedDependency[Caller]},  # what handlers mean by it
    }
