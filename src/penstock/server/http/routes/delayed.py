"""Messages that are not due yet: list them, cancel them, give them another time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
from litestar import Router, delete, get, patch
from litestar.exceptions import HTTPException
from litestar.params import JSONBody, QueryParameter

from penstock.cluster.spreading import list_delayed
from penstock.model.message import MessageId
from penstock.model.schedules import DelayedMessage
from penstock.server.access.principal import Scope
from penstock.server.http.bodies import Moment, Seconds
from penstock.server.http.caller import Caller, permits
from penstock.server.http.documenting import body_of, errors
from penstock.server.http.parameters import Limit, Offset, Partition, Topic
from penstock.shard.operations.delays import find_delayed

if TYPE_CHECKING:
    from penstock.cluster.shards import Shards


class Delayed(msgspec.Struct):
    """A message that is not due yet."""

    id: str
    topic: str
    partition: int
    offset: int
    due_at: datetime

    @classmethod
    def of(cls, found: DelayedMessage) -> Delayed:
        place = found.id
        return cls(str(place), place.topic, place.partition, place.offset, found.due_at)


class DelayedPage(msgspec.Struct):
    """Messages that are not due yet, the next to fall due first."""

    delayed: list[Delayed]
    more: bool
    """Whether there are more behind these."""


class Cancelled(msgspec.Struct):
    """Nobody ever gets it."""

    cancelled: bool


class NewTime(msgspec.Struct, forbid_unknown_fields=True):
    """When it is to fall due: after a delay from now, or at a time."""

    delay: Seconds | None = None
    deliver_at: Moment | None = None


class Rescheduled(msgspec.Struct):
    """When it falls due now."""

    due_at: datetime


@get("/topics/{topic:str}/delayed", responses=errors())
async def delayed_messages(
    caller: Caller,
    topic: Topic,
    limit: Limit = 100,
    skip: Annotated[int, QueryParameter(ge=0, le=100_000, description="How many to leave out before them.")] = 0,
) -> DelayedPage:
    """List messages that are not due yet, the next to fall due first."""
    caller.require(Scope.READ, topic)

    def work(shards: Shards) -> list[Delayed]:
        return list(map(Delayed.of, list_delayed(shards, topic, limit + 1, skip)))

    found = await caller.ask_all(work)
    return DelayedPage(found[:limit], more=len(found) > limit)


@get("/topics/{topic:str}/delayed/{partition:int}/{offset:int}", responses=errors())
async def delayed_message(caller: Caller, topic: Topic, partition: Partition, offset: Offset) -> Delayed:
    """Show one message that is not due yet; when it is due, or never was delayed, it is not found."""
    caller.require(Scope.READ, topic)
    identity = MessageId(topic, partition, offset)
    return Delayed.of(await caller.ask(find_delayed, identity))


@delete("/topics/{topic:str}/delayed/{partition:int}/{offset:int}", status_code=200, responses=errors(409, 507))
async def cancel_delayed(caller: Caller, topic: Topic, partition: Partition, offset: Offset) -> Cancelled:
    """Cancel a delayed message: the reply says for sure that nobody ever gets it."""
    identity = str(MessageId(topic, partition, offset))
    if not await caller.call("cancel_delayed", identity=identity):
        raise _not_delayed(identity)
    return Cancelled(cancelled=True)


@patch(
    "/topics/{topic:str}/delayed/{partition:int}/{offset:int}",
    operation_class=body_of(NewTime, {"delay": 3600}, {"deliver_at": "2026-12-24T18:00:00Z"}),
    responses=errors(409, 507),
    guards=permits("reschedule_delayed"),
)
async def reschedule_delayed(
    caller: Caller, topic: Topic, partition: Partition, offset: Offset, data: JSONBody[NewTime]
) -> Rescheduled:
    """Give a delayed message another time."""
    identity = str(MessageId(topic, partition, offset))
    due_at = await caller.call("reschedule_delayed", identity=identity, delay=data.delay, deliver_at=data.deliver_at)
    if due_at is None:
        raise _not_delayed(identity)
    return Rescheduled(due_at)


def _not_delayed(identity: str) -> HTTPException:
    return HTTPException(status_code=409, detail=f"{identity} is not delayed (any more)")


ROUTES = Router(
    "/v1",
    route_handlers=[delayed_messages, delayed_message, cancel_delayed, reschedule_delayed],
    tags=["delayed"],
)
