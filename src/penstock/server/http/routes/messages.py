"""Reading the log: by offset, by time, by key; one message; and the past once more."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from litestar import Router, get, post
from litestar.params import JSONBody, Parameter
from msgspec import Meta

from penstock.model.message import MessageId
from penstock.segments.window import Window
from penstock.server.access.principal import Scope
from penstock.server.http.bodies import MessageView, Moment, decode_base64, view_of
from penstock.server.http.caller import Caller, permits
from penstock.server.http.documenting import body_of, errors
from penstock.server.http.parameters import (
    NUMBER_MAX,
    AsEncoded,
    Cursor,
    Limit,
    MaybeOffset,
    MaybePartition,
    Offset,
    Partition,
    Topic,
    time_us,
)
from penstock.views.searching import Place, find_message, read_partition, search_messages

if TYPE_CHECKING:
    from penstock.cluster.shards import Shards
    from penstock.shard.shard import Shard

_REPLAY = {"group": "audit", "from_time": "2026-12-24T00:00:00Z", "to_time": "2026-12-25T00:00:00Z", "rate": 1000}
Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
FromTime = Annotated[str | None, Parameter(max_length=40, description="From this time on (ISO 8601).")]
ToTime = Annotated[str | None, Parameter(max_length=40, description="To before this time.")]


class MessagePage(msgspec.Struct):
    """A page of one partition."""

    messages: list[MessageView]
    next_offset: int
    """Where the next page begins."""
    end_offset: int
    """The offset that the next message gets."""


class FoundMessages(msgspec.Struct):
    """A page of what was searched for; there may be more as long as there is a cursor, even behind an empty page."""

    messages: list[MessageView]
    cursor: str | None


class Replay(msgspec.Struct, forbid_unknown_fields=True):
    """A part of the past: by time or by offset, the first inside and the second outside."""

    group: str
    """The group that is made for it."""
    from_time: Moment | None = None
    to_time: Moment | None = None
    from_offset: Number | None = None
    to_offset: Number | None = None
    partition: Number | None = None
    rate: Annotated[float, Meta(ge=0.001, lt=1e9)] | None = None
    """Messages a second, at most."""


class Replayed(msgspec.Struct):
    """A group that is ready to be consumed."""

    group: str
    messages: int


@get("/topics/{topic:str}/partitions/{partition:int}/messages", responses=errors())
async def partition_messages(
    caller: Caller,
    topic: Topic,
    partition: Partition,
    offset: MaybeOffset = None,
    limit: Limit = 100,
    encoding: AsEncoded = None,
) -> MessagePage:
    """Read a partition by offset, from its first message if no offset is given; also what was acked.

    A page has some MiB at most, so that it may be shorter than `limit`: go on at `next_offset`.
    """
    caller.require(Scope.READ, topic)

    def work(shard: Shard, place: MessageId) -> MessagePage:
        messages, next_offset, end_offset = read_partition(shard, place, offset, limit)
        return MessagePage([view_of(message, encoding) for message in messages], next_offset, end_offset)

    return await caller.ask(work, MessageId(topic, partition, 0))


@get("/topics/{topic:str}/messages", responses=errors(), tags=["reading"])
async def find_messages(
    caller: Caller,
    topic: Topic,
    partition: MaybePartition = None,
    offset: MaybeOffset = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    key: Annotated[
        str | None, Parameter(description="Only messages with this key; in base64 if `encoding` is that.")
    ] = None,
    limit: Limit = 100,
    include_deleted: Annotated[bool, Parameter(description="Also what retention moved to the archive.")] = False,
    cursor: Cursor = None,
    encoding: AsEncoded = None,
) -> FoundMessages:
    """Search messages by time and key, partition after partition, in the order of their offsets.

    Each request looks at a bounded part of the log: a page may be short or empty and have a cursor all the same. Ask
    again with it, and with the same other parameters, until it is null.
    """
    caller.require(Scope.READ, topic)
    window = Window(start=offset or 0)
    from_us, to_us = time_us("from_time", from_time), time_us("to_time", to_time)
    window.from_us = window.from_us if from_us is None else from_us
    window.to_us = window.to_us if to_us is None else to_us
    wanted = None if key is None else decode_base64("key", key) if encoding == "base64" else key.encode()
    start = None if cursor is None else Place.parse(cursor)
    page = partial(search_messages, key=wanted, limit=limit, include_deleted=include_deleted, start=start)

    def work(shards: Shards) -> FoundMessages:
        messages, place = page(shards, topic, partition, window)
        shown = [view_of(message, encoding) for message in messages]
        return FoundMessages(shown, None if place is None else str(place))

    return await caller.ask_all(work)


@get("/topics/{topic:str}/messages/{partition:int}/{offset:int}", responses=errors())
async def one_message(
    caller: Caller, topic: Topic, partition: Partition, offset: Offset, encoding: AsEncoded = None
) -> MessageView:
    """Show one message, also if it was acked or is in the archive."""
    caller.require(Scope.READ, topic)
    return view_of(await caller.ask(find_message, MessageId(topic, partition, offset)), encoding)


@post(
    "/topics/{topic:str}/replay",
    status_code=200,
    operation_class=body_of(Replay, _REPLAY),
    responses=errors(409, 507),
    guards=permits("replay"),
)
async def replay_messages(caller: Caller, topic: Topic, data: JSONBody[Replay]) -> Replayed:
    """Make a fresh group that gets a part of the past once more, acked and archived messages too.

    Other groups notice nothing. Consume the group as any other; delete it when it is done.
    """
    window = msgspec.structs.asdict(data)
    return Replayed(data.group, await caller.call("replay", topic=topic, to=window.pop("group"), **window))


ROUTES = Router("/v1", route_handlers=[partition_messages, one_message, replay_messages], tags=["reading"])
