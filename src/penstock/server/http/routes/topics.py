"""Topics: list, make, show, change, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from litestar import Router, delete, get, patch, post
from litestar.params import JSONBody, Parameter

from penstock.model.info import TopicInfo
from penstock.server.access.principal import Scope
from penstock.server.http.caller import Caller, permits
from penstock.server.http.documenting import body_of, errors
from penstock.server.http.group_views import GroupView, listed_view
from penstock.server.http.parameters import Limit, Search, Skip, Topic
from penstock.server.http.topic_views import (
    LaneView,
    NewTopic,
    PartitionView,
    TopicOptions,
    TopicView,
    topic_fields,
)
from penstock.views.listing import ListedTopic, list_topics, show_topic

if TYPE_CHECKING:
    from penstock.cluster.shards import Shards

_NEW = {"name": "orders", "num_partitions": 4, "retention_hours": 168}
_CHANGES = {"retention_age": "30d", "visibility_timeout": 60}

Sort = Annotated[
    Literal["name", "backlog", "messages", "bytes"],
    Parameter(description="`backlog` is the lag of all groups of a topic together."),
]
Order = Annotated[
    Literal["asc", "desc"] | None,
    Parameter(description="Ascending for names and descending for numbers, if it is not given."),
]


class TopicInList(TopicView):
    """A topic, and how much its groups have to do."""

    backlog: int
    """The lag of all its groups together, some seconds old where there are very many topics."""


class Topics(msgspec.Struct):
    """A page of topics."""

    topics: list[TopicInList]
    total: int
    """How many match in all."""


class TopicDetails(TopicView):
    """A topic with its partitions and groups."""

    partition_list: list[PartitionView]
    lanes: list[LaneView]
    """What is not done yet, by priority, in groups that somebody has used since the server started."""
    group_list: list[GroupView]


class Partitions(msgspec.Struct):
    """The partitions of a topic."""

    partitions: list[PartitionView]


@get("/topics", responses=errors())
async def topics(
    caller: Caller, search: Search = "", limit: Limit = 100, skip: Skip = 0, sort: Sort = "name", order: Order = None
) -> Topics:
    """List topics in pages, by name or with the largest first."""
    caller.require(Scope.READ)
    services, sees = caller.services, caller.principal.sees
    descending = order == "desc" if order is not None else sort != "name"
    shards, ranking = services.shards, services.ranking

    def work() -> Topics:
        found, total = list_topics(
            shards, ranking, sees, search=search, sort=sort, descending=descending, skip=skip, limit=limit
        )
        known = ranking.topics()
        backlogs = [known[name].backlog if (name := listed.info.name) in known else 0 for listed in found]
        shown = zip(found, backlogs, strict=True)
        return Topics([TopicInList(**topic_fields(listed), backlog=backlog) for listed, backlog in shown], total)

    return await services.workers.run(work)


@post("/topics", operation_class=body_of(NewTopic, _NEW), responses=errors(409, 507), guards=permits("create_topic"))
async def create_topic(caller: Caller, data: JSONBody[NewTopic]) -> TopicView:
    """Make a topic.

    `num_partitions` is another name of `partitions`, and `retention_hours` gives `retention_age` in hours. What is left
    out is as the server's defaults say.
    """
    made: TopicInfo = await caller.services.call(caller.principal, "create_topic", name=data.name, **data.options())
    return TopicView(**topic_fields(ListedTopic(made, 0)))


@get("/topics/{topic:str}", responses=errors())
async def topic_details(caller: Caller, topic: Topic) -> TopicDetails:
    """Show a topic with its partitions and groups."""
    caller.require(Scope.READ, topic)

    def work(shards: Shards) -> TopicDetails:
        listed, lanes, groups = show_topic(shards, topic)
        return TopicDetails(
            **topic_fields(listed),
            partition_list=list(map(PartitionView.of, listed.info.partitions)),
            lanes=[LaneView(*lane) for lane in lanes],
            group_list=list(map(listed_view, groups)),
        )

    return await caller.ask_all(work)


@patch(
    "/topics/{topic:str}",
    operation_class=body_of(TopicOptions, _CHANGES),
    responses=errors(507),
    guards=permits("configure_topic"),
)
async def change_topic(caller: Caller, topic: Topic, data: JSONBody[TopicOptions]) -> TopicView:
    """Change options of a topic; those that are left out stay. `partitions`, `order` and `spread` stay."""
    await caller.services.call(caller.principal, "configure_topic", name=topic, **data.options())
    return TopicView(**topic_fields((await caller.ask_all(show_topic, topic)).topic))


@delete("/topics/{topic:str}", status_code=204, responses=errors(507))
async def delete_topic(caller: Caller, topic: Topic) -> None:
    """Delete a topic with all of its messages and groups."""
    await caller.call("delete_topic", name=topic)


@get("/topics/{topic:str}/partitions", responses=errors())
async def topic_partitions(caller: Caller, topic: Topic) -> Partitions:
    """List the partitions of a topic: which offsets they hold, and what they take."""
    caller.require(Scope.READ, topic)
    shown = await caller.ask_all(show_topic, topic)
    return Partitions(list(map(PartitionView.of, shown.topic.info.partitions)))


ROUTES = Router(
    "/v1",
    route_handlers=[topics, create_topic, topic_details, change_topic, delete_topic, topic_partitions],
    tags=["topics"],
)
