"""Publishing, as the routes describe it; see `http.publishing` for what is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from litestar import Request, Response, Router, post
from litestar.enums import MediaType
from litestar.openapi.spec import Operation

from penstock.server.access.principal import Scope
from penstock.server.http.bodies import NewMessage, NewMessages, Published, Results
from penstock.server.http.caller import Caller
from penstock.server.http.documenting import answers, body_of, json_body, query_of
from penstock.server.http.parameters import Topic
from penstock.server.http.publishing import RAW_OPTIONS, publish_batch, publish_one, read_goqueue_message
from penstock.server.http.routes.messages import find_messages

_ONE = {"key": "customer-7", "value": "two coffees", "priority": "high", "headers": {"source": "web"}}
_GO = {"key": "order-123", "value": "eyJvcmRlcl9pZCI6MTIzfQ==", "delay": "5m"}
_MANY = {"messages": [{"value": "two coffees"}, {"value": "AAEC", "encoding": "base64", "delay": 30}]}

_DURABLE = answers(Published, "It is durable.", 409, 507)


@dataclass
class _One(Operation):
    def __post_init__(self) -> None:
        self.request_body = json_body(NewMessage, _ONE, raw=True)
        self.parameters = [*(self.parameters or ()), *query_of(NewMessage, *RAW_OPTIONS)]


@post(
    "/topics/{topic:str}/publish",
    operation_class=_One,
    responses=_DURABLE,
    status_code=200,
    tags=["publishing"],
)
async def publish_message(request: Request[Any, Any, Any], caller: Caller, topic: Topic) -> Response[bytes]:
    """Publish one message.

    With `Content-Type: application/octet-stream` the body is the value as it is; then the rest is in the query, and
    headers named `X-Penstock-Header-…` become headers of the message. The topic is made if it is new.
    """
    return await _publish(publish_one, request, caller, topic)


@post(
    "/topics/{topic:str}/messages",
    operation_class=body_of(NewMessages, _MANY),
    responses=answers(Results, "All are durable.", 409, 507),
    status_code=200,
    tags=["publishing"],
)
async def publish_messages(request: Request[Any, Any, Any], caller: Caller, topic: Topic) -> Response[bytes]:
    """Publish a batch: all of its messages or, where one cannot be accepted, none.

    With `producer` and `sequence` (which grows) a batch that is sent twice is published once.
    """
    return await _publish(publish_batch, request, caller, topic)


@post(
    "/goqueue/v1/topics/{topic:str}/publish",
    operation_class=body_of(NewMessage, _GO),
    responses=_DURABLE,
    status_code=200,
    tags=["publishing"],
)
async def publish_goqueue_message(request: Request[Any, Any, Any], caller: Caller, topic: Topic) -> Response[bytes]:
    """Publish one message as clients of GoQueue write it.

    The value is base64 and the key is text, unless `encoding` says something else of both. Such a client works with
    `/goqueue` as the beginning of its paths.
    """
    return await _publish(partial(publish_one, read=read_goqueue_message), request, caller, topic)


async def _publish(
    publish: Callable[..., Awaitable[bytes]], request: Request[Any, Any, Any], caller: Caller, topic: str
) -> Response[bytes]:
    caller.require(Scope.PUBLISH, topic)  # before the body is read
    query, headers = request.scope["query_string"], request.scope["headers"]
    reply = await publish(caller.services, caller.principal, topic, await request.body(), query, headers)
    return Response(reply, media_type=MediaType.JSON)


# the framework wants all methods of one path in one router
_VERSIONED = Router("/v1", route_handlers=[publish_message, publish_messages, find_messages])
ROUTES = Router("/", route_handlers=[_VERSIONED, publish_goqueue_message])
