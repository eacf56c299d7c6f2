"""Asking a server without the event loop: the thread that waits for a reply sends its request and reads the reply.

Most programs do one thing at a time, and then two hops, to the thread of the loop and back, cost more than the server
does. So when requests have come one by one for a while, the loop stops to read and lends its socket to whoever asks
next. It takes the socket back when it has something to send itself, or when nobody has asked for some milliseconds.

Only who has the socket reads: it lies in `_free`, or a thread or the loop has taken it out. A thread that receives
anything but the one reply that it waits for brings all of it to the loop, with the socket, and waits there like others.

A signal can raise an exception in a thread between any two calls. So what others can see changes in single calls that
are made in C: the socket is taken and given back by such calls, and so are received bytes kept. Whatever is interrupted
between them, the loop gets the socket, the bytes and the request, and goes on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from functools import partial

from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.link import Link
from penstock.client.loop import SIGNAL_S, LoopThread
from penstock.client.pending import DIRECT, OnReply, Request, ignore_reply
from penstock.model.errors import BrokerClosed, ConnectionLost, PenstockError
from penstock.protocol.failures import decode_failure
from penstock.protocol.frames import ERROR, HEADER, HEADER_BYTES, VERSION, frame

_ALONE = 4  # requests, one after the other, before the socket is lent
_NOT_ALONE = -16  # the loop had something to send: so many more before it is lent again
_IDLE_S = 0.02
_REQUEST_BYTES_MAX = 8 << 10  # what the buffer of a socket takes at once, if it is empty
_RECEIVED_BYTES = (16 << 10,)
_REPLY_BYTES_MAX = 1 << 20  # what is larger, or no frame, is for the loop to judge
_FIRST = (0,)
_HERE_S = 1.0  # how long a thread waits for its reply; then the loop does, and knows when to give the server up


class _Lent:
    """The socket of a connection while it is lent."""

    __slots__ = ("connection", "generation", "sent", "socket")

    def __init__(self, connection: Connection, lent: socket.socket, generation: int) -> None:
        self.connection = connection
        self.socket = lent
        self.generation = generation
        self.sent = False  # whether the thread that has it only reads any more


class _Exchange:
    """A request of a thread, and what became of it."""

    __slots__ = ("_known", "error", "is_abandoned", "lent", "pieces", "reply", "request", "unwanted")

    def __init__(self, request: Request, unwanted: OnReply) -> None:
        self.request = request
        self.unwanted = unwanted
        self.lent: list[_Lent] = []  # the socket, while this thread has it
        self.pieces: list[bytes] = []  # what was received
        self.is_abandoned = False
        self.reply: bytes | None = None
        self.error: PenstockError | None = None
        self._known: threading.Lock | None = None

    def expect(self) -> None:
        """The loop will tell what becomes of it."""
        self._known = threading.Lock()
        self._known.acquire()

    def wait(self) -> None:
        """Wait until it does."""
        assert self._known is not None
        while not self._known.acquire(timeout=SIGNAL_S):
            pass

    def tell(self, reply: bytes | None, error: PenstockError | None) -> None:
        """What became of it; called on the loop."""
        if self.is_abandoned or self._known is None:
            self.unwanted(reply, error)
        else:
            self.reply, self.error = reply, error
            self._known.release()


class Direct:
    """Lends the socket of a link to threads that ask one by one."""

    def __init__(self, loop: LoopThread, link: Link) -> None:
        self._loop = loop
        self._link = link
        self._process = os.getpid()
        self._free: list[_Lent] = []
        self._lent: _Lent | None = None  # whether it is in `_free`, or a thread has it
        self._is_wanted = False  # by the loop
        self.uses = 0  # how many requests were answered to threads
        link.on_quiet = self._quiet

    # In the thread that asks.

    @property
    def generation(self) -> int:
        """Which connection of the link can be used now; 0: none."""
        free = self._free[-1:]
        return free[0].generation if free else 0

    def ask(
        self,
        command: int,
        body: bytes,
        replies: list[bytes],
        *,
        repeatable: bool = False,
        timeout_s: float | None = None,
        shard: int | None = None,
        unwanted: OnReply = ignore_reply,
    ) -> bool:
        """Ask for something, if the socket is free, and add the reply to `replies`; whether it was asked.

        Where it is about a shard and its reply is lost, it is asked again wherever the shard is then.
        If an exception interrupts the thread meanwhile, `unwanted` gets the reply, on the loop.
        """
        if not self._free or len(body) > _REQUEST_BYTES_MAX or os.getpid() != self._process or self._loop.is_here:
            return False
        patience_s = self._link.timeout_s if timeout_s is None else timeout_s
        data, now_s = frame(command, DIRECT, body), time.monotonic()
        request = Request(command, data, ignore_reply, repeatable, now_s, patience_s, shard)
        exchange = _Exchange(request, unwanted)
        request.on_reply = exchange.tell
        try:
            try:
                exchange.lent.extend(map(self._free.pop, _FIRST))
            except IndexError:
                return False
            if not self._is_wanted and self._ask_here(exchange):
                self._finish_here(exchange, replies)
            else:
                exchange.expect()
                self._loop.call(partial(self._take_over, exchange))
                exchange.wait()
                if exchange.reply is not None:
                    replies.append(exchange.reply)
        except BaseException:
            self._abandon(exchange)
            raise
        if exchange.error is not None:
            try:
                raise exchange.error
            finally:
                exchange.error = None  # no cycle with the frames of its traceback
        return True

    @staticmethod
    def _ask_here(exchange: _Exchange) -> bool:
        """Send the request and receive the reply; False if that is now up to the loop."""
        request, lent, pieces = exchange.request, exchange.lent[0], exchange.pieces
        try:
            request.sent_s = request.asked_s
            if lent.socket.send(request.frame) != len(request.frame):
                return False
            lent.sent = True
            while True:
                with contextlib.suppress(TimeoutError):
                    pieces.extend(map(lent.socket.recv, _RECEIVED_BYTES))
                    missing = _missing(pieces)
                    if missing <= 0:
                        return missing == 0
                if time.monotonic() > min(request.deadline_s, request.asked_s + _HERE_S):
                    return False
        except OSError:
            return False

    def _finish_here(self, exchange: _Exchange, replies: list[bytes]) -> None:
        """Give the socket back, and take the reply."""
        data = exchange.pieces[0] if len(exchange.pieces) == 1 else b"".join(exchange.pieces)
        body = data[HEADER_BYTES:]
        if data[1] == ERROR:
            exchange.error = decode_failure(body)
        else:
            replies.append(body)
        self.uses += 1
        exchange.lent[0].sent = False
        self._free.extend(map(exchange.lent.pop, _FIRST))
        if self._is_wanted:
            self._loop.call(self._reclaim)

    def _abandon(self, exchange: _Exchange) -> None:
        """An exception interrupts the thread: what it has goes to the loop."""
        exchange.is_abandoned = True
        try:
            self._loop.call(partial(self._take_over, exchange))
        except BrokerClosed:
            for lent in exchange.lent:
                lent.socket.close()

    # On the loop.

    def _quiet(self, connection: Connection) -> None:
        """All requests are answered; if they came one by one, lend the socket."""
        if self._link.alone < _ALONE or self._link.on_push or self._lent is not None:
            return
        lent = connection.lend(self._may_write, self._reclaim)
        if lent is not None:
            lent.settimeout(SIGNAL_S)
            self._lent = _Lent(connection, lent, self._link.generation)
            self._free.append(self._lent)
            self._link.loop.call_later(_IDLE_S, self._look, self._lent, self.uses)

    def _look(self, lent: _Lent, uses: int) -> None:
        """Take the socket back if nobody has used it for a while."""
        if lent is not self._lent:
            return
        if uses != self.uses:
            lent.connection.heard_s = lent.connection.sent_s = self._link.loop.time()
        elif self._free:
            self._reclaim()
            return
        self._link.loop.call_later(_IDLE_S, self._look, lent, self.uses)

    def _may_write(self) -> bool:
        """Whether the loop may write to the socket; if not, it may soon."""
        self._link.alone = _NOT_ALONE
        self._reclaim()
        return self._lent is None or self._lent.sent

    def _reclaim(self) -> None:
        """Take the socket back, now or when the thread that has it is done."""
        if self._lent is None:
            return
        self._is_wanted = True
        with contextlib.suppress(IndexError):
            self._take_back(self._free.pop(), [])

    def _take_back(self, lent: _Lent, pieces: list[bytes]) -> None:
        self._lent, self._is_wanted = None, False
        lent.socket.close()
        lent.connection.take_back(pieces)

    def _take_over(self, exchange: _Exchange) -> None:
        """Go on with a request in the place of a thread."""
        if exchange.reply is not None:  # and now the thread is interrupted
            exchange.unwanted(exchange.reply, None)
        if not exchange.lent:
            return
        lent = exchange.lent.pop()
        request = exchange.request
        if request.sent_s is not None and not lent.sent and not exchange.is_abandoned:
            lent.connection.abort(ConnectionLost("a request was sent in part only"))
        self._link.adopt(request, lent.connection)
        self._take_back(lent, exchange.pieces)


class Directs:
    """One for each link of a client; used from any thread."""

    def __init__(self, loop: LoopThread, cluster: Cluster) -> None:
        self._loop, self._cluster = loop, cluster
        self.first = Direct(loop, cluster.first)
        self._others: dict[Link, Direct] = {}

    def of(self, topic: str | None) -> Direct:
        """The one for the owner of a topic, or for any process."""
        if topic is None or not self._cluster.is_mapped:
            return self.first
        return self.of_link(self._cluster.link_known(topic) or self._cluster.first)

    def shard_of(self, topic: str | None) -> int | None:
        """The shard of a topic, where they are in several processes."""
        return None if topic is None else self._cluster.shard_of(topic)

    def of_link(self, link: Link) -> Direct:
        """The one for a link."""
        if link is self._cluster.first:
            return self.first
        found = self._others.get(link)
        if found is None:
            found = self._others.setdefault(link, Direct(self._loop, link))
        return found


def _missing(pieces: list[bytes]) -> int:
    """How many bytes of the reply are missing; less than 0: this is not the reply, or not that alone."""
    first: bytes = pieces[0]
    if not pieces[-1] or len(first) < HEADER_BYTES:
        return -1
    version, _, correlation, length = HEADER.unpack_from(first)
    if version != VERSION or correlation != DIRECT or length > _REPLY_BYTES_MAX:
        return -1
    return HEADER_BYTES + int(length) - sum(map(len, pieces))
