"""Requests for other processes: passed on as they came, over kept connections, and answered with what comes back.

The process that a client came to has checked where the request is from, who sent it and how often; its owner checks the
token again, and what it allows. A connection has one request at a time. What is kept of a request or a reply is what
one side has sent and the other has not taken yet, for each waits for the other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import httptools

from penstock.model.errors import BrokerClosed, NotOwner
from penstock.model.units import parse_digits
from penstock.server.http.failures import NOT_OWNER
from penstock.server.http.intake import Event, Receive
from penstock.server.membership import Membership
from penstock.server.peer_places import open_streams

Scope = MutableMapping[str, Any]
Send = Callable[[Event], Awaitable[None]]

PEER = ""
"""The address of another process of this server, which has counted the request already."""
UNKNOWN = "?"
"""The address of a client that was gone before anybody asked."""
FROM_PEER = "penstock_from_peer"
"""What a request from another process of this server carries along."""
KEPT_MAX = 64
"""Connections to one process that nobody uses."""
_READ_BYTES = 64 << 10
_KEPT_BYTES_MAX = 1 << 20  # of a body
_MOVING_S = 6.0  # how long a shard may have no owner before the client hears of it: taking one over takes up to five
_AGAIN_S, _AGAIN_S_MAX = 0.02, 0.25  # when its next owner is looked for again, less and less often
_BEGUN = "penstock_body_begun"  # noted of a request whose body cannot be sent a second time
HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade", b"expect", b"proxy-connection"}
)
"""Headers that concern one connection only."""
_OF_BODIES = frozenset({b"content-length", b"transfer-encoding"})


class Gone(BrokerClosed):
    """A process ended in the middle: it is not known what was done."""


class Unreachable(BrokerClosed):
    """A process cannot be reached: nothing was done."""


class Search:
    """How long the owner of a shard is looked for, and how often."""

    __slots__ = ("_pause_s", "_until_s")

    def __init__(self, now_s: float) -> None:
        self._until_s, self._pause_s = now_s + _MOVING_S, _AGAIN_S / 1.5

    def is_over(self, now_s: float) -> bool:
        """Whether the client is to hear that there is none."""
        return now_s > self._until_s

    def pause_s(self) -> float:
        """When to look again."""
        self._pause_s = min(_AGAIN_S_MAX, 1.5 * self._pause_s)
        return self._pause_s


class _Reply:
    """What comes back, as it is parsed."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_headed = self.is_complete = self.is_refusal = False
        self.keeps_connection = False
        self.body: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == NOT_OWNER:
            self.is_refusal = True
        elif name not in HOP_BY_HOP:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.is_headed = True
        self.keeps_connection = self.parser.should_keep_alive()  # which is not known any more at its end

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = True

    def take_body(self) -> bytes:
        body, self.body = b"".join(self.body), []
        return body


class _Channel:
    """A connection to a port of another process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.is_reusable = False

    def close(self) -> None:
        self.writer.close()


class Forwarder:
    """Passes requests on to other processes."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._kept: dict[int, list[_Channel]] = {}
        membership.on_changed.append(self._forget_those_gone)

    async def forward(
        self, process: Callable[[], int | None], scope: Scope, receive: Receive, send: Send, body: bytes | None
    ) -> int:
        """Have the owner of now answer a request, all of whose body is given if it was read already; the status."""
        loop = asyncio.get_running_loop()
        search = Search(loop.time())
        while True:
            target = process()
            if target is None or target < 0:
                if search.is_over(loop.time()):
                    raise NotOwner("its shard is on its way to another process: try again")
            else:
                try:
                    return await self._ask(target, scope, receive, send, body)
                except (Unreachable, NotOwner):
                    if scope.get(_BEGUN) or (search.is_over(loop.time()) and process() == target):
                        raise
            await asyncio.sleep(search.pause_s())

    async def fetch(self, process: int, scope: Scope, body: bytes) -> tuple[int, bytes]:
        """The status and the body of what a process replies to a request with another body."""
        received: list[bytes] = []

        async def send(event: Event) -> None:
            received.append(event.get("body", b""))

        status = await self.forward(lambda: process, dict(scope), hand_over_nothing, send, body)
        return status, b"".join(received)

    async def listen(self, process: int, scope: Scope, take: Send) -> None:
        """Have somebody take what a process replies as it comes, until it ends."""
        await self.forward(lambda: process, dict(scope), hand_over_nothing, take, b"")

    async def _ask(self, process: int, scope: Scope, receive: Receive, send: Send, body: bytes | None) -> int:
        channel = await self._channel(process)
        try:
            status = await self._exchange(channel, scope, receive, send, body)
        except (OSError, EOFError, httptools.HttpParserError) as error:
            raise Gone(f"process {process} ended in the middle: it is not known whether it was done") from error
        finally:
            if channel.is_reusable and len(self._kept.setdefault(process, [])) < KEPT_MAX:
                self._kept[process].append(channel)
            else:
                channel.close()
        return status

    async def _channel(self, process: int) -> _Channel:
        kept = self._kept.get(process, [])
        while kept:
            channel = kept.pop()
            if not channel.reader.at_eof() and not channel.writer.is_closing():
                channel.is_reusable = False
                return channel
            channel.close()
        try:
            opened = await open_streams(self._membership.place_of(process), "http", _READ_BYTES)
        except OSError as error:
            raise Unreachable(f"process {process} cannot be reached: nothing was done, try again") from error
        return _Channel(*opened)

    async def _exchange(self, channel: _Channel, scope: Scope, receive: Receive, send: Send, body: bytes | None) -> int:
        names = {name for name, _ in scope["headers"]}
        chunked = body is None and b"content-length" not in names
        has_body = body is not None or scope["method"] not in ("GET", "HEAD") or not _OF_BODIES.isdisjoint(names)
        channel.writer.write(head_of(scope, len(body) if body is not None else None, chunked=chunked and has_body))
        sending: asyncio.Task[None] | None = None
        if body is not None:
            channel.writer.write(body)
        elif has_body:
            scope[_BEGUN] = True
            sending = asyncio.create_task(_send_body(channel.writer, receive, chunked=chunked))
        watching = asyncio.create_task(disconnected(receive)) if sending is None else None
        try:
            status, keeps_connection = await self._receive(channel, scope, send, watching)
            is_sent = sending is None or (sending.done() and not sending.cancelled() and sending.exception() is None)
            channel.is_reusable = keeps_connection and is_sent  # else the rest of the body would come before the next
            return status
        finally:
            for task in (sending, watching):
                if task is not None:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, Exception):
                        await task

    @staticmethod
    async def _receive(
        channel: _Channel, scope: Scope, send: Send, watching: asyncio.Task[None] | None
    ) -> tuple[int, bool]:
        """Pass the reply on as it comes; its status, and whether another request may follow.

        A client that goes takes the request with it.
        """
        reply = _Reply()
        is_begun = False
        while not reply.is_complete:
            reading = asyncio.ensure_future(channel.reader.read(_READ_BYTES))
            waited = {reading} if watching is None else {reading, watching}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                raise Gone("the client went away")
            data = reading.result()
            if not data:
                raise EOFError
            reply.parser.feed_data(data)
            if reply.is_refusal:
                raise NotOwner("its shard is on its way to another process: try again")
            if reply.is_headed and not is_begun:
                is_begun = True
                status = reply.parser.get_status_code()
                await send({"type": "http.response.start", "status": status, "headers": reply.headers})
                if scope["method"] == "HEAD" or status in (204, 304):
                    reply.is_complete = True
            if is_begun and (reply.body or reply.is_complete):
                body = reply.take_body()
                await send({"type": "http.response.body", "body": body, "more_body": not reply.is_complete})
        return int(reply.parser.get_status_code()), reply.keeps_connection

    def _forget_those_gone(self) -> None:
        for process in self._kept.keys() - self._membership.map.addresses.keys():
            for channel in self._kept.pop(process):
                channel.close()

    def close(self) -> None:
        """Close what is kept."""
        for channels in self._kept.values():
            for channel in channels:
                channel.close()
        self._kept.clear()


def head_of(scope: Scope, length: int | None, *, chunked: bool) -> bytes:
    """The head of a request, as it came but for what concerns one connection only."""
    path = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    lines = [b"%b %b HTTP/1.1\r\n" % (scope["method"].encode(), path)]
    for name, value in scope["headers"]:
        if name not in HOP_BY_HOP and not (name == b"content-length" and length is not None):
            lines.append(b"%b: %b\r\n" % (name, value))
    if length is not None:
        lines.append(b"content-length: %d\r\n" % length)
    elif chunked:
        lines.append(b"transfer-encoding: chunked\r\n")
    return b"".join([*lines, b"\r\n"])


def is_small(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a body is small enough to be kept until its request is answered, so that it can be sent again."""
    length = parse_digits(headers.get(b"content-length", b"").decode("latin-1"))
    return length is not None and length <= _KEPT_BYTES_MAX


async def _send_body(writer: asyncio.StreamWriter, receive: Receive, *, chunked: bool) -> None:
    """Pass a body on as it comes, no quicker than it is taken."""
    more = True
    while more:
        event = await receive()
        if event["type"] != "http.request":
            writer.close()  # the client went in the middle: so does the request
            return
        body, more = event.get("body", b""), event.get("more_body", False)
        if body:
            writer.write(b"%x\r\n%b\r\n" % (len(body), body) if chunked else body)
            await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")


async def hand_over_nothing() -> Event:
    """For a request whose body is given, by somebody who does not go away."""
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
