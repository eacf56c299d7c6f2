"""The express lane: small plain publishes, from the parser to the broker and back with nothing in between.

A task and an event of asyncio take as long as publishing: the lane halves the processor time of such a request (the
benchmarks measure it beside the usual way). Where something is special about a request, such as a large or chunked
body or an origin, it goes the usual way, through ASGI. What is published, and what the reply to it is, `publishing`
decides for both.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from penstock.model.errors import PenstockError
from penstock.model.names import TOPIC_NAME
from penstock.model.units import parse_digits
from penstock.server.http.express_relay import ExpressRelay
from penstock.server.http.failures import encode, headers_of, problem_of
from penstock.server.http.forwarding import FROM_PEER, PEER, UNKNOWN
from penstock.server.http.publishing import begin_one, publish_of

if TYPE_CHECKING:
    from penstock.server.http.connection import Connection
    from penstock.server.http.front import Front
    from penstock.server.services import Services

_BODY_BYTES_MAX = 64 << 10
_DONE = b"HTTP/1.1 200"
_SPECIAL = frozenset({b"origin", b"transfer-encoding", b"upgrade", b"sec-fetch-site"})


class _Nobody:
    """Whom uvicorn tells that a request has ended: nobody waits for it here."""

    def set(self) -> None:
        pass


_NOBODY = _Nobody()


class PlainPublish:
    """A request in the lane; uvicorn takes it for one of its own."""

    __slots__ = (
        *("body", "connection", "disconnected", "headers", "keep_alive", "message_event", "more_body", "path", "query"),
        *("response_complete", "response_started", "started_s", "topic"),
    )

    def __init__(
        self, connection: Connection, headers: dict[bytes, bytes], topic: str, path: str, query: bytes
    ) -> None:
        self.connection = connection
        self.headers = headers
        self.topic, self.path, self.query = topic, path, query
        self.keep_alive = True
        self.body = bytearray()
        self.more_body = True
        self.response_started = self.response_complete = self.disconnected = False
        self.message_event: Any = _NOBODY
        self.started_s = perf_counter()


class ExpressLane:
    """Publishes what comes through the lane, on all connections of the port."""

    def __init__(self, services: Services, front: Front) -> None:
        self._services = services
        self._front = front
        self._heads: dict[int, bytes] = {}
        self._guards = b"".join(b"%b: %b\r\n" % pair for pair in front.guards)
        self._date = b""
        self._membership = services.membership
        self._relay = None if self._membership is None else ExpressRelay(services.loop, self._membership)
        self.under_way = 0

    def set_date(self, date: bytes) -> None:
        """The date of the replies of the next second."""
        self._date = b"date: " + date + b"\r\n"
        self._heads.clear()

    def enter(self, connection: Connection) -> PlainPublish | None:
        """A request whose head was read, if it may take the lane."""
        raw_path, _, query = connection.url.partition(b"?")
        path = raw_path.decode("latin-1")
        operation, topic = publish_of(path) or (None, "")
        if operation != "publish" or "%" in path or not self._takes(topic):
            return None
        headers = dict(connection.headers)
        length = parse_digits(headers.get(b"content-length", b"").decode("latin-1"))
        if length is None or length > _BODY_BYTES_MAX or not _SPECIAL.isdisjoint(headers):
            return None
        version = connection.parser.get_http_version()
        request = PlainPublish(connection, headers, topic, path, query)
        request.keep_alive = version != "1.0" and connection.parser.should_keep_alive()
        return request

    def _takes(self, topic: str) -> bool:
        """Whether messages of a topic can take the lane: not where they may go to slices in several processes."""
        scattered = self._services.scattered
        return scattered is None or (TOPIC_NAME.fullmatch(topic) is not None and not scattered.is_scattered(topic))

    def publish(self, request: PlainPublish) -> None:
        """Its body is there: publish it, and reply when it is durable."""
        request.more_body = False
        connection, services = request.connection, self._services
        client, is_from_peer = connection.client, FROM_PEER in connection.app_state
        try:
            peer = PEER if is_from_peer else client[0] if client else UNKNOWN
            principal = self._front.admit(request.path, request.headers, peer)
            body = bytes(request.body)
            membership = self._membership
            if membership is not None and not is_from_peer and membership.is_elsewhere(request.topic):
                self._pass_on(request, body)  # what another process has passed on is for this one
                return
            reply, commit = begin_one(services, principal, request.topic, body, request.query, connection.headers)
        except Exception as error:  # noqa: BLE001 - whoever asked hears of it
            self._refuse(request, error)
            return
        self.under_way += 1
        services.commits.when_done(commit, partial(self._committed, request, reply))

    def _pass_on(self, request: PlainPublish, body: bytes) -> None:
        """Have the process publish it that has its topic."""
        assert self._relay is not None
        self.under_way += 1
        path, headers = request.path.encode("latin-1"), request.connection.headers
        self._relay.publish(request.topic, path, request.query, headers, body, partial(self._passed_on, request))

    def _passed_on(self, request: PlainPublish, head: bytes, body: bytes, error: PenstockError | None) -> None:
        self.under_way -= 1
        if error is None:
            self._send(request, "forwarded", not head.startswith(_DONE), head + b"\r\n", body)
        else:
            self._refuse(request, error)

    def close(self) -> None:
        """Close the connections to other processes."""
        if self._relay is not None:
            self._relay.close()

    def _committed(self, request: PlainPublish, reply: bytes, error: PenstockError | None) -> None:
        self.under_way -= 1
        if error is None:
            self._reply(request, 200, reply)
        else:
            self._refuse(request, error)

    def _refuse(self, request: PlainPublish, error: Exception) -> None:
        problem = problem_of(error)
        self._front.log_fault(problem, error)
        more = b"".join(b"%b: %b\r\n" % pair for pair in headers_of(error, problem.status))
        self._reply(request, problem.status, encode(problem), more)

    def _reply(self, request: PlainPublish, status: int, body: bytes, more: bytes = b"") -> None:
        head = self._heads.get(status) or self._head(status)
        self._send(request, "publish", status != 200, b"%b%bcontent-length: %d\r\n" % (head, more, len(body)), body)

    def _send(self, request: PlainPublish, operation: str, failed: bool, head: bytes, body: bytes) -> None:
        connection = request.connection
        self._services.metrics.request("http", operation, perf_counter() - request.started_s, failed)
        request.response_started = request.response_complete = True
        transport = connection.transport
        if not request.disconnected and not transport.is_closing():
            close = b"" if request.keep_alive else b"connection: close\r\n"
            transport.write(b"%b%b\r\n%b" % (head, close, body))
            if not request.keep_alive:
                transport.close()
        connection.on_response_complete()

    def _head(self, status: int) -> bytes:
        fixed = b"content-type: application/json\r\n"
        head = self._heads[status] = STATUS_LINE[status] + self._date + self._guards + fixed
        return head
