"""One connection of the text port: its bytes, its limits, and the order of its replies."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from penstock.model.errors import InvalidArgument, Overloaded, PenstockError, Unauthenticated
from penstock.server.deadlines import CLOSING_S, UnreadReplies
from penstock.server.line.lines import LineSplitter, NotThisProtocol, strip_telnet
from penstock.server.line.replies import error_line
from penstock.server.line.session import PEER, UNKNOWN, LineSession, Reply

if TYPE_CHECKING:
    from penstock.server.line.listener import LineListener

_UNANSWERED_MAX = 1000  # lines that are under way at once
_UNREAD_BYTES = 256 << 10  # of lines that wait for their turn; with more, nothing more is read
_UNREAD_LINES = 1000
_LINES_A_TURN = 200  # of one connection; then it is the turn of the others
_COUNTED_BYTES = 64 << 10  # less than this is not counted
_UNSENT_BYTES = 256 << 10  # of replies that wait for the end of a turn of the loop
_LINGERING_S = 1.0  # how long somebody who is sent away may go on speaking
_PATIENCE = 20  # times what programs get: people think before they type


class Connection(asyncio.Protocol):
    """Lines in, replies out, in the same order; what many lines in one packet ask for is begun together."""

    def __init__(self, listener: LineListener, *, is_peer: bool = False) -> None:
        self._listener = listener
        self._is_peer = is_peer  # whether another process of this server has opened it, for a client of its own
        self._loop = listener.loop
        self._splitter = LineSplitter(listener.config.max_line_bytes)
        self._transport: asyncio.Transport
        self._session: LineSession
        self.serving: asyncio.Task[None]
        self._lines: deque[bytes | None] = deque()
        self._unread_bytes = 0
        self._counted_bytes = 0
        self._replies: deque[Reply] = deque()
        self._unknown = 0  # replies that are not known yet
        self._unsent_bytes = 0
        self._flushing = False
        self._woken: asyncio.Future[None] | None = None
        self._reading = self._writable = True
        self._no_more = False  # no line is begun any more
        self._farewell = b""
        self._lingers = False
        self._is_over = False  # everything was said
        self._aborting: asyncio.TimerHandle | None = None
        self.closed = False
        self._unread = UnreadReplies(listener.deadlines)
        self.heard_s = self._opened_s = self._begun_s = self._loop.time()  # begun: the line that has no end yet

    def check_access(self) -> None:
        """Raise Unauthenticated if whoever was let in would not be any more."""
        self._session.check_access()

    def leaves_replies_unread(self, now_s: float) -> bool:
        """Whether it is too slow to read what it asked for."""
        return self._unread.are_overdue(self._transport, now_s)

    def overdue(self, now_s: float) -> PenstockError | None:
        """What the client has not done in time, if anything."""
        if self._session.is_peer:  # which looks after its clients itself
            return None
        deadlines, is_known = self._listener.deadlines, self._session.is_known
        if not is_known and now_s - self._opened_s > deadlines.login_s:
            return Unauthenticated(f"there was no AUTH within {deadlines.login_s:g} s (login_timeout)")
        if not self._reading:
            return None
        patience = _PATIENCE if is_known else 1
        if now_s - self.heard_s > (limit_s := deadlines.idle_s * patience):
            return silence(limit_s)
        held = self._splitter.unfinished_bytes
        if held and now_s - self._begun_s > (limit_s := deadlines.request_s(held) * patience):
            return PenstockError(f"a line had no end after {limit_s:.3g} s (request_timeout)")
        return None

    @property
    def is_leaving(self) -> bool:
        """Whether it takes nothing more."""
        return self._no_more

    # What asyncio tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no class of asyncio
        peer = transport.get_extra_info("peername")
        address = PEER if self._is_peer else str(peer[0]) if isinstance(peer, tuple) else UNKNOWN
        self._session = LineSession(self._listener.services, address, self._filled, self._write_now)
        self.serving = self._loop.create_task(self._serve())
        self._listener.opened(self)

    def data_received(self, data: bytes) -> None:
        self.heard_s = self._loop.time()
        if self._no_more:
            return
        lines = self._splitter.feed(data)
        if (foreign := self._splitter.cut_foreign()) is not None:
            lines.append(foreign)
        for line in lines:
            self._lines.append(line)
            self._unread_bytes += 0 if line is None else len(line)
        if lines or self._splitter.unfinished_bytes == len(data):
            self._begun_s = self.heard_s
        self._pause_or_resume()
        self._count_held()
        self._wake()

    def eof_received(self) -> bool:
        """The client says no more, but may listen: what it has asked for is answered."""
        if self._splitter.unfinished_bytes and not self._no_more:
            self.finish(InvalidArgument("the last line has no end (a newline), so it was ignored"), clear=False)
        else:
            self.finish(clear=False)
        half_open = self._transport.get_extra_info("ssl_object") is None  # which TLS has not
        return half_open and not self._is_over

    def pause_writing(self) -> None:
        self._writable = False
        self._unread.begin(self._loop.time())
        self._pause_or_resume()

    def resume_writing(self) -> None:
        self._writable = True
        self._unread.end()
        self._pause_or_resume()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = self._no_more = True
        self._lines.clear()
        if self._aborting is not None:
            self._aborting.cancel()
        self._listener.held_bytes -= self._counted_bytes
        self._counted_bytes = 0
        self._session.close()
        self._wake()
        self._listener.gone(self)

    # Lines, one after the other.

    async def _serve(self) -> None:
        """Begin what each line asks for; CONSUME waits for what stands before it, and all others for CONSUME."""
        for count in itertools.count(1):
            if count % _LINES_A_TURN == 0:
                await asyncio.sleep(0)
            await self._until(lambda: self._lines or self._no_more)
            if not self._lines:
                break
            if len(self._replies) >= _UNANSWERED_MAX or not self._writable:
                await self._until(lambda: len(self._replies) < _UNANSWERED_MAX // 2 + 1 and self._writable)
                continue
            line = self._lines.popleft()
            self._unread_bytes -= 0 if line is None else len(line)
            self._pause_or_resume()
            if self._counted_bytes:
                self._count_held()
            if line is not None:
                line, answer = strip_telnet(line)
                if answer and not self.closed:
                    self._transport.write(answer)
                if not line.strip(b" \t"):
                    continue
            await self._handle(line)
        await self._until(lambda: not self._replies)
        self._end()

    async def _handle(self, line: bytes | None) -> None:
        await self._session.drain()
        reply = Reply()
        self._replies.append(reply)
        self._unknown += 1
        try:
            command = self._session.begin(line, reply)
        except NotThisProtocol:
            self._lingers = True
            self.finish()
            return
        if command is not None:
            await self._until(lambda: self._unknown == 1)
            await self._session.consume(command, reply)
        elif reply.operation == "quit" and reply.text is not None:
            self.finish()

    async def _until(self, happened: Callable[[], object]) -> None:
        """Wait for something that lines, replies or their reader bring about; or for the end of the connection."""
        while not happened() and not self.closed:
            self._woken = self._loop.create_future()
            await self._woken

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _pause_or_resume(self) -> None:
        """Read on while the client takes its replies, and what it said before has been begun."""
        wanted = self._writable and self._unread_bytes < _UNREAD_BYTES and len(self._lines) < _UNREAD_LINES
        if wanted != self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self.heard_s = self._begun_s = self._loop.time()  # nobody could be heard meanwhile
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _count_held(self) -> None:
        """Count what was said and not begun, where it is much; all connections together may hold only so much."""
        held = self._unread_bytes + self._splitter.unfinished_bytes
        counted = held if held > _COUNTED_BYTES and not self.closed else 0
        if counted != self._counted_bytes:
            self._listener.held_bytes += counted - self._counted_bytes
            self._counted_bytes = counted
            if self._listener.held_bytes > self._listener.config.max_buffered_bytes:
                self.dismiss(Overloaded("too many long lines are under way at once (max_buffered_bytes): try later"))

    # Replies.

    def _filled(self, text: bytes) -> None:
        """A reply is known; those that are, and have none before them that is not, go out together."""
        self._unknown -= 1
        self._unsent_bytes += len(text)
        if self._unsent_bytes > _UNSENT_BYTES:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        texts: list[bytes] = []
        while self._replies and (text := self._replies[0].text) is not None:
            texts.append(text)
            self._unsent_bytes -= len(text)
            self._replies.popleft()
        if texts and not self.closed:
            self._transport.write(b"".join(texts))
        self._wake()

    async def _write_now(self, text: bytes) -> None:
        """Write a part of the reply that comes next, and wait until there is room for more."""
        self._flush()
        if not self.closed:
            self._transport.write(text)
        await self._until(lambda: self._writable)

    # The end.

    def dismiss(self, reason: PenstockError) -> None:
        """As `finish`, for somebody who may not listen: that is not waited for."""
        self._lingers = True
        self.finish(reason)
        self._abort_soon()

    def finish(self, reason: PenstockError | None = None, *, clear: bool = True) -> None:
        """Take nothing more, answer what is under way, say why, and close; `clear`: what was not begun is dropped."""
        self._no_more = True
        if reason is not None and not self._farewell:
            self._farewell = error_line(reason)
        if clear:
            self._lines.clear()
            self._unread_bytes = 0
            self._splitter = LineSplitter(0)
        self._wake()

    def _end(self) -> None:
        """Close once everything that was said has gone out."""
        if not self.closed and not self._transport.is_closing():
            if self._farewell:
                self._transport.write(self._farewell)
            if self._lingers and self._transport.can_write_eof():
                self._transport.write_eof()  # who is cut off while they speak would not hear why
                if not self._reading:
                    self._transport.resume_reading()
                self._loop.call_later(_LINGERING_S, self._transport.close)
            else:
                self._transport.close()
            self._is_over = True
            self._abort_soon()

    def _abort_soon(self) -> None:
        if self._aborting is None and not self.closed:
            self._aborting = self._loop.call_later(CLOSING_S, self.abort)

    def abort(self) -> None:
        self._transport.abort()


def silence(limit_s: float, why: str = "") -> PenstockError:
    """What somebody hears who said nothing for so long."""
    return PenstockError(" ".join(["nothing was heard for", f"{limit_s:g} s", why]).strip())
