"""The express lane to other processes: small plain publishes go from one connection to another, with no task for them.

They go as they came, over kept connections that have one request at a time, to the express lane of the owner, which
has the same headers for all replies; so its reply can be passed on as it is. What an owner has refused, or could not
be asked, is asked of the owner of a moment later, for nothing was done.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.model.errors import NotOwner, PenstockError
from penstock.server.http.failures import NOT_OWNER
from penstock.server.http.forwarding import KEPT_MAX, Gone, Search, Unreachable, head_of
from penstock.server.membership import Membership

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n")
_END = b"\r\n\r\n"
_CLOSE = b"\r\nconnection: close"

OnReply = Callable[[bytes, bytes, PenstockError | None], None]
"""Called with the head of a reply, without its end, and with its body; or with why there is none."""


class _Request:
    """A publish that is on its way to its owner."""

    __slots__ = ("data", "on_reply", "search", "topic")

    def __init__(self, topic: str, data: bytes, on_reply: OnReply, search: Search) -> None:
        self.topic, self.data, self.on_reply, self.search = topic, data, on_reply, search


class _Channel(asyncio.Protocol):
    """A connection to the HTTP port of another process."""

    def __init__(self, relay: ExpressRelay, process: int) -> None:
        self._relay, self._process = relay, process
        self._transport: Any = None
        self._request: _Request | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def send(self, request: _Request) -> None:
        self._request = request
        self._transport.write(request.data)

    def data_received(self, data: bytes) -> None:
        reply = self._received = self._received + data
        end = reply.find(_END)
        if end < 0 or self._request is None:
            return
        found = _LENGTH.search(reply, 0, end + 2)
        if found is None:  # no reply of an express lane
            self.close()
        elif len(reply) >= end + len(_END) + int(found[1]):
            self._answered(reply[:end], reply[end + len(_END) :])

    def _answered(self, head: bytes, body: bytes) -> None:
        request, self._request, self._received = self._request, None, b""
        assert request is not None
        if _CLOSE in head:
            head = head.replace(_CLOSE, b"")
            self.close()
        else:
            self._relay.keep(self._process, self)
        if NOT_OWNER in head:
            self._relay.again(request, NotOwner("its shard is on its way to another process: try again"))
        else:
            request.on_reply(head, body, None)

    def connection_lost(self, error: Exception | None) -> None:
        self._relay.forget(self._process, self)
        request, self._request = self._request, None
        if request is not None:
            told = f"process {self._process} ended in the middle: it is not known whether it was done"
            request.on_reply(b"", b"", Gone(told))

    def close(self) -> None:
        self._transport.close()


class ExpressRelay:
    """Passes plain publishes on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, membership: Membership) -> None:
        self._loop, self._membership = loop, membership
        self._kept: dict[int, list[_Channel]] = {}
        self._connecting: set[asyncio.Task[None]] = set()

    def publish(
        self, topic: str, path: bytes, query: bytes, headers: list[tuple[bytes, bytes]], body: bytes, on_reply: OnReply
    ) -> None:
        """Have the owner of a topic publish what came in a request."""
        scope = {"method": "POST", "raw_path": path, "query_string": query, "headers": headers}
        data = head_of(scope, len(body), chunked=False) + body
        self._ask(_Request(topic, data, on_reply, Search(self._loop.time())))

    def _ask(self, request: _Request) -> None:
        """Ask the owner of now."""
        process = self._membership.owner_of(request.topic)
        if process < 0:
            self.again(request, NotOwner("its shard is on its way to another process: try again"))
            return
        kept = self._kept.get(process)
        if kept:
            kept.pop().send(request)
            return
        task = self._loop.create_task(self._connect(process, request))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, process: int, request: _Request) -> None:
        place = self._membership.place_of(process)
        try:
            channel = await place.connect("http", partial(_Channel, self, process))
        except OSError:
            told = f"process {process} cannot be reached: nothing was done, try again"
            self.again(request, Unreachable(told))
        else:
            channel.send(request)

    def again(self, request: _Request, error: PenstockError) -> None:
        """Nothing was done: ask again in a moment, as long as that is worth it."""
        if request.search.is_over(self._loop.time()):
            request.on_reply(b"", b"", error)
        else:
            self._loop.call_later(request.search.pause_s(), self._ask, request)

    def keep(self, process: int, channel: _Channel) -> None:
        """A connection is free."""
        kept = self._kept.setdefault(process, [])
        if len(kept) < KEPT_MAX:
            kept.append(channel)
        else:
            channel.close()

    def forget(self, process: int, channel: _Channel) -> None:
        """A connection is gone."""
        kept = self._kept.get(process, [])
        if channel in kept:
            kept.remove(channel)

    def close(self) -> None:
        """Close what is kept."""
        for channels in list(self._kept.values()):
            for channel in list(channels):
                channel.close()
