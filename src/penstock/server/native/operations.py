"""Everything that is asked for by name, and reading: done in threads, unless it takes no time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.model.errors import LimitExceeded
from penstock.model.units import format_size
from penstock.protocol.frames import Command
from penstock.protocol.session import decode_call, decode_read, encode
from penstock.server.access.principal import Scope
from penstock.server.native.pages import read_page
from penstock.server.operations import OPERATIONS

if TYPE_CHECKING:
    from penstock.server.native.connection import Connection, Handler
    from penstock.server.native.listener import NativeListener


class Operations:
    """The calls and the reading of one connection."""

    def __init__(self, listener: NativeListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection

    def handlers(self) -> dict[int, Handler]:
        """The handler of each command."""
        return {Command.CALL: self._call, Command.READ: self._read}

    def _call(self, correlation: int, body: memoryview | bytes) -> None:
        call = decode_call(body)
        work = self._listener.services.prepare(self._connection.principal, call.operation, call.arguments)
        operation = OPERATIONS[call.operation]
        if operation.is_brief(call.arguments):
            self._connection.reply(Command.CALL, correlation, self._bounded(encode(work())))
            return
        in_thread = self._listener.workers.in_slow_thread if operation.slow else self._connection.in_thread
        in_thread(
            lambda: self._bounded(encode(work())),
            partial(self._connection.reply, Command.CALL, correlation),
            partial(self._connection.refuse, correlation),
        )

    def _read(self, correlation: int, body: memoryview | bytes) -> None:
        request = decode_read(body)
        self._connection.principal.require(Scope.READ, request.topic)
        self._connection.in_thread(
            lambda: encode(read_page(self._listener.broker, request)),
            partial(self._connection.reply, Command.READ, correlation),
            partial(self._connection.refuse, correlation),
        )

    def _bounded(self, reply: bytes) -> bytes:
        limit = self._listener.config.max_frame_bytes
        if len(reply) > limit:
            raise LimitExceeded(
                f"the answer has {format_size(len(reply))}, which is more than a frame may have "
                f"({format_size(limit)}): ask for less (limit)"
            )
        return reply
