"""What every HTTP request passes first: checks of its origin, its token and its size. Then it is routed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.utils import ClientDisconnected

from penstock.model.errors import BrokerClosed, InvalidArgument, PenstockError
from penstock.server.access.principal import ANYBODY, Principal
from penstock.server.access.principal import Scope as Needed
from penstock.server.access.rates import rate_key
from penstock.server.http.browsers import PROOF, BrowserGuard, Headers
from penstock.server.http.caller import CALLER, Caller
from penstock.server.http.elsewhere import Elsewhere
from penstock.server.http.failures import Problem, close_reason, encode, headers_of, problem_of
from penstock.server.http.forwarding import FROM_PEER, PEER, UNKNOWN
from penstock.server.http.intake import Event, Incoming, Intake, Receive, body_limit
from penstock.server.http.publishing import OPERATIONS, publish_of

if TYPE_CHECKING:
    from penstock.server.http.members import Members
    from penstock.server.services import Services

Scope = MutableMapping[str, Any]
Send = Callable[[Event], Awaitable[None]]
Pairs = list[tuple[bytes, bytes]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger("penstock.server")
COOKIE = b"penstock_token"
_JSON = (b"content-type", b"application/json")
_UNVERSIONED = frozenset(
    {"topics", "groups", "messages", "delay", "priority", "rebalance", "reliability", "stats", "traces"}
)
_OPEN = frozenset({"/", "/health", "/healthz", "/livez", "/readyz", "/version", "/favicon.ico", "/v1/login"})
"""Paths that need no token: they only show that the server is there."""
_OPEN_BELOW = ("/ui/", "/docs")
_POLICY = (
    b"default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'"
)
_GUARDS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", _POLICY),
    (b"cache-control", b"no-store"),
]
_OPEN_BYTES_MAX = 64 << 10  # what somebody without a token may send
_STARTED = "penstock_started"
_PATH_BYTES_MAX, _QUERY_BYTES_MAX, _PARAMETERS_MAX = 2048, 8192, 100
"""The framework keeps a thousand paths and queries of late, as they came and as it read them."""


class Front:
    """The outermost application: requests that it accepts go to publishing, or to the framework's routes."""

    def __init__(self, services: Services, members: Members, app: Callable[[], Awaitable[App]]) -> None:
        self._services = services
        self._members = members
        self._app = app
        self._intake = Intake(services.config)
        self._browsers = BrowserGuard(services.config)
        self._origins = self._browsers.origins
        self._asks = services.config.auth != "off"
        secure = [(b"strict-transport-security", b"max-age=31536000")] if services.tls is not None else []
        self.guards = [*_GUARDS, *secure]
        """Headers that every reply has, and that keep browsers from doing what they should not."""
        self.stopping = False
        membership = services.membership
        self._elsewhere = None if membership is None else Elsewhere(services, membership, members)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request or a WebSocket."""
        kind = scope["type"]
        if kind not in ("http", "websocket"):
            return
        path = scope["path"]
        if path[1:].partition("/")[0] in _UNVERSIONED:
            path = scope["path"] = f"/v1{path}"
            scope["raw_path"] = b"/v1" + scope["raw_path"]
        headers: dict[bytes, bytes] = dict(scope["headers"])
        started_s, operation, failed = perf_counter(), "refused", True
        incoming: Incoming | None = None
        try:
            method = scope.get("method", "GET")
            if method == "OPTIONS" and headers.get(b"origin", b"").decode("latin-1") in self._origins:
                await self._preflight(headers, send)
                return
            client, is_from_peer = scope.get("client"), FROM_PEER in scope.get("state", {})
            principal = self.admit(path, headers, PEER if is_from_peer else client[0] if client else UNKNOWN)
            if kind == "http":
                limit = _OPEN_BYTES_MAX if self._asks and is_open(path) else body_limit(path)
                incoming = Incoming(self._intake, headers.get(b"content-length", b""), receive, limit)
                receive = incoming.receive
                if self._elsewhere is not None:
                    sending, answer = self._counted(scope, headers, send), partial(self._answer, send, headers)
                    if is_from_peer:
                        status = await self._elsewhere.answer_at_home(scope, incoming, sending, answer)
                    else:
                        status = await self._elsewhere.answer(scope, incoming, headers, principal, sending, answer)
                    if status is not None:
                        operation, failed = "forwarded", status >= 400
                        return
                    receive = incoming.receive
            elif self._elsewhere is not None and await self._elsewhere.relay(
                scope, receive, send, is_at_home=is_from_peer
            ):
                operation, failed = "forwarded", False
                return
            publish = publish_of(path) if incoming is not None and method == "POST" else None
            if incoming is not None and publish is not None:
                operation, topic = publish
                principal.require(Needed.PUBLISH, topic)
                body = await incoming.read()
                reply = await OPERATIONS[operation](
                    self._services, principal, topic, body, scope["query_string"], scope["headers"]
                )
                failed = False
                await self._answer(send, headers, 200, [_JSON], reply)
                return
            operation, failed = await self._go_on(scope, receive, send, headers, principal)
        except Exception as error:
            if scope.get(_STARTED) or isinstance(error, ClientDisconnected):
                raise  # a reply that has begun cannot be taken back: the connection is closed
            await self._refuse(kind, send, headers, error)
        finally:
            if incoming is not None:
                incoming.let_go()
            self._services.metrics.request("http", operation, perf_counter() - started_s, failed)

    def close(self) -> None:
        """Close the connections to other processes."""
        if self._elsewhere is not None:
            self._elsewhere.close()

    def _counted(self, scope: Scope, headers: Headers, send: Send) -> Send:
        """Send replies with the headers that all have, and note that one has begun, and its status."""
        extra = self._headers(headers)

        async def sending(event: Event) -> None:
            if event["type"] == "http.response.start":
                scope[_STARTED] = event["status"]
                has = {name for name, _ in event["headers"]}
                event["headers"] = [*event["headers"], *(pair for pair in extra if pair[0] not in has)]
            await send(event)

        return sending

    async def _go_on(
        self, scope: Scope, receive: Receive, send: Send, headers: Headers, principal: Principal
    ) -> tuple[str, bool]:
        """Pass a request to the framework; returns the operation, and whether it failed."""
        path, query = scope["raw_path"], scope["query_string"]
        if len(path) > _PATH_BYTES_MAX or len(query) > _QUERY_BYTES_MAX or query.count(b"&") >= _PARAMETERS_MAX:
            raise InvalidArgument(
                f"the address is too long: a path has at most {_PATH_BYTES_MAX} bytes, and what stands behind it "
                f"{_QUERY_BYTES_MAX}, with {_PARAMETERS_MAX} parameters"
            )
        headers_of_get = headers if scope.get("method", "GET") in ("GET", "HEAD") else None
        caller = Caller(self._services, self._members, principal, receive, headers_of_get)
        scope.setdefault("state", {})[CALLER] = caller
        app = await self._app()
        await app(scope, receive, self._counted(scope, headers, send))
        handler = scope.get("route_handler")
        return getattr(handler, "handler_name", "unknown"), scope.get(_STARTED, 0) >= 400

    # Who, and from where.

    def admit(self, path: str, headers: Headers, peer: str) -> Principal:
        """Who sent a request; raises Forbidden, Unauthenticated, or Overloaded if they sent too many."""
        if self.stopping:
            raise BrokerClosed("the server is stopping")
        needs_no_token = is_open(path)
        if peer != PEER:  # which has checked it, under its own names
            self._browsers.check(headers, linked=needs_no_token)
        rates = self._services.rates
        if needs_no_token or not self._asks:
            principal = NOBODY if self._asks else ANYBODY
        else:
            try:
                principal = self._services.access.authenticate(_secret_of(headers))
            except PenstockError:
                rates.take(rate_key(NOBODY, peer))
                raise
        if rates.limited and peer != PEER:
            rates.take(rate_key(principal, peer))
        return principal

    # Replies.

    @staticmethod
    def log_fault(problem: Problem, error: Exception) -> None:
        """Log an error that is the server's own fault."""
        if problem.status == 500:
            _log.exception("a request failed", exc_info=error)

    async def _refuse(self, kind: str, send: Send, headers: Headers, error: Exception) -> None:
        problem = problem_of(error)
        self.log_fault(problem, error)
        if kind == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": close_reason(problem.error)})
            return
        more = [*headers_of(error, problem.status), _JSON]
        if b"expect" in headers:
            more.append((b"connection", b"close"))  # the body was not asked for, and may come or not
        await self._answer(send, headers, problem.status, more, encode(problem))

    async def _answer(self, send: Send, headers: Headers, status: int, more: Pairs, body: bytes) -> None:
        length = (b"content-length", str(len(body)).encode())
        await send(
            {"type": "http.response.start", "status": status, "headers": [*self._headers(headers), *more, length]}
        )
        await send({"type": "http.response.body", "body": body})

    async def _preflight(self, headers: Headers, send: Send) -> None:
        """A browser asks whether a page of another origin may send a request."""
        allowed = [
            (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
            (b"access-control-allow-headers", b"authorization, content-type, " + PROOF),
            (b"access-control-max-age", b"600"),
        ]
        await self._answer(send, headers, 204, allowed, b"")

    def _headers(self, headers: Headers) -> Pairs:
        """The headers of every reply."""
        found = list(self.guards)
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1") in self._origins:
            found += [(b"access-control-allow-origin", origin), (b"vary", b"origin")]
        return found


NOBODY = Principal("nobody", frozenset())
"""The principal of requests that need no token."""


def is_open(path: str) -> bool:
    """Whether a path needs no token."""
    return path in _OPEN or path.startswith(_OPEN_BELOW)


def _secret_of(headers: Headers) -> str | None:
    """The token that a request carries: in its header, or in the cookie of the dashboard."""
    kind, _, secret = headers.get(b"authorization", b"").partition(b" ")
    if kind.lower() == b"bearer":
        return secret.strip().decode("latin-1")
    for part in headers.get(b"cookie", b"").split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == COOKIE:
            return value.decode("latin-1")
    return None
