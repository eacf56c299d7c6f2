"""Replies of several processes to one request, each about its own shards, as one reply: pure functions on JSON."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec

from penstock.cluster.gathering import merge_statuses
from penstock.model.info import BrokerStatus
from penstock.model.stats import DelayStats, PriorityStats, RebalanceStats, ReliabilityStats
from penstock.server.http.merging_items import Item, by, merge_groups, merge_members, merge_offsets, merge_topics
from penstock.server.metrics.live import LivePoint, merge_points
from penstock.server.metrics.pages import merge_pages
from penstock.views.stats import merge_delays, merge_priorities, merge_rebalances, merge_reliability
from penstock.views.trace_search import Mark

Query = Mapping[str, str]
"""The parameters of a request."""
Parts = Sequence[Any]
"""What each process has replied, decoded."""
Found = TypeVar("Found")

LIMIT_MAX, SKIP_MAX = 1000, 10_000_000
"""How many a page may have, and how many may be before it."""
_SHOWN = 10  # topics and groups of the overview
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LIMIT = "100"  # of a page, where none is given


class Gathered(NamedTuple):
    """A request that all processes answer together."""

    address: re.Pattern[str]
    merge: Callable[[Parts, Query], Any]
    """One reply of several."""
    page: str | None = None
    """The name of the list in the reply, where a page of it was asked for."""
    everybody: bool = False
    """Whether processes without shards have something to say."""
    found_anywhere: bool = False
    """Whether one that knows nothing of it does not matter as long as another does."""
    method: str = "GET"
    extra: Query = MappingProxyType({})
    """Parameters that all are asked with."""
    refusal: int | None = None
    """A status that tells of a part, as 200 does."""


def gathered(method: str, path: str) -> Gathered | None:
    """How a request is answered that names no process; None if the process that it came to answers."""
    for each in _GATHERED:
        if each.method == method and each.address.fullmatch(path) is not None:
            return each
    return None


def _topics(parts: Parts, query: Query) -> dict[str, Any]:
    sort = query.get("sort", "name")
    descending = query["order"] == "desc" if "order" in query else sort != "name"
    items = by((item for part in parts for item in part["topics"]), _name, merge_topics)
    items.sort(key=lambda item: item["name"], reverse=descending and sort == "name")
    if sort != "name":
        sign = -1 if descending else 1
        items.sort(key=lambda item: sign * item[sort])
    return {"topics": _page(items, query), "total": _total(parts, items)}


def _groups(parts: Parts, query: Query) -> dict[str, Any]:
    items = sorted(_groups_of(item for part in parts for item in part["groups"]), key=_topic_and_group)
    return {"groups": _page(items, query), "total": _total(parts, items)}


def _group_everywhere(parts: Parts, query: Query) -> dict[str, Any]:
    items = sorted(_groups_of(item for part in parts for item in part["topics"]), key=_topic_and_group)
    return {**parts[0], "topics": _page(items, query), "total": _total(parts, items)}


def _groups_of(items: Iterable[Item]) -> list[Item]:
    return by(items, _topic_and_group, merge_groups)


def merge_all_offsets(parts: Parts, _: Query) -> dict[str, Any]:
    """How far a group is in all of its topics."""
    topics = by((item for part in parts for item in part["topics"]), _topic, merge_offsets)
    return {**parts[0], "topics": sorted(topics, key=_topic)}


def _assignment(parts: Parts, _: Query) -> dict[str, Any]:
    """Who consumes for a group, in all of its topics."""
    topics = by((item for part in parts for item in part["topics"]), _topic, _merge_assignments)
    return {**parts[0], "topics": sorted(topics, key=_topic)}


def _merge_assignments(parts: Sequence[Item]) -> Item:
    return {**parts[0], "members": merge_members(part["members"] for part in parts)}


def _page(items: list[Any], query: Query) -> list[Any]:
    skip = int(query.get("skip", "0"))
    return items[skip : skip + int(query.get("limit", _LIMIT))]


def _total(parts: Parts, items: list[Any]) -> int:
    """Each process counts what has its home there; dead letters may be in some of the slices only, beside that one."""
    counted: int = sum(part["total"] for part in parts)
    return max(counted, len(items))


def _name(item: Item) -> str:
    return str(item["name"])


def _topic(item: Mapping[str, Any]) -> str:
    return str(item["topic"])


def _topic_and_group(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["topic"], item["group"]


def _overview(parts: Parts, _: Query) -> dict[str, Any]:
    busiest = by((topic for part in parts for topic in part["busiest"]), _name, merge_topics)
    lagging = _groups_of(group for part in parts for group in part["lagging"])
    points = [msgspec.convert(part["latest"], LivePoint) for part in parts]
    return {
        "broker": merge_statuses([msgspec.convert(part["broker"], BrokerStatus) for part in parts]),
        "latest": merge_points(points),
        "busiest": heapq.nsmallest(_SHOWN, busiest, key=_quietness),
        "lagging": heapq.nsmallest(_SHOWN, lagging, key=lambda group: (-group["lag"], *_topic_and_group(group))),
    }


def _quietness(topic: Mapping[str, Any]) -> tuple[float, int, str]:
    return -topic["published_per_second"], -topic["messages"], topic["name"]


def _queues(parts: Parts, _: Query) -> dict[str, Any]:
    queues: Counter[str] = Counter()
    for part in parts:
        queues.update(part["queues"])
    connections = sum(part["active_connections"] for part in parts)
    return {**parts[0], "queues": queues, "active_connections": connections}


def _typed(kind: type[Found], merge: Callable[[Sequence[Found]], Found]) -> Callable[[Parts, Query], Found]:
    return lambda parts, _: merge([msgspec.convert(part, kind) for part in parts])


def _traces(parts: Parts, query: Query) -> dict[str, Any]:
    """The newest of all.

    All of them have seen what is newer than the newest place where one of them ended: the page goes as far as that, and
    what others have found behind it is found again.
    """
    ends = [Mark.parse(part["cursor"]) for part in parts if part["cursor"] is not None]
    end, limit = max(ends, default=None), int(query.get("limit", _LIMIT))
    page: list[Any] = []
    for summary in heapq.merge(*(part["traces"] for part in parts), key=_mark, reverse=True):
        if end is not None and _mark(summary) < end:
            break
        if len(page) == limit:
            end = _mark(page[-1])
            break
        page.append(summary)
    return {"traces": page, "cursor": None if end is None else str(end)}


def _mark(summary: Mapping[str, Any]) -> Mark:
    time_us = (datetime.fromisoformat(summary["published_at"]) - _EPOCH) // timedelta(microseconds=1)
    return Mark(time_us, summary["topic"], summary["partition"], summary["offset"])


def _health(parts: Parts, query: Query) -> dict[str, Any]:
    """Of each check, the worst counts."""
    found: dict[str, Any] = {}
    for check in (check for part in parts for check in part["checks"]):
        if check["name"] not in found or not check["ok"]:
            found[check["name"]] = check
    well = all(check["ok"] for check in found.values())
    is_verbose = query.get("verbose", "no").lower() not in ("false", "no", "0")
    told = {"checks": list(found.values())} if not well or is_verbose else {}
    return {"status": "ok" if well else "not ready", **told}


def _nothing(_: Parts, __: Query) -> None:
    return None


def _at(address: str) -> re.Pattern[str]:
    return re.compile(address)


_GATHERED = (
    Gathered(_at("/v1/topics"), _topics, page="topics"),
    Gathered(_at("/v1/groups"), _groups, page="groups"),
    Gathered(_at("/v1/groups/[^/]+"), _group_everywhere, page="topics", found_anywhere=True),
    Gathered(_at("/v1/groups/[^/]+"), _nothing, found_anywhere=True, method="DELETE"),
    Gathered(_at("/v1/groups/[^/]+/offsets"), merge_all_offsets, found_anywhere=True),
    Gathered(_at("/v1/groups/[^/]+/assignment"), _assignment, found_anywhere=True),
    Gathered(_at("/v1/overview"), _overview),
    Gathered(_at("/v1/priority/stats"), _typed(PriorityStats, merge_priorities)),
    Gathered(_at("/v1/delay/stats"), _typed(DelayStats, merge_delays)),
    Gathered(_at("/v1/reliability/stats"), _typed(ReliabilityStats, merge_reliability)),
    Gathered(_at("/v1/rebalance/stats"), _typed(RebalanceStats, merge_rebalances)),
    Gathered(_at("/v1/traces(?:/search)?"), _traces),
    Gathered(_at("/status"), _queues, everybody=True),
    Gathered(_at("/metrics"), lambda parts, _: merge_pages(parts), everybody=True),
    Gathered(_at("/readyz|/healthz?"), _health, extra={"verbose": "yes"}, refusal=503),
)
