"""Messages over a WebSocket: they come as long as there are credits, and are finished on the same connection."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any

import msgspec
from litestar import Router, WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect
from msgspec import Meta

from penstock.model.errors import InvalidArgument, PenstockError
from penstock.model.options import whole
from penstock.server.access.principal import Scope
from penstock.server.http.caller import Caller
from penstock.server.http.decoding import decode_with
from penstock.server.http.failures import close_reason, encode, problem_of
from penstock.server.http.finishing import Ack, Extend, Nack, Reject, Release, finish
from penstock.server.http.members import Member
from penstock.server.http.parameters import Topic
from penstock.server.http.routes.push import AT_ONCE, LOOK_S
from penstock.server.http.routes.receiving import delivery_of
from penstock.server.http.scattered_streams import CREDITS_MAX

_LOOK_AGAIN_S = 1.0  # leases run out without anybody saying so


class AckFrame(Ack, tag_field="type", tag="ack"):
    """They are done."""


class ReleaseFrame(Release, tag_field="type", tag="release"):
    """They are given back."""


class NackFrame(Nack, tag_field="type", tag="nack"):
    """They could not be processed."""


class RejectFrame(Reject, tag_field="type", tag="reject"):
    """They can never be processed."""


class ExtendFrame(Extend, tag_field="type", tag="visibility"):
    """They take longer."""


class SetCredits(msgspec.Struct, tag_field="type", tag="credits", forbid_unknown_fields=True):
    """How many messages may be unfinished from now on; 0: no more until there are credits again."""

    credits: Annotated[int, Meta(ge=0, le=CREDITS_MAX)]


class Ping(msgspec.Struct, tag_field="type", tag="ping", forbid_unknown_fields=True):
    """To hear whether the server is there."""


_Frame = AckFrame | ReleaseFrame | NackFrame | RejectFrame | ExtendFrame | SetCredits | Ping
_decoder: msgspec.json.Decoder[_Frame] = msgspec.json.Decoder(_Frame)


@websocket("/v1/topics/{topic:str}/ws")
async def consume(socket: WebSocket[Any, Any, Any], caller: Caller, topic: Topic) -> None:
    """Consume a topic; the query has `group`, and `credits` (100 if it is not given).

    What is not finished when the connection ends is given back.
    """
    try:
        caller.require(Scope.CONSUME, topic)
        group, credits = _query(socket)
        member = await caller.members.join([topic], group, max_in_flight=CREDITS_MAX, session_timeout=1e9)
    except PenstockError as error:
        await socket.accept()
        await socket.close(1008, close_reason(str(error)))
        return
    try:
        await socket.accept()
        await _Consumption(socket, caller, member, credits).run()
    finally:
        await asyncio.shield(caller.members.leave(member))


def _query(socket: WebSocket[Any, Any, Any]) -> tuple[str, int]:
    given = socket.query_params
    group, credits = given.get("group"), given.get("credits", "100")
    if not group:
        raise InvalidArgument("say which group to consume for: ?group=…")
    if not (credits.isascii() and credits.isdigit() and len(credits) < 9):
        raise InvalidArgument(f"credits: {credits!r:.40} is not a whole number from 0 to {CREDITS_MAX}")
    return group, whole(0, CREDITS_MAX)(int(credits))


class _Consumption:
    """One WebSocket: a task that sends messages, and a loop that hears what became of them."""

    def __init__(self, socket: WebSocket[Any, Any, Any], caller: Caller, member: Member, credits: int) -> None:
        self._socket = socket
        self._caller = caller
        self._member = member
        self._credits = credits
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Until the client goes, or the server stops."""
        hearing = asyncio.ensure_future(self._hear())
        sending = asyncio.ensure_future(self._send())
        try:
            await asyncio.wait([hearing, sending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (hearing, sending):
                task.cancel()
            ended = await asyncio.gather(hearing, sending, return_exceptions=True)
        if not any(isinstance(result, WebSocketDisconnect) for result in ended):
            with contextlib.suppress(Exception):
                await self._socket.close(1001, "the server is stopping, or the token is not valid any more")

    async def _send(self) -> None:
        members = self._caller.members
        while not self._caller.is_gone():
            self._changed.clear()
            room = self._credits - self._member.consuming.in_flight
            if room <= 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), _LOOK_AGAIN_S)
                continue
            for message in await members.receive(self._member, min(room, AT_ONCE), LOOK_S):
                if self._caller.is_gone():
                    return
                shown = delivery_of(self._caller, self._member, message)
                await self._socket.send_data(b'{"type":"message",' + encode(shown)[1:])

    async def _hear(self) -> None:
        while True:
            text = await self._socket.receive_data("text")
            if self._caller.is_gone():
                return
            try:
                reply = await self._answer(decode_with(_decoder.decode, text, "the frame"))
            except PenstockError as error:
                reply = {"type": "error", **msgspec.to_builtins(problem_of(error))}
            self._changed.set()
            await self._socket.send_data(encode(reply))

    async def _answer(self, frame: _Frame) -> dict[str, object]:
        if isinstance(frame, Ping):
            return {"type": "pong"}
        if isinstance(frame, SetCredits):
            self._credits = frame.credits
            return {"type": "credits", "credits": frame.credits}
        finished, lost = await finish(self._caller, frame)
        return {"type": "settled", "settled": finished, "lost": lost}


ROUTES = Router("/", route_handlers=[consume])
