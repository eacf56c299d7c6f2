"""Executes the lines of one connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter

from penstock.cluster.publishing import publish
from penstock.journal import Commit
from penstock.model.errors import BrokerClosed, InvalidArgument, PenstockError, Unauthenticated
from penstock.model.message import Message
from penstock.model.placement import is_slice
from penstock.model.units import format_size
from penstock.server.access.principal import ANYBODY, Principal, Scope
from penstock.server.access.rates import rate_key
from penstock.server.line import replies
from penstock.server.line.consumers import IN_FLIGHT_MAX, Consumers
from penstock.server.line.lines import Ack, Auth, Command, Consume, Help, NotThisProtocol, Ping, Produce, Quit, parse
from penstock.server.line.relaying import Relay, renamed
from penstock.server.services import Services
from penstock.shard.operations.leased_messages import LeasedMessage

_log = logging.getLogger("penstock.server")
_PAGE_BYTES = 1 << 20
_PAGE_MESSAGES = 100
PEER = ""
"""The address of another process of this server, which has counted the line already."""
UNKNOWN = "?"
"""The address of a client that was gone before anybody asked."""


class Reply:
    """A reply in the order of its connection; empty until its command is done."""

    __slots__ = ("operation", "started_s", "text")

    def __init__(self) -> None:
        self.started_s = perf_counter()
        self.operation = "invalid"
        self.text: bytes | None = None


Filled = Callable[[bytes], None]
Write = Callable[[bytes], Awaitable[None]]


class LineSession:
    """Executes the lines of one connection; replies may be filled in any order."""

    def __init__(self, services: Services, address: str, filled: Filled, write: Write) -> None:
        self._services = services
        self._address = address
        self._filled = filled
        self._write = write
        self._consumers = Consumers(services)
        self._principal: Principal | None = None
        with contextlib.suppress(Unauthenticated):
            self._principal = services.access.authenticate(None)
        self._rate_key = rate_key(ANYBODY, address)
        self._relay = None if services.membership is None else Relay(services.membership)

    def begin(self, line: bytes | None, reply: Reply) -> Consume | None:
        """Do what a line asks for; if that must wait until earlier replies are known, give it back.

        Raises NotThisProtocol for those who have come to the wrong port.
        """
        try:
            command = self._read(line, reply)
            if isinstance(command, Consume):
                return command
            self._do(command, line or b"", reply)
        except NotThisProtocol as error:
            self._refuse(reply, error)
            raise
        except Exception as error:  # noqa: BLE001 - whatever it was, the connection goes on
            self._refuse(reply, error)
        return None

    def _read(self, line: bytes | None, reply: Reply) -> Command:
        """The command of a line; nonsense counts against the limit of the rate too."""
        command, problem = None, InvalidArgument("the line is blank")
        if line is None:
            limit = format_size(self._services.config.max_line_bytes)
            problem = InvalidArgument(f"the line is longer than {limit} (max_line_bytes): it was ignored")
        else:
            try:
                command = parse(line)
            except NotThisProtocol:
                raise
            except InvalidArgument as error:
                problem = error
        if not isinstance(command, Quit) and not self.is_peer:
            self._services.rates.take(self._rate_key)
        if command is None:
            raise problem
        reply.operation = type(command).__name__.lower()
        return command

    def _do(self, command: Command, line: bytes, reply: Reply) -> None:
        match command:
            case Produce():
                self._permit(Scope.PUBLISH, command.topic)
                elsewhere = self._elsewhere(command.topic, command.partition)
                if elsewhere is not None:
                    self._pass_on(elsewhere, renamed(line, elsewhere) if is_slice(elsewhere) else line, reply)
                    return
                message = Message(command.value, priority=command.priority, partition=command.partition)
                name = None if self._principal is None else self._principal.producer_name
                _, commit = publish(self._services.shards, command.topic, message, name)
                self._answer_after(commit, reply, replies.OK)
            case Ack():
                self._permit(Scope.CONSUME, command.topic)
                elsewhere = self._elsewhere(command.topic, command.partition)
                if elsewhere is not None:
                    self._pass_on(elsewhere, renamed(line, elsewhere) if is_slice(elsewhere) else line, reply)
                    return
                commit = self._consumers.ack(command.topic, command.partition, command.offset)
                self._answer_after(commit, reply, replies.ACK_OK)
            case Auth():
                self._principal = self._services.access.log_in(command.token, self._principal, self._address)
                self._rate_key = rate_key(self._principal, self._address)
                if self._relay is not None:
                    self._relay.log_in(command.token)
                self._answer(reply, replies.OK)
            case Ping():
                self._answer(reply, replies.PONG)
            case Help():
                self._answer(reply, replies.HELP)
            case _:
                self._answer(reply, replies.BYE)

    async def consume(self, command: Consume, reply: Reply) -> None:
        """Reply with messages; what was asked for before is answered, so it is seen."""
        try:
            self._permit(Scope.CONSUME, command.topic)
            elsewhere = self._elsewhere(command.topic, command.partition)
            if elsewhere is not None:
                self._answer(reply, await self._consume_elsewhere(elsewhere, command))
            elif command.all:
                self._answer(reply, await self._consume_all(command))
            else:
                messages = await self._take(command, 1)
                text = replies.message_line(messages[0].offset, messages[0].value) if messages else replies.NOTHING
                self._answer(reply, text)
        except Exception as error:  # noqa: BLE001
            self._refuse(reply, error)

    # Topics of other processes.

    def _elsewhere(self, topic: str, partition: int | None) -> str | None:
        """The name by which another process is asked, which has a topic or a slice of it; None: it is asked here.

        What another process says is for this one, which may have it do only what is for slices elsewhere.
        """
        if self._relay is None:
            return None
        if not self.is_peer and self._services.is_elsewhere(topic):
            return topic
        return self._services.slice_to_ask(topic, partition)

    def _pass_on(self, topic: str, line: bytes, reply: Reply) -> None:
        """Have another process do what a line asks for, and answer as it does."""

        async def take(answer: bytes | None) -> bool:
            if answer is None:
                self._refuse(reply, _gone(topic))
            else:
                self._answer(reply, answer, failed=answer.startswith(replies.ERROR))
            return True

        assert self._relay is not None
        self._relay.send(topic, line, take)

    async def _consume_elsewhere(self, topic: str, command: Consume) -> bytes:
        """Write what another process answers, as quickly as the client takes it; the last line."""
        last: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def take(answer: bytes | None) -> bool:
            if answer is not None and command.all and not answer.startswith((replies.END, replies.ERROR)):
                await self._write(answer)
                return False
            if not last.done():
                last.set_exception(_gone(command.topic)) if answer is None else last.set_result(answer)
            return True

        assert self._relay is not None
        line = f"CONSUME {topic} {command.partition}{' ALL' if command.all else ''}"
        self._relay.send(topic, line.encode(), take)
        return await last

    async def drain(self) -> None:
        """Wait until other processes have taken most of what was said to them."""
        if self._relay is not None:
            await self._relay.drain()

    async def _consume_all(self, command: Consume) -> bytes:
        """Write all that is ready, some at a time, as quickly as the client takes it; the last line."""
        count, at_once = 0, 1
        while count < IN_FLIGHT_MAX:
            wanted = min(at_once, IN_FLIGHT_MAX - count)
            try:
                messages = await self._take(command, wanted)
            except PenstockError:
                if count:
                    break  # what was written needs an end; the reason is told to whoever asks for more
                raise
            if not messages:
                break
            count += len(messages)
            lines = [replies.message_line(message.offset, message.value) for message in messages]
            await self._write(b"".join(lines))
            at_once = max(1, min(_PAGE_MESSAGES, _PAGE_BYTES // max(map(len, lines))))
        return replies.end_line(count)

    async def _take(self, command: Consume, wanted: int) -> list[LeasedMessage]:
        """Messages to send, unless the token of the client became invalid while it waited."""
        messages = await self._consumers.take(command.topic, command.partition, wanted)
        try:
            self.check_access(now=True)
        except Unauthenticated:
            self._consumers.close()
            raise
        return messages

    def close(self) -> None:
        """The connection is gone."""
        self._consumers.close()
        if self._relay is not None:
            self._relay.close()

    @property
    def is_peer(self) -> bool:
        """Whether another process of this server speaks, for a client of its own."""
        return self._address == PEER

    @property
    def is_known(self) -> bool:
        """Whether the client has logged in, or need not."""
        return self._principal is not None

    def check_access(self, *, now: bool = False) -> None:
        """Raise Unauthenticated if whoever was let in would not be any more; `now`: as of this moment."""
        if self._principal is not None:
            self._services.access.check(self._principal, now=now)

    def _permit(self, scope: Scope, topic: str) -> None:
        if self._principal is None:
            raise Unauthenticated("this server asks for a token: say AUTH <token> first; PING, HELP and QUIT need none")
        self.check_access()
        self._principal.require(scope, topic)

    def _answer_after(self, commit: Commit | None, reply: Reply, text: bytes) -> None:
        self._services.commits.when_done(commit, partial(self._committed, reply, text))

    def _committed(self, reply: Reply, text: bytes, error: PenstockError | None) -> None:
        if error is None:
            self._answer(reply, text)
        else:
            self._refuse(reply, error)

    def _refuse(self, reply: Reply, error: Exception) -> None:
        if not isinstance(error, PenstockError):
            _log.error("a line failed", exc_info=error, extra={"peer": self._address, "command": reply.operation})
            error = PenstockError("the server could not do this; its log tells why")
        self._answer(reply, replies.error_line(error), failed=True)

    def _answer(self, reply: Reply, text: bytes, *, failed: bool = False) -> None:
        reply.text = text
        self._services.metrics.request("line", reply.operation, perf_counter() - reply.started_s, failed)
        self._filled(text)


def _gone(topic: str) -> BrokerClosed:
    return BrokerClosed(f"the process that has {topic} ended in the middle: it is not known whether this was done")
