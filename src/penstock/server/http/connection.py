"""One HTTP connection: uvicorn's protocol, with limits of our own and the lane for plain publishes."""

from __future__ import annotations

import asyncio
import re
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
_VERSIONS = {"1.1": b"HTTP/1.1\r\n", "1.0": b"HTTP/1.0\r\n"}
_PASSED_OVER_MAX = 16  # wishes for another protocol in what arrives at once
_AHEAD_MAX = 1000  # requests that wait for the reply to another one
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~%!$&'()*+,;=-]{0,255})(:[0-9]{0,5})?")


class NotAsItMustBe(Exception):
    """A head that RFC 9112 asks to refuse, though the parser would take it."""


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


class Watched(asyncio.Protocol):
    """A connection that knows since when its client leaves replies unread."""

    loop: asyncio.AbstractEventLoop
    _unread: UnreadReplies

    def pause_writing(self) -> None:
        self._unread.begin(self.loop.time())
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread.end()
        super().resume_writing()


class Connection(Watched, HttpToolsProtocol):
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
        self._in_head = self._in_chunks = False
        self._raw = b""  # what is being parsed, with all of the head that is not whole
        self._at: int | None = 0  # where in it the next request begins; None: somewhere behind a body in chunks
        self._farewell: bytes | None = None  # said after the replies that are owed; nothing more is heard
        self._running: RequestResponseCycle | PlainPublish | None = None
        self._express: PlainPublish | None = None  # the request that is being read, if it takes the lane
        self.server_state.opened(self)

    def turn_away(self) -> None:
        """Say that this connection is one too many, and close it."""
        self._refuse(503, "too many connections (max_connections)", "try again later", b"retry-after: 1\r\n")

    def data_received(self, data: bytes) -> None:
        self._heard_s = self.loop.time()
        if self._farewell is not None:
            return
        self._head_bytes += len(data)
        passed_over = 0
        try:
            while (rest := self._feed(data)) is not None:
                data, passed_over = rest, passed_over + 1
                if passed_over > _PASSED_OVER_MAX:
                    self.send_400_response("another protocol is asked for again and again")
                    return
        except httptools.HttpParserError as error:
            is_ours = isinstance(error.__context__, NotAsItMustBe)
            self.send_400_response(str(error.__context__) if is_ours else "this is not HTTP/1.1, or not as it must be")
        else:
            if self._head_bytes > _HEAD_BYTES_MAX:
                self._refuse(431, f"a head has more than {_HEAD_BYTES_MAX} bytes", "send less in headers")

    def _feed(self, data: bytes) -> bytes | None:
        """Have what arrived parsed; what is to be parsed anew where another protocol was asked for."""
        if self._in_head:
            self._raw += data
        else:
            self._raw, self._at = data, None if self._in_chunks else 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.parser.get_method() == b"CONNECT":
                self.send_400_response("this server is no proxy")
            elif not self._should_upgrade():
                return self._without_upgrade(data[upgrade.args[0] :])
            elif self._is_busy():
                self.send_400_response("a WebSocket cannot begin before the requests before it are answered")
            else:
                self.handle_websocket_upgrade()
        if self._in_head and self._at is not None:
            self._raw, self._at = self._raw[self._at :], 0
        elif not self._in_head:
            self._raw = b""
        return None

    def _without_upgrade(self, rest: bytes) -> bytes:
        """The same without the wish for another protocol than WebSocket, such as HTTP/2: it is passed over."""
        head = [self.parser.get_method(), b" ", self.url, b" ", _VERSIONS[self.parser.get_http_version()]]
        for name, value in self.headers:
            if name not in _ABOUT_UPGRADES:
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        return b"".join([*head, b"\r\n", rest])

    def _should_upgrade(self) -> bool:
        parser = self.parser
        return super()._should_upgrade() and parser.get_method() == b"GET" and parser.get_http_version() == "1.1"

    def _is_passed_over(self) -> bool:
        return self.parser.should_upgrade() and not self._should_upgrade()

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        self._begun_s, self._in_body, self._body_bytes = self._heard_s, False, 0
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._check_head()
        self._in_head = False
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

    def _check_head(self) -> None:
        """Raise NotAsItMustBe for what RFC 9112 asks to refuse: the parser knows other versions, and skips spaces."""
        if len(self.pipeline) >= _AHEAD_MAX:
            raise NotAsItMustBe(f"more than {_AHEAD_MAX} requests were sent ahead of their replies")
        version = self.parser.get_http_version()
        end = _VERSIONS.get(version)
        if end is None or not self._begins_with(b"%b %b %b" % (self.parser.get_method(), self.url, end)):
            raise NotAsItMustBe("the request line must be: method, space, target, space, HTTP/1.1")
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) != 1 and (hosts or version == "1.1"):
            raise NotAsItMustBe("there must be one Host header")
        if hosts and not _HOST.fullmatch(hosts[0]):
            raise NotAsItMustBe("the Host header must be a name or an address, with a port or without")

    def _begins_with(self, line: bytes) -> bool:
        """Whether a request line is in what arrived just as it was understood; finds the end of its head."""
        raw, at = self._raw, self._at
        if at is None:
            at = raw.find(line)
        while raw.startswith(b"\r\n", at):  # which may stand before a request
            at += 2
        self._at = raw.find(b"\r\n\r\n", at) + 4
        return raw.startswith(line, at)

    def on_chunk_header(self) -> None:
        """A body in chunks: where it ends is known to the parser alone."""
        self._at, self._in_chunks = None, True

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        self._body_bytes += len(body)
        if self._at is not None:
            self._at += len(body)
        if self._express is not None:
            self._express.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._begun_s = None
        self._in_chunks = False
        if self._express is not None:
            self.server_state.lane.publish(self._express)
        elif not self._is_passed_over():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()  # what was sent ahead is answered before more is read
        if self._farewell is not None and not self._is_busy() and not self.transport.is_closing():
            self.transport.write(self._farewell)
            self.transport.close()

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
        """Answer what cannot be a request, after those before it, and hang up; a reply under way is cut off."""
        if self._farewell is not None:
            return
        farewell = _last_words(status, text, hint, more)
        if self.pipeline and self.pipeline[0][0].more_body:  # it is this one that cannot be
            self.pipeline.popleft()
        running = self._running
        if running is not None and self._is_busy() and not running.more_body and not running.response_started:
            self._farewell = farewell
            return
        if running is None or not self._is_busy() or not running.response_started:
            self.transport.write(farewell)
        self.transport.close()

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


class WebSocketConnection(Watched, WebSocketsSansIOProtocol):
    """A connection that became a WebSocket."""

    def __init__(self, config: Config, server_state: ConnectionState, app_state: dict[str, Any]) -> None:
        super().__init__(config, server_state, app_state)
        self._gone = server_state.gone
        self._unread = UnreadReplies(server_state.deadlines)

    def check_deadlines(self, now_s: float) -> None:
        """Hang up on a client that is too slow to read what it is sent."""
        if self._unread.are_overdue(self.transport, now_s):
            self.transport.abort()

    def shutdown(self) -> None:
        """Tell the client that the server ends, unless it has ended the WebSocket itself."""
        if self.handshake_complete and self.conn.close_rcvd is not None:
            self.transport.close()
        else:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        self.conn.receive_data(data)
        if self.conn.parser_exc is not None and self.conn.close_sent is None:  # frames before the handshake was over
            self.transport.close()
        elif self.conn.parser_exc is not None:
            self.handle_parser_exception()
        elif self.conn.handshake_exc is not None and not self.handshake_initiated:
            # a head that the HTTP parser takes and that of WebSockets does not, such as one with many headers
            self.transport.write(_last_words(400, str(self.conn.handshake_exc), "see /docs"))
            self.transport.close()
        else:
            self.handle_events()

    def send_receive_event_to_app(self) -> None:
        """Close at a text that is none: a client's mistake is nothing for our log."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.send_close(1007)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._gone()


def _last_words(status: int, text: str, hint: str, more: bytes = b"") -> bytes:
    """A whole reply, with `more` headers, behind which the connection is closed."""
    body = encode(Problem(text, status, hint))
    head = STATUS_LINE[status] + b"content-type: application/json\r\nconnection: close\r\n"
    return head + b"content-length: %d\r\n%b\r\n%b" % (len(body), more, body)
