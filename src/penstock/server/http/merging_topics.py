"""Requests about one topic that several processes answer together, each for the slices of it that it has."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.model.letters import CauseReport, DeadLetterCause
from penstock.model.merging import by
from penstock.server.http.merging import Gathered, Parts, Query, merge_all_offsets
from penstock.server.http.merging_items import merge_details, merge_groups, merge_partitions, merge_topics

_CAUSES_MAX = 1000
_LIMIT = "100"


def gathered_of_topic(method: str, path: str) -> Gathered | None:
    """How a request is answered about a topic whose slices are in several processes; None: as about any topic."""
    for each in _GATHERED:
        if each.method == method and each.address.fullmatch(path) is not None:
            return each
    return None


def _partitions(parts: Parts, _: Query) -> dict[str, Any]:
    return {"partitions": merge_partitions(part["partitions"] for part in parts)}


def _delayed(parts: Parts, query: Query) -> dict[str, Any]:
    """The next to fall due first; each process has told of as many as may be needed."""
    skip, limit = int(query.get("skip", "0")), int(query.get("limit", _LIMIT))
    found = list(heapq.merge(*(part["delayed"] for part in parts), key=lambda one: one["due_at"]))
    more = len(found) > skip + limit or any(part["more"] for part in parts)
    return {"delayed": found[skip : skip + limit], "more": more}


def _causes(parts: Parts, _: Query) -> CauseReport:
    reports = [msgspec.convert(part, CauseReport) for part in parts]
    found = by(
        (cause for report in reports for cause in report.causes), lambda cause: (cause.cause, cause.group), _one_cause
    )
    found.sort(key=lambda cause: (-cause.count, cause.cause, cause.group))
    complete = all(report.complete for report in reports) and len(found) <= _CAUSES_MAX
    return CauseReport(found[:_CAUSES_MAX], sum(report.total for report in reports), complete)


def _one_cause(some: Sequence[DeadLetterCause]) -> DeadLetterCause:
    first = some[0]
    oldest, newest = min(one.oldest for one in some), max(one.newest for one in some)
    return DeadLetterCause(first.cause, first.group, sum(one.count for one in some), oldest, newest)


_TOPIC, _GROUP = "/v1/topics/[^/]+", "/v1/groups/[^/]+"
_GATHERED = (
    Gathered(re.compile(_TOPIC), lambda parts, _: merge_details(parts)),
    Gathered(re.compile(_TOPIC), lambda parts, _: merge_topics(parts), method="PATCH"),
    Gathered(re.compile(f"{_TOPIC}/partitions"), _partitions),
    Gathered(re.compile(f"{_TOPIC}/delayed"), _delayed, page="delayed"),
    Gathered(re.compile(f"{_TOPIC}/dead-letters/causes"), _causes),
    Gathered(re.compile(f"{_GROUP}/seek"), lambda parts, _: merge_groups(parts), method="POST"),
    Gathered(re.compile(f"{_GROUP}/offsets"), merge_all_offsets, method="POST"),
)
