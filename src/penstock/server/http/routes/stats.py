"""The broker in numbers: at one glance, for programs, and for Prometheus."""

from __future__ import annotations

import msgspec
from litestar import MediaType, Response, Router, get

from penstock.cluster import gathering
from penstock.model.info import BrokerStatus
from penstock.model.stats import DelayStats, PriorityStats, RebalanceStats, ReliabilityStats
from penstock.server.access.principal import Scope
from penstock.server.http.caller import Caller
from penstock.server.http.documenting import errors
from penstock.server.http.group_views import GroupView, listed_view
from penstock.server.http.topic_views import BusyTopic, topic_fields
from penstock.server.metrics.live import LivePoint
from penstock.views.listing import busiest_topics, lagging_groups
from penstock.views.stats import delay_stats, priority_stats, queue_lengths, rebalance_stats, reliability_stats

_SHOWN = 10  # topics and groups of the overview


class Status(msgspec.Struct):
    """What waits where, and who is there."""

    queues: dict[str, int]
    """By topic and partition (`orders-0`): what the slowest group has to do, or all while there is no group."""
    active_connections: int
    version: str
    uptime_s: float


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
        busiest = busiest_topics(services.shards, services.ranking, sees, _SHOWN)
        lagging = lagging_groups(services.shards, services.ranking, sees, _SHOWN)
        return Overview(
            gathering.status(services.shards),
            latest,
            [BusyTopic(**topic_fields(listed), published_per_second=rate) for listed, rate in busiest],
            list(map(listed_view, lagging)),
        )

    return await services.workers.run(work)


@get("/stats", responses=errors())
async def broker_stats(caller: Caller) -> BrokerStatus:
    """The broker at this instant: who it is, how much it holds, and whether it can write."""
    status: BrokerStatus = await caller.call("status")
    return status


@get("/priority/stats", responses=errors())
async def lane_stats(caller: Caller) -> PriorityStats:
    """What is ready, by priority: in all topics together, and topic by topic."""
    caller.require(Scope.READ)
    return await caller.ask_all(priority_stats, caller.principal.sees)


@get("/delay/stats", responses=errors())
async def delayed_stats(caller: Caller) -> DelayStats:
    """What is not due yet, and how late delayed messages were made ready."""
    caller.require(Scope.READ)
    return await caller.ask_all(delay_stats, caller.principal.sees)


@get("/reliability/stats", responses=errors())
async def delivery_stats(caller: Caller) -> ReliabilityStats:
    """What became of deliveries since the broker was opened, and what is under way."""
    caller.require(Scope.READ)
    return await caller.ask_all(reliability_stats)


@get("/rebalance/stats", responses=errors())
async def assignment_stats(caller: Caller) -> RebalanceStats:
    """How often partitions went from one member to another, in groups of `assigned` mode."""
    caller.require(Scope.READ)
    return await caller.ask_all(rebalance_stats, caller.principal.sees)


@get("/status", responses=errors())
async def queue_status(caller: Caller) -> Status:
    """How much waits in each partition, and how many connections are open."""
    caller.require(Scope.READ)
    queues = await caller.ask_all(queue_lengths, caller.principal.sees)
    status: BrokerStatus = await caller.call("status")
    return Status(queues, caller.services.metrics.connections, status.version, status.uptime_s)


@get("/metrics", media_type=MediaType.TEXT, responses=errors())
async def metrics(caller: Caller) -> Response[bytes]:
    """Everything that is counted and measured, in the text format of Prometheus."""
    caller.principal.require_all_topics(Scope.READ)
    page = await caller.services.workers.run(caller.services.metrics.render)
    media_type, _, _ = caller.services.metrics.content_type.partition("; charset=")  # the framework adds it
    return Response(page, media_type=media_type)


_VERSIONED = Router(
    "/v1", route_handlers=[overview, broker_stats, lane_stats, delayed_stats, delivery_stats, assignment_stats]
)
ROUTES = Router("/", route_handlers=[_VERSIONED, queue_status, metrics], tags=["broker"])
