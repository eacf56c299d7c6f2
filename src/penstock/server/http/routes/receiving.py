"""Receiving under a lease, and what becomes of messages: for clients that keep no connection."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from litestar import Response, Router, get, post
from litestar.enums import MediaType
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta

from penstock.aio.consumer import AsyncDelivery
from penstock.model.errors import LeaseLost
from penstock.model.units import to_datetime
from penstock.server.access.principal import Scope
from penstock.server.http.bodies import Encoding, MessageView, Moment, Seconds, Settled, view_fields
from penstock.server.http.caller import Caller, permits
from penstock.server.http.documenting import answers, errors
from penstock.server.http.failures import Problem, encode, problem_of
from penstock.server.http.finishing import Ack, Extend, Handles, Nack, Reject, Release, finish
from penstock.server.http.members import Member
from penstock.server.http.parameters import AsEncoded, Topic

_WAIT_S_MAX = 60.0
_HERE_MAX = 500

GroupName = Annotated[str, PathParameter(description="The name of a group.")]
Group = Annotated[str, QueryParameter(description="The group to receive for; it is made if it is new.")]
Limit = Annotated[int, QueryParameter(ge=1, le=10_000, description="How many messages at most.")]
Wait = Annotated[float, QueryParameter(ge=0, le=_WAIT_S_MAX, description="Seconds to wait for the first one.")]
Visibility = Annotated[
    float | None, QueryParameter(ge=0.001, le=1e9, description="Seconds after which they come again unless settled.")
]


class Delivery(MessageView):
    """A message in the hands of a consumer."""

    receipt_handle: str
    deliveries: int
    failures: int
    visible_until: datetime
    """When it comes again unless it is finished."""


class Deliveries(msgspec.Struct):
    """What was received."""

    messages: list[Delivery]


class Join(msgspec.Struct, forbid_unknown_fields=True):
    """A consumer that wants to join a group."""

    topics: Annotated[list[str], Meta(min_length=1, max_length=1000)]
    mode: str = "shared"
    """`shared`, or `assigned`: each partition has one member at a time."""
    client_id: str | None = None
    max_in_flight: Annotated[int, Meta(ge=1, le=1_000_000)] = 1000
    visibility_timeout: Seconds | None = None
    session_timeout: Seconds = 30.0
    start: Moment = "earliest"


class Joined(msgspec.Struct):
    """A member of a group."""

    member_id: str
    name: str
    group: str
    topics: list[str]
    assignment: dict[str, list[int]]
    session_timeout: float


class MemberId(msgspec.Struct, forbid_unknown_fields=True):
    """Which member."""

    member_id: str


def delivery_of(caller: Caller, member: Member, message: AsyncDelivery, encoding: Encoding | None = None) -> Delivery:
    """A delivered message as JSON."""
    clock = caller.services.clock
    left_s = message.lease.deadline_of(message.offset) - clock.monotonic_s()
    return Delivery(
        **view_fields(message, encoding),
        receipt_handle=member.receipt(message),
        deliveries=message.deliveries,
        failures=message.failures,
        visible_until=to_datetime(clock.wall_us()) + timedelta(seconds=max(0.0, left_s)),
    )


async def _deliveries(
    caller: Caller, member: Member, found: list[AsyncDelivery], encoding: Encoding | None
) -> Deliveries:
    """What was received as JSON; where it is much, that is made in a thread."""

    def work() -> Deliveries:
        return Deliveries([delivery_of(caller, member, message, encoding) for message in found])

    return work() if len(found) <= _HERE_MAX else await caller.services.workers.run(work)


@get("/topics/{topic:str}/receive", responses=errors(409), tags=["consuming"])
async def receive_messages(
    caller: Caller,
    topic: Topic,
    group: Group,
    limit: Limit = 1,
    wait: Wait = 0.0,
    visibility_timeout: Visibility = None,
    encoding: AsEncoded = None,
) -> Deliveries:
    """Receive messages for a group, best lanes first.

    They are leased: finish each with its receipt handle, or it comes again.
    """
    caller.require(Scope.CONSUME, topic)
    member = await caller.members.of_group(topic, group)
    found = await caller.receive(member, limit, wait, visibility_timeout)
    return await _deliveries(caller, member, found, encoding)


@get("/topics/{topic:str}/next", responses=answers(None, "There is none.", 409, status=204), tags=["consuming"])
async def next_message(
    caller: Caller,
    topic: Topic,
    group: Group = "next",
    wait: Wait = 0.0,
    autoack: Annotated[bool, QueryParameter(description="Ack it before it is sent: it comes once at most.")] = False,
    encoding: AsEncoded = None,
) -> Response[Delivery | None]:
    """The next message for a group, or nothing (204)."""
    caller.require(Scope.CONSUME, topic)
    member = await caller.members.of_group(topic, group)
    found = await caller.receive(member, 1, wait)
    if not found:
        return Response(None, status_code=204)
    shown = delivery_of(caller, member, found[0], encoding)
    if autoack:
        await member.consumer.ack(found)
    return Response(shown)


# What becomes of messages.


async def _finished(caller: Caller, wanted: Handles) -> Response[Any]:
    """Finish messages; where some are not held (any more), say which."""
    finished, lost = await finish(caller, wanted)
    if not lost:
        return Response(Settled(finished))
    text = f"not leased (any more) by {len(lost)} of {len(lost) + finished} receipts, such as {lost[0]}"
    problem = problem_of(LeaseLost(text))
    return Response(
        encode(Problem(problem.error, problem.status, problem.hint, lost, finished)),
        status_code=problem.status,
        media_type=MediaType.JSON,
    )


_FINISHED = answers(Settled, "It is durable.", 409, 410)


@post("/messages/ack", status_code=200, responses=_FINISHED, tags=["consuming"], guards=permits("consumer"))
async def ack_messages(caller: Caller, data: JSONBody[Ack]) -> Response[Any]:
    """They are done: they never come again to this group."""
    return await _finished(caller, data)


@post("/messages/nack", status_code=200, responses=_FINISHED, tags=["consuming"], guards=permits("consumer"))
async def nack_messages(caller: Caller, data: JSONBody[Nack]) -> Response[Any]:
    """They could not be processed: another try later, or the dead letters after too many."""
    return await _finished(caller, data)


@post("/messages/release", status_code=200, responses=_FINISHED, tags=["consuming"], guards=permits("consumer"))
async def release_messages(caller: Caller, data: JSONBody[Release]) -> Response[Any]:
    """Give them back at once, through no fault of theirs."""
    return await _finished(caller, data)


@post("/messages/reject", status_code=200, responses=_FINISHED, tags=["consuming"], guards=permits("consumer"))
async def reject_messages(caller: Caller, data: JSONBody[Reject]) -> Response[Any]:
    """They can never be processed: to the dead letters now."""
    return await _finished(caller, data)


@post("/messages/visibility", status_code=200, responses=_FINISHED, tags=["consuming"], guards=permits("consumer"))
async def extend_messages(caller: Caller, data: JSONBody[Extend]) -> Response[Any]:
    """They take longer: hold them for so long from now."""
    return await _finished(caller, data)


# Members of groups.


@post("/groups/{group:str}/join", status_code=200, responses=errors(409), tags=["groups"], guards=permits("consumer"))
async def join_group(caller: Caller, group: GroupName, data: JSONBody[Join]) -> Joined:
    """Join a group, to poll for it; a member that is not heard of for its session timeout is forgotten."""
    for topic in data.topics:
        caller.require(Scope.CONSUME, topic)
    options = msgspec.structs.asdict(data)
    return _joined(await caller.members.join(options.pop("topics"), group, name=options.pop("client_id"), **options))


def _joined(member: Member) -> Joined:
    consuming = member.consuming
    return Joined(
        member.id, consuming.name, consuming.group, list(member.topics), consuming.assignment(), member.session_s
    )


@post("/groups/{group:str}/heartbeat", status_code=200, responses=errors(), tags=["groups"], guards=permits("consumer"))
async def heartbeat(caller: Caller, group: GroupName, data: JSONBody[MemberId]) -> Joined:
    """Say that a member is alive, during long work; what it is assigned now."""
    member = _member(caller, group, data.member_id)
    await member.consumer.heartbeat()
    return _joined(member)


@post("/groups/{group:str}/leave", status_code=204, responses=errors(), guards=permits("consumer"), tags=["groups"])
async def leave_group(caller: Caller, group: GroupName, data: JSONBody[MemberId]) -> None:
    """Leave a group, and give back what is held."""
    await caller.members.leave(_member(caller, group, data.member_id))


@get("/groups/{group:str}/poll", responses=errors(409), tags=["groups", "consuming"])
async def poll_group(
    caller: Caller,
    group: GroupName,
    member_id: Annotated[str, QueryParameter(description="As `join` gave it.")],
    timeout: Wait = 0.0,  # noqa: ASYNC109 - the name that clients of this route know
    limit: Limit = 100,
    encoding: AsEncoded = None,
) -> Deliveries:
    """Messages for a member."""
    member = _member(caller, group, member_id)
    found = await caller.receive(member, limit, timeout)
    return await _deliveries(caller, member, found, encoding)


def _member(caller: Caller, group: str, member_id: str) -> Member:
    caller.require(Scope.CONSUME)
    return caller.members.find(group, member_id, caller.principal.sees)


ROUTES = Router(
    "/v1",
    route_handlers=[
        *(receive_messages, next_message),
        *(ack_messages, nack_messages, release_messages, reject_messages, extend_messages),
        *(join_group, heartbeat, leave_group, poll_group),
    ],
)
