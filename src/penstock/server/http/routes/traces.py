"""Traces: the life of one message, and messages by what became of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, get_args

import msgspec
from litestar import Router, get
from litestar.params import Parameter

from penstock.model.message import MessageId
from penstock.model.traces import Trace, TraceLine
from penstock.model.units import to_datetime
from penstock.server.access.principal import Scope
from penstock.server.http.bodies import Encoding, MessageView, view_of
from penstock.server.http.caller import Caller
from penstock.server.http.documenting import errors
from penstock.server.http.parameters import (
    AsEncoded,
    Cursor,
    Limit,
    MaybePartition,
    MaybeTopic,
    Offset,
    Partition,
    Topic,
    time_us,
)
from penstock.views.trace_search import STATUSES, Mark, TraceQuery, TraceSummary, search_traces

Status = Literal[
    "published",
    "delivered",
    "released",
    "failed",
    "acked",
    "dead",
    "redriven",
    "lapsed",
    "skipped",
    "cancelled",
    "delayed",
    "purged",
]
assert set(get_args(Status)) == set(STATUSES)


class Line(msgspec.Struct):
    """One thing that happened to a message."""

    kind: str
    time: datetime
    group: str | None
    consumer: str | None
    attempt: int
    """Which delivery to the group it was, or belongs to; 0: none."""
    cause: str | None
    due_at: datetime | None
    """When it falls due or is tried again, where that was decided."""
    producer: str | None
    """Who published it: the `producer` of the publish, the name of the client, or that of its token."""

    @classmethod
    def of(cls, line: TraceLine) -> Line:
        due_at = to_datetime(line.due_us) if line.due_us else None
        return cls(line.kind, line.time, line.group, line.consumer, line.attempt, line.cause, due_at, line.producer)


class TraceView(msgspec.Struct):
    """The life of a message."""

    id: str
    message: MessageView | None
    """Null where it is gone, and only its events are left."""
    traceparent: str | None
    lines: list[Line]
    retained_until: datetime | None


class Summary(msgspec.Struct):
    """What became of a message."""

    id: str
    topic: str
    partition: int
    offset: int
    published_at: datetime
    status: Status
    """What happened to it last; of one group, if one was searched for. An expired lease is a failure."""
    groups: dict[str, Status]
    """What happened to it last, by group."""
    events: int

    @classmethod
    def of(cls, found: TraceSummary) -> Summary:
        place = found.id
        shown = (str(place), place.topic, place.partition, place.offset, to_datetime(found.published_us))
        return cls(*shown, found.status, found.groups, found.events)  # type: ignore[arg-type]


class Summaries(msgspec.Struct):
    """Messages, the newest first; there may be more as long as there is a cursor, even behind an empty page."""

    traces: list[Summary]
    cursor: str | None


@get("/traces/{topic:str}/{partition:int}/{offset:int}", responses=errors())
async def trace(
    caller: Caller, topic: Topic, partition: Partition, offset: Offset, encoding: AsEncoded = None
) -> TraceView:
    """Show the life of a message: who got it when, why it failed, and what became of it."""
    return await _trace(caller, str(MessageId(topic, partition, offset)), encoding)


@get("/traces/search/{partition:int}/{offset:int}", include_in_schema=False)
async def trace_in_search(
    caller: Caller, partition: Partition, offset: Offset, encoding: AsEncoded = None
) -> TraceView:
    """The same for a topic that is called `search`."""
    return await _trace(caller, str(MessageId("search", partition, offset)), encoding)


@get("/traces/{identity:str}", responses=errors())
async def trace_by_id(
    caller: Caller,
    identity: Annotated[str, Parameter(description="`topic/partition/offset`, with its slashes or with `%2F`.")],
    encoding: AsEncoded = None,
) -> TraceView:
    """Show the life of a message by its id."""
    return await _trace(caller, identity, encoding)


@get("/traces", responses=errors())
async def traces(caller: Caller, topic: MaybeTopic = None, limit: Limit = 100, cursor: Cursor = None) -> Summaries:
    """List the newest messages, of one topic or of all, with what became of them."""
    return await _search(caller, TraceQuery(topic), limit, cursor)


@get("/traces/search", responses=errors())
async def find_traces(
    caller: Caller,
    topic: MaybeTopic = None,
    partition: MaybePartition = None,
    consumer_group: Annotated[
        str | None, Parameter(description="Only messages that this group got; `status` is then for this group.")
    ] = None,
    start: Annotated[
        str | None, Parameter(max_length=40, description="Published at this time (ISO 8601) or later.")
    ] = None,
    end: Annotated[str | None, Parameter(max_length=40, description="Published before this time.")] = None,
    status: Annotated[Status | None, Parameter(description="What happened to them last, in any group.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Summaries:
    """Search messages by what became of them, from the newest back.

    Each request looks at a bounded part of the log: a page may be short or empty and have a cursor all the same. Ask
    again with it, and with the same other parameters, until it is null. What is in an archive is not searched.
    """
    query = TraceQuery(topic, partition, consumer_group, time_us("start", start), time_us("end", end), status)
    return await _search(caller, query, limit, cursor)


async def _trace(caller: Caller, identity: str, encoding: Encoding | None) -> TraceView:
    found: Trace = await caller.call("trace", identity=identity)
    return TraceView(
        str(found.id),
        None if found.message is None else view_of(found.message, encoding),
        found.traceparent,
        list(map(Line.of, found.lines)),
        found.retained_until,
    )


async def _search(caller: Caller, query: TraceQuery, limit: int, cursor: str | None) -> Summaries:
    caller.require(Scope.READ, query.topic)
    before = None if cursor is None else Mark.parse(cursor)

    def work() -> Summaries:
        found, last = search_traces(caller.services.shards, query, caller.principal.sees, limit, before)
        return Summaries(list(map(Summary.of, found)), None if last is None else str(last))

    return await caller.services.workers.run(work)


ROUTES = Router("/v1", route_handlers=[trace, trace_in_search, trace_by_id, traces, find_traces], tags=["traces"])
