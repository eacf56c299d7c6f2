"""What other processes answer, or all together: where a request that came to one of them goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.server.access.principal import Principal
from penstock.server.access.principal import Scope as Needed
from penstock.server.http.browsers import Headers
from penstock.server.http.destinations import by_address, by_body, has_receipts, may_be_told_by_body
from penstock.server.http.events import EVENTS, UNBUFFERED
from penstock.server.http.forwarding import Forwarder, Scope, Send, disconnected, is_small
from penstock.server.http.gathering import Gatherer, Reply
from penstock.server.http.intake import Incoming, Receive
from penstock.server.http.live import points_of_all
from penstock.server.http.merging import gathered
from penstock.server.http.scattering import Scattering
from penstock.server.http.splitting import finish_parts, parts_of
from penstock.server.http.websocket_relay import relay_websocket
from penstock.server.membership import Membership
from penstock.server.peer_places import Place

if TYPE_CHECKING:
    from penstock.server.http.members import Members
    from penstock.server.services import Services

Pairs = list[tuple[bytes, bytes]]
Answer = Callable[[int, Pairs, bytes], Awaitable[None]]
"""Send a whole reply: its status, its headers beside those that all have, and its body."""
_JSON = (b"content-type", b"application/json")


class Elsewhere:
    """Has other processes answer what is for them."""

    def __init__(self, services: Services, membership: Membership, members: Members) -> None:
        self._services, self._membership, self._members = services, membership, members
        self._forwarder = Forwarder(membership)
        self._gatherer = Gatherer(self._forwarder, membership, services.workers)
        assert services.scattered is not None  # there are other processes
        self._scattering = Scattering(services, services.scattered, self._forwarder, self._gatherer)

    def close(self) -> None:
        """Close the connections to other processes."""
        self._forwarder.close()

    async def answer(
        self, scope: Scope, incoming: Incoming, headers: Headers, principal: Principal, send: Send, answer: Answer
    ) -> int | None:
        """Have a request answered that is not for this process; the status, or None if it is for this one."""
        method, path = scope["method"], scope["path"]
        find = partial(by_address, self._membership, path, scope["query_string"])
        target, body = find(), None
        if target is None and may_be_told_by_body(method, path):
            body = await incoming.read()
            incoming.put_back(body)
            parts = parts_of(body, self._membership.number) if has_receipts(path) else None
            if parts is not None:
                status, reply = await finish_parts(self._forwarder, scope, parts)
                await answer(status, [_JSON], reply)
                return status
            find = partial(by_body, self._membership, path, body)
            target = find()
        if target is None:
            return await self._gather(scope, incoming, principal, send, answer)
        if target == self._membership.number:
            return await self.answer_at_home(scope, incoming, send, answer)
        if body is None and method in ("POST", "PUT", "PATCH") and is_small(headers):
            body = await incoming.read()  # so that it can be sent again
        return await self._forwarder.forward(find, scope, incoming.receive, send, body)

    async def answer_at_home(self, scope: Scope, incoming: Incoming, send: Send, answer: Answer) -> int | None:
        """Have a request answered that is for this process, but about a topic of which others have slices too."""
        found = await self._scattering.answer(scope, incoming, send)
        if isinstance(found, Reply):
            await answer(found.status, [(b"content-type", found.media_type)], found.body)
            return found.status
        return found

    async def relay(self, scope: Scope, receive: Receive, send: Send, *, is_at_home: bool) -> bool:
        """Talk for the client of a WebSocket to the processes that it is for; whether it is not for this one alone.

        `is_at_home`: another process has found that it is for this one.
        """

        def place_of_owner() -> Place | None:
            owner = by_address(self._membership, scope["path"], b"")
            return None if owner is None or owner < 0 else self._membership.place_of(owner)

        if is_at_home or by_address(self._membership, scope["path"], b"") in (None, self._membership.number):
            return await self._scattering.relay(scope, receive, send)
        await relay_websocket(place_of_owner, scope, receive, send)
        return True

    async def _gather(
        self, scope: Scope, incoming: Incoming, principal: Principal, send: Send, answer: Answer
    ) -> int | None:
        """Have all processes answer what concerns all of them."""
        if scope["method"] == "GET" and scope["path"] == "/v1/live":
            principal.require(Needed.READ)
            points = points_of_all(self._forwarder, list(self._membership.map.addresses), scope, self._members)
            await self._stream(points, incoming, principal, send)
            return 200
        found = gathered(scope["method"], scope["path"])
        if found is None:
            return None
        reply = await self._gatherer.answer(found, scope)
        await answer(reply.status, [(b"content-type", reply.media_type)], reply.body)
        return reply.status

    async def _stream(
        self, events: AsyncGenerator[bytes], incoming: Incoming, principal: Principal, send: Send
    ) -> None:
        """Send events until there are no more, the client has gone or its token is no longer valid."""
        more = [(b"content-type", EVENTS.encode())]
        more += [(name.encode(), value.encode()) for name, value in UNBUFFERED.items()]
        await send({"type": "http.response.start", "status": 200, "headers": more})
        left = asyncio.create_task(disconnected(incoming.receive))
        try:
            async for event in events:
                if left.done() or not self._services.access.is_valid(principal):
                    break
                await send({"type": "http.response.body", "body": event, "more_body": True})
        finally:
            left.cancel()
            await events.aclose()
        await send({"type": "http.response.body", "body": b""})
