"""One connection: its bytes, its limits, and how replies are sent. `session.py` handles the requests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from penstock.model.errors import InvalidArgument, Overloaded, PenstockError, Unauthenticated
from penstock.protocol.failures import encode_failure
from penstock.protocol.frames import BROKEN, ERROR, REPLY, VERSION, Command, Frame, FrameReader, ProtocolError, frame
from penstock.protocol.session import HELLO_BYTES_MAX, Goodbye, encode
from penstock.server.access.principal import ANYBODY, Principal
from penstock.server.deadlines import CLOSING_S, UnreadReplies
from penstock.server.native.arrival import Arrival, is_arrival
from penstock.server.workers import attempt

if TYPE_CHECKING:
    from penstock.server.native.listener import NativeListener

_log = logging.getLogger("penstock.server")
_OPEN_REQUESTS_MAX = 2000  # of one connection, beside those that wait for messages; then it is not read from
_AT_ONCE = 4  # requests of one connection that threads work on: their replies may be large
_LARGE_BYTES = 1 << 20
_COUNTED_BYTES = 64 << 10  # unfinished requests below this are not counted
Result = TypeVar("Result")
Work = tuple[Callable[[], Result], Callable[[Result], None], Callable[[BaseException], None]]
Handler = Callable[[int, memoryview | bytes], None]
_names = {int(command): command.name for command in Command}


class Connection(asyncio.BufferedProtocol):
    """Reads frames, hands them to their handlers, and writes the replies of one turn of the loop together."""

    def __init__(self, listener: NativeListener) -> None:
        self._listener = listener
        self._loop, self._lingering = listener.loop, listener.lingering
        self._reader = FrameReader(listener.config.max_frame_bytes, HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._unhandled: list[tuple[int, int, bytes]] = []
        self._replies: list[bytes] = []
        self._reply_bytes = 0
        self._open_requests = 0
        self._reading = True
        self._counted_bytes = 0
        self._waiting_work: deque[Work[Any]] = deque()
        self._working = 0
        self._aborting: asyncio.TimerHandle | None = None
        self._is_deaf = False
        self._is_handling = False  # what is received: all replies that are ready at its end are written together
        self._unread = UnreadReplies(listener.deadlines)
        self._holds = False  # requests wait for one that is worked on in a thread
        self.waiting = 0  # requests that wait for messages
        self._arrival: Arrival | None = None  # of another member, which is not let in yet
        self.greeted = False
        self.is_peer = False  # whether another process of this server has opened it
        self.follows = False  # whether it is told when shards move
        self.principal: Principal = ANYBODY
        self.writable = True
        self.closed = False
        self.opened_s = self.heard_s = self._loop.time()
        self._begun_s = self.opened_s  # when the request that is not whole began to arrive
        self.peer = "?"
        self.handlers: dict[int, Handler] = {}
        self.on_writable: Callable[[], None] = lambda: None
        self.on_closed: Callable[[], None] = lambda: None

    # What asyncio tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no class of asyncio
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer or "?")
        self._listener.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.heard_s = self._loop.time()
        self._lingering.heard()
        if self._is_deaf:
            return
        if self._arrival is not None:
            self._arrival.hear(self._reader.take(nbytes))
            return
        frames = self._reader.received(nbytes)
        if frames or self._reader.unfinished_bytes == nbytes:
            self._begun_s = self.heard_s
        if frames and not self.greeted:
            frames = self._begin(frames)
        if self._unhandled or self._holds:
            self._unhandled += [(command, correlation, bytes(body)) for command, correlation, body in frames]
        else:
            self._is_handling = True
            try:
                self._handle(frames)
            finally:
                self._is_handling = False
            self.flush()
        if self._reader.unfinished_bytes > _COUNTED_BYTES or self._counted_bytes:
            self._count_unfinished()

    def _handle(self, frames: Sequence[tuple[int, int, memoryview | bytes]]) -> None:
        """Handle frames, as long as the client takes its replies and not too many are owed to it."""
        handlers = self.handlers
        for place, (command, correlation, body) in enumerate(frames, 1):
            self._open_requests += 1
            try:
                if command in handlers:
                    handlers[command](correlation, body)
                else:
                    self._refuse_unknown(command, body, correlation)
            except ProtocolError as error:
                self.close(error)
                return
            except Unauthenticated as error:
                self.refuse(correlation, error)
                self.close()
                return
            except Exception as error:  # noqa: BLE001 - whatever it was, the client hears of it
                self._refuse(command, correlation, error)
            if self._holds or self._open_requests >= _OPEN_REQUESTS_MAX or not self.writable:
                self._unhandled = [(command, correlation, bytes(body)) for command, correlation, body in frames[place:]]
                self._pause_or_resume()
                return

    def _begin(self, greeting: Sequence[Frame]) -> list[Frame]:
        """Handle the first frame, which is a good HELLO or the last that is read; the frames behind it."""
        command, _, header = greeting[0]
        if command == BROKEN and not self.is_peer and is_arrival(self._listener.services, bytes(header)):
            assert self._transport is not None
            self._arrival = Arrival(self._listener.services, self, self._transport)
            self._arrival.hear(self._reader.take(0))
            return []
        self._handle(greeting)
        if self.greeted:
            return self._reader.received(0)
        self.close()
        return []

    def go_on_as_peer(self, data: bytes) -> None:
        """Another member has been let in, which has said this in the native protocol already."""
        self._arrival, self.is_peer = None, True
        while data and not self.closed:
            room = self.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count], data = data[:count], data[count:]
            self.buffer_updated(count)

    def leave(self) -> None:
        """Leave the connection to another port, as if it were closed here."""
        self._transport = None
        self.connection_lost(None)

    def greet(self, principal: Principal) -> None:
        """Note who the client is; from now on it may send requests of any allowed size."""
        self.principal = principal
        self.greeted = True
        self._reader.lift_limit()

    def _refuse(self, command: int, correlation: int, error: BaseException) -> None:
        """Tell a client why its request failed, also if that is a bug of the server."""
        if isinstance(error, msgspec.MsgspecError | UnicodeDecodeError | RecursionError):
            error = InvalidArgument(f"the body of {_names[command]}: {error}")
        elif not isinstance(error, PenstockError):
            _log.error("a request failed", exc_info=error, extra={"peer": self.peer, "command": _names[command]})
        self.refuse(correlation, error)

    def _go_on(self) -> None:
        """Handle what was received while there was no room for the replies, or something large before it."""
        if self._holds:
            return
        unhandled, self._unhandled = self._unhandled, []
        self._handle(unhandled)

    def pause_writing(self) -> None:
        self.writable = False
        self._unread.begin(self._loop.time())
        self._pause_or_resume()

    def resume_writing(self) -> None:
        self.writable = True
        self._unread.end()
        self._pause_or_resume()
        self._do_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._waiting_work.clear()
        if self._arrival is not None:
            self._arrival.end()
        if self._aborting is not None:
            self._aborting.cancel()
        self._listener.buffered_bytes -= self._counted_bytes
        self._listener.gone(self)
        self.on_closed()

    # Requests and replies.

    def answer(self, reply: bytes) -> None:
        """The reply to a request; every request is answered, refused or ended, once."""
        self._open_requests -= 1
        if not self._reading:
            self._pause_or_resume()
        self.send(reply)

    def answer_now(self, replies: list[bytes]) -> None:
        """The replies to some requests, with nothing more to come for this connection in this turn of the loop."""
        self._open_requests -= len(replies)
        if not self._reading:
            self._pause_or_resume()
        if not self.closed and self._transport is not None:
            self._transport.write(replies[0] if len(replies) == 1 else b"".join(replies))
            self._lingering.replied()

    def refuse(self, correlation: int, error: BaseException) -> None:
        """The reply to a request that failed."""
        self.end()
        self.send(frame(ERROR, correlation, encode_failure(error)))

    def end(self, requests: int = 1) -> None:
        """A request is done for now: one without a reply, or one that waits for messages."""
        self._open_requests -= requests
        if not self._reading:
            self._pause_or_resume()

    def begin(self) -> None:
        """A request that waited goes on."""
        self._open_requests += 1

    def reply(self, command: int, correlation: int, body: bytes) -> None:
        """Reply to a request that was under way."""
        self.answer(frame(command | REPLY, correlation, body))

    def send(self, data: bytes) -> None:
        """Send a frame with the others of this turn of the loop."""
        if self.closed:
            return
        if not self._replies and not self._is_handling:
            self._listener.flush_soon(self)
        self._replies.append(data)
        self._reply_bytes += len(data)
        if self._reply_bytes > _LARGE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was sent."""
        replies, self._replies, self._reply_bytes = self._replies, [], 0
        if not replies:
            return
        if not self.closed and self._transport is not None:
            self._transport.write(replies[0] if len(replies) == 1 else b"".join(replies))
            self._lingering.replied()

    # What takes long, or much room.

    @property
    def is_busy(self) -> bool:
        """Whether so many replies wait for the client that no large ones are made for it."""
        return not self.writable or self._working >= _AT_ONCE

    def in_thread(
        self, work: Callable[[], Result], then: Callable[[Result], None], failed: Callable[[BaseException], None]
    ) -> None:
        """Do what may block in a thread, when it is its turn, and go on with its result here."""
        self._waiting_work.append((work, then, failed))
        self._start_work()

    def in_thread_first(
        self, command: Command, correlation: int, work: Callable[[], Result], then: Callable[[Result], None]
    ) -> None:
        """Do what takes long in a thread, and go on with its result here, before any request that came behind it."""
        self._holds = True
        self.in_thread(
            partial(attempt, work),
            partial(self._held, command, correlation, then),
            partial(self._held, command, correlation, then),
        )

    def _held(self, command: Command, correlation: int, then: Callable[[Result], None], outcome: Result) -> None:
        self._holds = False
        if isinstance(outcome, BaseException):
            self._refuse(command, correlation, outcome)
        else:
            try:
                then(outcome)
            except Exception as error:  # noqa: BLE001 - whatever it was, the client hears of it
                self._refuse(command, correlation, error)
        self._pause_or_resume()

    def _start_work(self) -> None:
        while self._waiting_work and not self.is_busy:
            work, then, failed = self._waiting_work.popleft()
            try:
                self._listener.workers.in_thread(work, partial(self._worked, then), partial(self._worked, failed))
            except Overloaded as error:
                failed(error)
            else:
                self._working += 1

    def _worked(self, then: Callable[[Result], None], result: Result) -> None:
        self._working -= 1
        then(result)
        self._do_more()

    def _do_more(self) -> None:
        self._start_work()
        if not self.is_busy:
            self.on_writable()

    @property
    def idle(self) -> bool:
        """Whether nothing is owed to the client."""
        return not self._open_requests and not self._replies

    def close(self, error: BaseException | None = None) -> None:
        """Send the reason, if any, and close when all replies are written."""
        if self.closed or self._transport is None or self._transport.is_closing():
            return
        if error is not None:
            correlation = error.correlation if isinstance(error, ProtocolError) else 0
            self.send(frame(ERROR, correlation, encode_failure(error)))
        self.flush()
        self._transport.close()
        self._aborting = self._loop.call_later(CLOSING_S, self.abort)  # who does not listen is not waited for

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def take_no_more(self) -> None:
        """Keep reading, so that the connection is not reset, but handle nothing more: clients repeat such requests."""
        self._is_deaf = True
        self._unhandled.clear()

    def say_goodbye(self, reason: str) -> None:
        """The server is about to close."""
        self.send(frame(Command.GOODBYE, 0, encode(Goodbye(reason))))

    # Limits.

    def _refuse_unknown(self, command: int, body: memoryview | bytes, correlation: int) -> None:
        if command == BROKEN:
            raise self._reader.problem(body)
        if not self.greeted:
            raise ProtocolError("the first frame of a connection is HELLO", correlation)
        raise InvalidArgument(f"there is no command {command:#04x} in version {VERSION} of the protocol")

    def _pause_or_resume(self) -> None:
        """Read only while the client takes its replies and not too many of its requests are unanswered."""
        few = self._open_requests < (_OPEN_REQUESTS_MAX if self._reading else _OPEN_REQUESTS_MAX // 2 + 1)
        wanted = self.writable and few and not self._holds
        if wanted != self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self.heard_s = self._begun_s = self._loop.time()  # nobody could be heard meanwhile
                self._transport.resume_reading()
                self._loop.call_soon(self._go_on)
            else:
                self._transport.pause_reading()

    def leaves_replies_unread(self, now_s: float) -> bool:
        """Whether it is too slow to read what it asked for."""
        return self._transport is not None and self._unread.are_overdue(self._transport, now_s)

    def overdue(self, now_s: float) -> str | None:
        """What the client has not done in time, if anything."""
        deadlines = self._listener.deadlines
        if not self.greeted and now_s - self.opened_s > deadlines.login_s:
            return f"there was no HELLO within {deadlines.login_s:g} s (login_timeout)"
        if not self._reading:
            return None
        if now_s - self.heard_s > deadlines.idle_s:
            return f"nothing was heard for {deadlines.idle_s:g} s (idle_timeout)"
        held = self._reader.unfinished_bytes
        if held and now_s - self._begun_s > (limit_s := deadlines.request_s(held)):
            return f"a request was not whole after {limit_s:.3g} s (request_timeout)"
        return None

    def _count_unfinished(self) -> None:
        held = self._reader.unfinished_bytes
        counted = held if held > _COUNTED_BYTES else 0
        if counted != self._counted_bytes:
            self._listener.buffered_bytes += counted - self._counted_bytes
            self._counted_bytes = counted
            if self._listener.buffered_bytes > self._listener.config.max_buffered_bytes:
                self.close(Overloaded("too many large requests are under way at once (max_buffered_bytes): try later"))
