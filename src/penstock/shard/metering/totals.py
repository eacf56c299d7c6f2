"""The counters of several shards, added up: a server shows its shards as one broker."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import reduce
from typing import Any, Self

from penstock.model.clock import to_shard_clock
from penstock.model.histograms import Histogram
from penstock.shard.metering.meters import Meters


@dataclasses.dataclass(slots=True)
class Totals:
    """What `Meters` of that name count, of all shards together; for one shard, its own."""

    published: int
    published_bytes: int
    totals: list[int]
    commits: int
    refused_commits: int
    written_bytes: int
    publish_s: Histogram
    fsync_s: Histogram
    commit_s: dict[str, Histogram]
    commit_bytes: Histogram
    commit_messages: Histogram
    fetch_s: Histogram
    content_read_s: Histogram
    end_to_end_s: Histogram
    due_lateness_s: Histogram
    settle_s: Histogram
    settled_segments: int
    settled_bytes: int
    carried_bytes: int
    retained: dict[str, int]
    upkeep_failures: dict[str, int]
    checkpoint_s: Histogram

    @classmethod
    def of(cls, meters: Sequence[Meters]) -> Self:
        """As they are now; of no shards, nothing."""
        counted = meters or [Meters(to_shard_clock(None))]
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: reduce(_added, [getattr(each, name) for each in counted]) for name in names})


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, Histogram):
        added = Histogram(one.bounds)
        added.counts = _added(one.counts, other.counts)
        added.sum = one.sum + other.sum
        return added
    if isinstance(one, list):
        return [own + more for own, more in zip(one, other, strict=True)]
    if isinstance(one, dict):
        return {name: _added(own, other[name]) for name, own in one.items()}
    return one + other
