"""The broker at one glance, as the dashboard begins."""

from __future__ import annotations

import msgspec
from litestar import Router, get

from penstock.model.info import BrokerStatus
from penstock.server.access.principal import Scope
from penstock.server.http.caller import Caller
from penstock.server.http.documenting import errors
from penstock.server.http.group_views import GroupView, listed_view
from penstock.server.http.topic_views import BusyTopic, topic_fields
from penstock.server.metrics.live import LivePoint
from penstock.views import info
from penstock.views.listing import busiest_topics, lagging_groups

_SHOWN = 10


class Overview(msgspec.Struct):
    """The broker, its last second, and where something is going on."""

    broker: BrokerStatus
    latest: LivePoint | None
    busiest: list[BusyTopic]
    """The topics that most is published to; those with most messages where nothing is."""
    lagging: list[GroupView]
    """The groups that are furthest behind."""


@get("/overview", responses=errors())
async def overview(caller: Caller) -> Overview:
    """Show the broker in numbers, with its busiest topics and the groups that are furthest behind."""
    caller.require(Scope.READ)
    services, sees = caller.services, caller.principal.sees
    latest = services.live.latest()

    def work() -> Overview:
        busiest = busiest_topics(services.shard, services.ranking, sees, _SHOWN)
        lagging = lagging_groups(services.shard, services.ranking, sees, _SHOWN)
        return Overview(
            info.status(services.shard),
            latest,
            [BusyTopic(**topic_fields(listed), published_per_second=rate) for listed, rate in busiest],
            list(map(listed_view, lagging)),
        )

    return await services.workers.run(work)


ROUTES = Router("/v1", route_handlers=[overview], tags=["broker"])
