"""Everything that is asked for by name, and reading: done in threads, unless it takes no time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.operation import Operation
from penstock.api.operations import OPERATIONS
from penstock.model.bounds import UNCOUNTED_BYTES, check_size
from penstock.model.errors import InvalidArgument, LimitExceeded
from penstock.model.shapes import check_parts
from penstock.model.units import format_size
from penstock.protocol.decoding import decode_arguments, decode_called
from penstock.protocol.frames import Command
from penstock.protocol.session import decode_read, encode
from penstock.server.access.principal import Principal
from penstock.server.native.pages import read_page
from penstock.server.operations import find_operation, is_brief

if TYPE_CHECKING:
    from penstock.server.native.connection import Connection, Handler
    from penstock.server.native.listener import NativeListener

_FEW_BYTES = 64 << 10  # of arguments, which are decoded on the loop

_READING = OPERATIONS["read"].scope


class Operations:
    """The calls and the reading of one connection."""

    def __init__(self, listener: NativeListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._gathering: set[asyncio.Task[None]] = set()

    def handlers(self) -> dict[int, Handler]:
        return {Command.CALL: self._call, Command.READ: self._read}

    def _call(self, correlation: int, body: memoryview | bytes) -> None:
        """Permission comes before the arguments are decoded; large ones are in a thread."""
        call = decode_called(body)
        principal, name = self._connection.principal, call.operation
        operation = find_operation(name)
        principal.require(operation.scope)
        packed = bytes(call.arguments)
        check_size(f"the arguments of {name}", len(packed), operation.bytes_max)
        if len(packed) > _FEW_BYTES:
            self._run(operation, correlation, partial(self._do_large, principal, name, packed))
            return
        arguments = decode_arguments(packed)
        if self._listener.services.gathers(principal, name, arguments):
            self._gather(principal, name, arguments, correlation)
            return
        work = self._listener.services.prepare(principal, name, arguments)
        if is_brief(operation, arguments):
            self._connection.reply(Command.CALL, correlation, self._bounded(encode(work())))
        else:
            self._run(operation, correlation, work)

    def _gather(self, principal: Principal, name: str, arguments: dict[str, Any], correlation: int) -> None:
        """Have all processes answer, and reply when they have."""

        async def work() -> None:
            try:
                found = await self._listener.services.call(principal, name, **arguments)
                self._connection.reply(Command.CALL, correlation, self._bounded(encode(found)))
            except Exception as error:  # noqa: BLE001 - whatever it was, the client hears of it
                self._connection.refuse(correlation, error)

        task = self._listener.loop.create_task(work())
        self._gathering.add(task)
        task.add_done_callback(self._gathering.discard)

    def _do_large(self, principal: Principal, name: str, packed: bytes) -> Any:
        if len(packed) > UNCOUNTED_BYTES:
            check_parts(f"the arguments of {name}", packed)
        try:
            arguments = decode_arguments(packed)
        except msgspec.MsgspecError as error:
            raise InvalidArgument(f"the arguments of {name}: {error}") from error
        return self._listener.services.prepare(principal, name, arguments)()

    def _run(self, operation: Operation, correlation: int, work: Callable[[], Any]) -> None:
        in_slow_thread = partial(self._listener.workers.in_thread, slow=True)
        in_thread = in_slow_thread if operation.is_slow else self._connection.in_thread
        in_thread(
            lambda: self._bounded(encode(work())),
            partial(self._connection.reply, Command.CALL, correlation),
            partial(self._connection.refuse, correlation),
        )

    def _read(self, correlation: int, body: memoryview | bytes) -> None:
        request = decode_read(body)
        self._connection.principal.require(_READING, request.topic)
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
