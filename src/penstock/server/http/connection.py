"""One HTTP connection: uvicorn's protocol, with limits of our own and the lane for plain publishes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from penstock.server.deadlines import Deadlines, UnreadReplies
from penstock.server.http.express import ExpressLane, PlainPublish
from penstock.server.http.failures import Problem, encode

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_HEAD_BYTES_MAX = 64 << 10
_ABOUT_UPGRADES = frozenset({b"connection", b"upgrade", b"http2-settings"})


class ConnectionState(ServerState):
    """What all connections know."""

    def __init__(
        self, opened: Callable[[Connection], None], gone: Callable[[], None], lane: ExpressLane, deadlines: Deadlines
    ) -> None:
        super().__init__()
        self.opened = opened
        self.gone = gone
        self.lane = lane
        self.deadlines = deadlines


class Connection(HttpToolsProtocol):
    """One connection of a client."""

    server_state: ConnectionState

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._heard_s = self.loop.time()
        self._begun_s: float | None = None  # when the head or the body that is not whole began to arrive
        self._in_body, self._body_bytes = False, 0
        self._unread = UnreadReplies(self.server_state.deadlines)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        self._head_bytes = 0  # what came since the last body, or the last request
        self._running: RequestResponseCycle | PlainPublish | None = None
        self._express: PlainPublish | None = None  # the request that is being read, if it takes the lane
        self.server_state.opened(self)

    def turn_away(self) -> None:
        """Say that this connection is one too many, and close it."""
        self._refuse(503, "too many connections (max_connections)", "try again later", b"retry-after: 1\r\n")

    def data_received(self, data: bytes) -> None:
        self._heard_s = self.loop.time()
        self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.parser.get_method() == b"CONNECT":
                self.send_400_response("this server is no proxy")
            elif not self._should_upgrade():
                self._go_on_without_upgrade(data[upgrade.args[0] :])
            elif self._is_busy():
                self.send_400_response("a WebSocket cannot begin before the requests before it are answered")
            else:
                self.handle_websocket_upgrade()
        except httptools.HttpParserError:
            self.send_400_response("this is not HTTP/1.1, or not as it must be")
        else:
            if self._head_bytes > _HEAD_BYTES_MAX:
                self._refuse(431, f"a head has more than {_HEAD_BYTES_MAX} bytes", "send less in headers")

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Pass over the wish for another protocol than WebSocket, such as HTTP/2, as if it had not been there."""
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/1.1\r\n"]
        for name, value in self.headers:
            if name not in _ABOUT_UPGRADES:
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"".join([*head, b"\r\n", rest]))

    def _is_passed_over(self) -> bool:
        return self.parser.should_upgrade() and not self._should_upgrade()

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        self._begun_s, self._in_body, self._body_bytes = self._heard_s, False, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        self._begun_s, self._in_body = self._heard_s, True
        self._express = None
        if self._is_passed_over():
            return
        is_busy = self._is_busy()
        if not is_busy and not self.expect_100_continue and self.parser.get_method() == b"POST":
            self._express = self.server_state.lane.enter(self)
        if self._express is not None:
            self._running = self.cycle = self._express  # type: ignore[assignment]
            return
        super().on_headers_complete()
        if not is_busy:
            self._running = self.cycle

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        self._body_bytes += len(body)
        if self._express is not None:
            self._express.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._begun_s = None
        if self._express is not None:
            self.server_state.lane.publish(self._express)
        elif not self._is_passed_over():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()

    def _is_busy(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._running is not None:  # which is not the last one that came, where others came behind it
            self._running.disconnected = True
            self._running.message_event.set()
        self.server_state.gone()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg, "see /docs")

    def _refuse(self, status: int, text: str, hint: str, more: bytes = b"") -> None:
        """Answer what cannot be a request, unless another reply is under way, and hang up."""
        if not (self._running is not None and self._running.response_started and self._is_busy()):
            body = encode(Problem(text, status, hint))
            self.transport.write(
                STATUS_LINE[status]
                + b"content-type: application/json\r\nconnection: close\r\n"
                + b"content-length: %d\r\n%b\r\n%b" % (len(body), more, body)
            )
        self.transport.close()

    def pause_writing(self) -> None:
        self._unread.begin(self.loop.time())
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread.end()
        super().resume_writing()

    def check_deadlines(self, now_s: float) -> None:
        """Hang up on a client that is too slow to send its request, or to read replies."""
        if self._unread.are_overdue(self.transport, now_s):
            self.transport.abort()
        elif self._begun_s is None or self.transport.is_closing():
            return
        elif self.flow.read_paused:
            self._begun_s = self._heard_s = now_s  # nothing could be heard meanwhile
        elif self._is_late(self._begun_s, now_s):
            if self._in_body and self.cycle.response_complete:
                self.transport.close()  # it was answered already
            else:
                self._refuse(
                    408, "the request did not arrive in time (request_timeout, idle_timeout)", "send it faster"
                )

    def _is_late(self, begun_s: float, now_s: float) -> bool:
        deadlines = self.server_state.deadlines
        return now_s - begun_s > deadlines.request_s(self._body_bytes) or now_s - self._heard_s > deadlines.idle_s


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A connection that became a WebSocket."""

    def __init__(self, config: Config, server_state: ConnectionState, app_state: dict[str, Any]) -> None:
        super().__init__(config, server_state, app_state)
        self._gone = server_state.gone
        self._unread = UnreadReplies(server_state.deadlines)

    def pause_writing(self) -> None:
        self._unread.begin(self.loop.time())
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread.end()
        super().resume_writing()

    def check_deadlines(self, now_s: float) -> None:
        """Hang up on a client that is too slow to read what it is sent."""
        if self._unread.are_overdue(self.transport, now_s):
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._gone()
