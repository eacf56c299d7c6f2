"""Groups: list, show, make, move, delete; their members and their positions."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec
from litestar import Router, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, Parameter
from msgspec import Meta

from penstock.api.operation import Operation
from penstock.api.operations import OPERATIONS
from penstock.cluster.spreading import place_group
from penstock.model.bounds import shown
from penstock.model.errors import GroupInUse
from penstock.model.info import GroupInfo
from penstock.server.access.principal import Scope
from penstock.server.http.bodies import Moment, Seconds
from penstock.server.http.caller import Caller, permits
from penstock.server.http.documenting import body_of, errors
from penstock.server.http.group_views import GroupView, MemberView, group_view, listed_view
from penstock.server.http.parameters import Limit, MaybeTopic, Search, Skip
from penstock.views.listing import ListedGroup, list_groups, show_everywhere, show_listed

_NEW = {"topic": "orders", "group": "kitchen", "start": "earliest", "visibility_timeout": 30}
_SEEKS = ({"topic": "orders", "to": 1500, "partition": 0}, {"topic": "orders", "to": "2026-12-24T18:00:00Z"})
_OFFSETS = {"topic": "orders", "offsets": {"0": 1500, "1": 1498}}
_NUMBER_MAX = 10**18 - 1

OffsetNumber = Annotated[int, Meta(ge=0, le=_NUMBER_MAX)]
Group = Annotated[str, Parameter(description="The name of a group.")]
OneTopic = Annotated[str | None, Parameter(description="The topic; all that have such a group if it is not given.")]


class Groups(msgspec.Struct):
    """A page of groups."""

    groups: list[GroupView]
    total: int
    """How many match in all."""


class GroupEverywhere(msgspec.Struct):
    """A group in a page of its topics."""

    group: str
    topics: list[GroupView]
    total: int
    """How many topics have such a group in all."""


class NewGroup(msgspec.Struct, forbid_unknown_fields=True):
    """A group to make."""

    topic: str
    group: str
    start: Moment = "earliest"
    """`earliest`, `latest`, or a time."""
    visibility_timeout: Seconds | None = None
    """Its own, instead of the topic's."""
    max_in_flight: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None


class Seek(msgspec.Struct, forbid_unknown_fields=True):
    """Where a group is to go on."""

    topic: str
    to: OffsetNumber | Annotated[float, Meta(ge=0, le=1e11)] | Annotated[str, Meta(max_length=40)]
    """An offset (a whole number), a time (ISO 8601, or seconds since 1970 with a fraction), `earliest` or `latest`."""
    partition: OffsetNumber | None = None
    """Only this one."""


class OfTopic(msgspec.Struct, forbid_unknown_fields=True):
    """The topic whose group is meant."""

    topic: str


class NewOffsets(msgspec.Struct, forbid_unknown_fields=True):
    """How far a group is: the next offset of each partition."""

    topic: str
    offsets: Annotated[dict[str, OffsetNumber], Meta(min_length=1)]


class TopicOffsets(msgspec.Struct):
    """How far a group is with a topic."""

    topic: str
    offsets: dict[str, int]
    """The first offset of each partition that is not done."""
    lag: int


class GroupOffsets(msgspec.Struct):
    """How far a group is."""

    group: str
    topics: list[TopicOffsets]


class TopicAssignment(msgspec.Struct):
    """Who consumes a topic."""

    topic: str
    members: list[MemberView]


class Assignment(msgspec.Struct):
    """Who consumes for a group, and which partitions they are assigned."""

    group: str
    topics: list[TopicAssignment]


@get("/groups", responses=errors())
async def groups(
    caller: Caller, topic: MaybeTopic = None, search: Search = "", limit: Limit = 100, skip: Skip = 0
) -> Groups:
    """List groups in pages, by topic and name."""
    caller.require(Scope.READ, topic)
    services, sees = caller.services, caller.principal.sees

    def work() -> Groups:
        found, total = list_groups(services.shards, sees, topic=topic, search=search, skip=skip, limit=limit)
        return Groups(list(map(listed_view, found)), total)

    return await services.workers.run(work)


@get("/groups/{group:str}", responses=errors(409))
async def group_details(
    caller: Caller, group: Group, topic: OneTopic = None, limit: Limit = 100, skip: Skip = 0
) -> GroupEverywhere:
    """Show a group, in a page of its topics or in one.

    For one topic its lanes are looked at if need be, which takes a moment where there are many messages: nothing is
    null then.
    """
    if topic is not None:
        info = await caller.call("group", topic=topic, group=group)
        return GroupEverywhere(group, [group_view(info)], 1)
    caller.require(Scope.READ)
    show = partial(show_everywhere, caller.services.shards, caller.principal.sees, group, skip=skip, limit=limit)
    found, total = await caller.services.workers.run(show)
    return GroupEverywhere(group, list(map(listed_view, found)), total)


@post("/groups", operation_class=body_of(NewGroup, _NEW), responses=errors(409, 507), guards=permits("create_group"))
async def create_group(caller: Caller, data: JSONBody[NewGroup]) -> GroupView:
    """Make a group before its first consumer comes, with settings of its own; the topic is made if it is new."""
    info: GroupInfo = await caller.call(
        "create_group",
        topic=data.topic,
        group=data.group,
        start=data.start,
        visibility_timeout=data.visibility_timeout,
        max_in_flight=data.max_in_flight,
    )
    return group_view(info)


@delete("/groups/{group:str}", status_code=204, responses=errors(409, 507))
async def delete_group(caller: Caller, group: Group, topic: OneTopic = None) -> None:
    """Forget a group, in one topic or in all of them; it must have no consumers."""
    caller.require(Scope.CONSUME, topic)
    if topic is not None:
        await caller.members.leave_idle(topic, group)
        await caller.call("delete_group", topic=topic, group=group)
        return
    for info, _ in await _listed(caller, Scope.CONSUME, group, None):
        await caller.members.leave_idle(caller.services.name_here(info.topic), group)
    found = await _listed(caller, Scope.CONSUME, group, None)
    for info, _ in found:
        if info.members:
            names = ", ".join(sorted(member.name for member in info.members))
            raise GroupInUse(f"the group {shown(group)} of {info.topic} has consumers: {names}")
    for info, _ in found:
        await caller.call("delete_group", topic=caller.services.name_here(info.topic), group=group)


@post(
    "/groups/{group:str}/seek",
    status_code=200,
    operation_class=body_of(Seek, *_SEEKS),
    responses=errors(409, 507),
    guards=permits("seek_group"),
)
async def seek_group(caller: Caller, group: Group, data: JSONBody[Seek]) -> GroupView:
    """Move a group to an offset, a time, the beginning or the end; what is leased is taken back."""
    await caller.call("seek_group", topic=data.topic, group=group, to=data.to, partition=data.partition)
    return listed_view((await _listed(caller, Scope.CONSUME, group, data.topic))[0])


@get("/groups/{group:str}/offsets", responses=errors())
async def group_offsets(caller: Caller, group: Group, topic: OneTopic = None) -> GroupOffsets:
    """Show how far a group is: the first offset of each partition that is not done."""
    return _offsets(group, await _listed(caller, Scope.READ, group, topic))


@post(
    "/groups/{group:str}/offsets",
    status_code=200,
    operation_class=body_of(NewOffsets, _OFFSETS),
    responses=errors(409, 507),
    guards=permits("checkpoint_group"),
)
async def commit_offsets(caller: Caller, group: Group, data: JSONBody[NewOffsets]) -> GroupOffsets:
    """Say how far a group is, durably: what is before is done, what is behind is to be done.

    A new group becomes one of a reader that keeps its own position, and shows its lag; it is for no consumers. A group
    of consumers is moved, as by a seek: what they hold from these partitions is taken back.
    """
    caller.require(Scope.CONSUME, data.topic)
    await caller.ask_all(place_group, data.topic, group, data.offsets)
    return _offsets(group, await _listed(caller, Scope.CONSUME, group, data.topic))


@get("/groups/{group:str}/assignment", responses=errors())
async def group_assignment(caller: Caller, group: Group, topic: OneTopic = None) -> Assignment:
    """Show who consumes for a group, and which partitions are assigned to whom."""
    found = await _listed(caller, Scope.READ, group, topic)
    shown = [TopicAssignment(info.topic, list(map(MemberView.of, info.members))) for info, _ in found]
    return Assignment(group, shown)


async def _listed(caller: Caller, scope: Scope, group: Group, topic: str | None) -> list[ListedGroup]:
    """A group of a topic, or of all that it has and somebody sees."""
    caller.require(scope, topic)
    services, sees = caller.services, caller.principal.sees
    if topic is None:
        found, _ = await services.workers.run(partial(show_everywhere, services.shards, sees, group))
        return found
    return [await caller.ask_all(show_listed, topic, group)]


def _offsets(group: Group, found: list[ListedGroup]) -> GroupOffsets:
    return GroupOffsets(
        group,
        [TopicOffsets(info.topic, {str(n): at for n, at in enumerate(info.positions)}, info.lag) for info, _ in found],
    )


def _verb_route(verb: str, operation: Operation) -> HTTPRouteHandler:
    """The route of an operation that takes a group and answers with it."""

    async def change(caller: Caller, group: Group, data: JSONBody[OfTopic]) -> GroupView:
        return group_view(await caller.call(operation.name, topic=data.topic, group=group))

    change.__name__, change.__doc__ = operation.name, operation.summary
    route = post(
        f"/groups/{{group:str}}/{verb}",
        status_code=200,
        operation_class=body_of(OfTopic, {"topic": "orders"}),
        responses=errors(409, 507),
        guards=permits(operation.name),
    )
    return route(change)


ROUTES = Router(
    "/v1",
    route_handlers=[
        groups,
        group_details,
        create_group,
        delete_group,
        seek_group,
        group_offsets,
        commit_offsets,
        group_assignment,
        *(_verb_route(one.group_verb, one) for one in OPERATIONS.values() if one.group_verb is not None),
    ],
    tags=["groups"],
)
