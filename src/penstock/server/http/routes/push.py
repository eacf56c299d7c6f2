"""Messages and figures as they come, as Server-Sent Events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from litestar import Router, get
from litestar.params import QueryParameter
from litestar.response import Stream

from penstock.model.errors import ConsumerNotFound, NotOwner
from penstock.server.access.principal import Scope
from penstock.server.http.bodies import Encoding
from penstock.server.http.caller import Caller
from penstock.server.http.documenting import answers
from penstock.server.http.events import EVENTS, UNBUFFERED, event
from penstock.server.http.failures import encode
from penstock.server.http.members import Member
from penstock.server.http.parameters import AsEncoded, Topic
from penstock.server.http.routes.receiving import delivery_of
from penstock.server.http.scattered_streams import CREDITS_MAX

AT_ONCE = 100
LOOK_S = 2.0  # how often it is seen whether whoever listens still may
_BEAT = 8  # so often, something is sent where there is no message: whoever is gone is noticed then

Group = Annotated[str, QueryParameter(description="The group to receive for; it is made if it is new.")]
Credits = Annotated[
    int, QueryParameter(ge=1, le=CREDITS_MAX, description="How many messages may be unsettled at a time.")
]
_STREAM = answers(str, "Events until the client goes.", 409, media=EVENTS)


@get("/topics/{topic:str}/stream", responses=_STREAM, tags=["consuming"])
async def stream_messages(
    caller: Caller, topic: Topic, group: Group, credits: Credits = 100, encoding: AsEncoded = None
) -> Stream:
    """Receive messages as Server-Sent Events (`message`).

    Each is leased: finish it by its receipt handle (`POST /v1/messages/ack`), which makes room for another one. What
    is not finished when the connection ends is given back.
    """
    caller.require(Scope.CONSUME, topic)
    member = await caller.members.join([topic], group, max_in_flight=credits, session_timeout=1e9)
    return Stream(_messages(caller, member, encoding), media_type=EVENTS, headers=UNBUFFERED)


async def _messages(caller: Caller, member: Member, encoding: Encoding | None) -> AsyncIterator[bytes]:
    try:
        yield b": messages follow\n\n"
        quiet = 0
        while not caller.is_gone():
            found = await caller.members.receive(member, AT_ONCE, LOOK_S)
            quiet = 0 if found else quiet + 1
            if quiet == _BEAT:
                quiet = 0
                yield b": nothing new\n\n"
            for message in found:
                if caller.is_gone():  # since it waited, or since the client took the one before
                    return
                yield event("message", encode(delivery_of(caller, member, message, encoding)), str(message.id))
    except (ConsumerNotFound, NotOwner):
        return  # its topic is elsewhere, or a part of it: the client connects again
    finally:
        await asyncio.shield(caller.members.leave(member))


@get("/live", responses=_STREAM, tags=["broker"])
async def live(caller: Caller) -> Stream:
    """What the broker does, once a second: first the last five minutes (`history`), then each second (`point`)."""
    caller.require(Scope.READ)
    return Stream(_points(caller), media_type=EVENTS, headers=UNBUFFERED)


async def _points(caller: Caller) -> AsyncIterator[bytes]:
    figures = caller.services.live
    history = figures.history()
    yield event("history", encode({"points": history}))
    last_s = history[-1].time if history else 0.0
    while True:
        await caller.members.pause(1.0)
        if caller.is_gone():
            return
        point = figures.latest()
        if point is not None and point.time > last_s:
            last_s = point.time
            yield event("point", encode(point))


ROUTES = Router("/v1", route_handlers=[stream_messages, live])
