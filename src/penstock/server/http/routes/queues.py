"""The plain queue: three routes on topics with one partition, for whoever wants nothing but to put in and take out.

Messages are taken out for the group `queue`, and are done with that: they are acked, durably, before they are sent.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router, get, post
from litestar.exceptions import HTTPException
from litestar.params import PathParameter, QueryParameter

from penstock.model.errors import LeaseLost, TopicExists, TopicNotFound
from penstock.model.intake import check_message
from penstock.model.message import Message
from penstock.server.access.principal import Scope
from penstock.server.http.bodies import Encoding, as_text
from penstock.server.http.caller import Caller
from penstock.server.http.documenting import answers, errors, raw_body
from penstock.shard.shard import Shard
from penstock.views.info import list_queue, queue_length

GROUP = "queue"
_RAW = "application/octet-stream"
Queue = Annotated[str, PathParameter(description="The name of a topic with one partition.")]


class Enqueued(msgspec.Struct):
    """It is in the queue, durably."""

    queueLength: int  # noqa: N815 - the name that clients of this route know


class Items(msgspec.Struct):
    """What is in a queue, in the order in which it was put in."""

    items: list[str]
    page: int
    perPage: int  # noqa: N815 - the name that clients of this route know
    total: int
    encoding: Encoding
    """`base64` where one of the items is no text."""


@post(
    "/queue/{queue:str}/enqueue",
    operation_class=raw_body("The message, as it is."),
    status_code=200,
    responses=errors(409, 507),
)
async def enqueue(request: Request[Any, Any, Any], caller: Caller, queue: Queue) -> Enqueued:
    """Put a message into a queue, which is made if it is new; it is durable when this is answered."""
    caller.require(Scope.PUBLISH, queue)
    services = caller.services
    shard = services.shards.of(queue)
    message = Message(await request.body())
    now_us = shard.clock.wall_us()
    single = check_message(message, shard.config, now_us)
    if not _is_there(shard, queue) and shard.config.topic_defaults.partitions != 1:
        await services.workers.run(partial(_make, caller, queue))
    _, commit = shard.publish_single(queue, single, 0, now_us, name=caller.principal.producer_name)
    await services.commits.wait(commit)
    return Enqueued(queue_length(shard, queue, GROUP))


@get(
    "/queue/{queue:str}/dequeue",
    media_type=_RAW,
    responses=answers(bytes, "The message; nothing if there is none.", 409, media=_RAW),
)
async def dequeue(caller: Caller, queue: Queue) -> Response[bytes]:
    """Take the next message out of a queue: it is sent once, and never comes again.

    The body is the message as it is, and nothing if the queue is empty. The header `X-Penstock-Id` is there only with
    a message: it tells an empty message from none.
    """
    caller.require(Scope.CONSUME, queue)
    while _is_there(caller.services.shards.of(queue), queue):
        member = await caller.members.of_group(queue, GROUP)
        found = await caller.receive(member, 1, 0)
        if not found:
            break
        try:
            await found[0].ack()
        except LeaseLost:  # the group was moved at this moment
            continue
        return Response(found[0].value, media_type=_RAW, headers={"x-penstock-id": str(found[0].id)})
    return Response(b"", media_type=_RAW)


@get("/queue/{queue:str}/list-items", responses=errors(409))
async def list_items(
    caller: Caller,
    queue: Queue,
    page: Annotated[int, QueryParameter(ge=1, le=1_000_000_000, description="Which page, from 1.")] = 1,
    per_page: Annotated[
        int, QueryParameter(name="perPage", ge=1, le=1000, description="How many items a page has.")
    ] = 20,
) -> Items:
    """Look at what is in a queue, page by page, and leave it there."""
    caller.require(Scope.READ, queue)
    if not _is_there(caller.services.shards.of(queue), queue):
        return Items([], page, per_page, 0, "utf8")
    values, total = await caller.ask(list_queue, queue, GROUP, (page - 1) * per_page, per_page)
    shown = [as_text(value, None, None) for value in values]
    encoding: Encoding = "utf8" if all(how == "utf8" for _, _, how in shown) else "base64"
    if encoding == "base64":
        shown = [as_text(value, None, "base64") for value in values]
    return Items([text for text, _, _ in shown], page, per_page, total, encoding)


def _is_there(shard: Shard, queue: str) -> bool:
    """Whether there is such a queue; raises if it is a topic with more than one partition."""
    try:
        partitions = shard.partition_count(queue)
    except TopicNotFound:
        return False
    if partitions > 1:
        raise HTTPException(
            status_code=409,
            detail=f"{queue} has {partitions} partitions, and a queue has one: use /v1/topics/{queue}, or another name",
        )
    return True


def _make(caller: Caller, queue: str) -> None:
    try:
        caller.services.broker.create_topic(queue, partitions=1)
    except TopicExists:  # made by somebody else at this moment
        _is_there(caller.services.shards.of(queue), queue)


ROUTES = Router("/api/v1", route_handlers=[enqueue, dequeue, list_items], tags=["queues"])
