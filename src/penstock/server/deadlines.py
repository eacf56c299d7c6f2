"""How long clients may take to log in, to send a request and to read replies: one place for all ports.

Each deadline is absolute: sending a byte now and then does not extend it. Only large requests and replies get more
time, for the bytes that have arrived or wait to be read. How long a request waits for messages is not limited here, and
an idle connection is limited by `idle_timeout` alone.
"""

from __future__ import annotations

import asyncio

from penstock.server.settings.options import ServerConfig

HANDSHAKE_S = 5.0
"""How long a client may take until a connection with TLS is encrypted."""
CLOSING_S = 5.0
"""How long a client may take to read why its connection is closed."""
BYTES_A_SECOND = 8 << 10
"""The lowest speed of a large request or reply."""
_LOOK_S = 0.5


class Deadlines:
    """The deadlines of one server."""

    def __init__(self, config: ServerConfig) -> None:
        self.idle_s = config.idle_timeout
        self.login_s = config.login_timeout
        self._request_s = config.request_timeout
        self._unread_s = config.unread_timeout
        shortest_s = min(self.idle_s, self.login_s, self._request_s, self._unread_s)
        self.look_s = min(max(shortest_s / 4, 0.01), _LOOK_S)
        """How often connections are looked at."""

    def request_s(self, received_bytes: int = 0) -> float:
        """How long a request may take that is not whole, from its first byte on."""
        return self._request_s + received_bytes / BYTES_A_SECOND

    def unread_s(self, waiting_bytes: int) -> float:
        """How long replies of so many bytes may stay unread."""
        return self._unread_s + waiting_bytes / BYTES_A_SECOND


class UnreadReplies:
    """Since when a client has left so many replies unread that the server stopped writing to it."""

    __slots__ = ("_deadlines", "_most_bytes", "_since_s")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._since_s: float | None = None
        self._most_bytes = 0

    def begin(self, now_s: float) -> None:
        """The client is behind."""
        self._since_s, self._most_bytes = now_s, 0

    def end(self) -> None:
        """The client has caught up."""
        self._since_s = None

    def are_overdue(self, transport: asyncio.Transport, now_s: float) -> bool:
        """Whether the client took too long, also to read the last replies of a connection that is closing."""
        if self._since_s is None:
            if transport.is_closing():
                self.begin(now_s)
            return False
        self._most_bytes = max(self._most_bytes, transport.get_write_buffer_size())
        return now_s - self._since_s > self._deadlines.unread_s(self._most_bytes)
