"""Topics as JSON: how they are shown, and the options that they are made with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.model.config import PARTITIONS_MAX, TopicConfig
from penstock.model.errors import InvalidArgument
from penstock.model.info import PartitionInfo
from penstock.model.placement import SHARDS_MAX
from penstock.server.http.bodies import Seconds
from penstock.views.listing import ListedTopic

_COUNT_MAX = 1 << 60
Size = Annotated[int, Meta(ge=0, le=_COUNT_MAX)] | Annotated[str, Meta(max_length=40, examples=["10GB"])]
Weights = (
    dict[str, Annotated[int, Meta(ge=1, le=1_000_000)]]
    | list[tuple[Annotated[int, Meta(ge=0, le=255)], Annotated[int, Meta(ge=1, le=1_000_000)]]]
)


class PartitionView(msgspec.Struct):
    """One partition, in numbers."""

    partition: int
    first_offset: int
    """The lowest offset that can still be read."""
    end_offset: int
    """The offset that the next message gets."""
    messages: int
    segments: int
    segment_bytes: int
    journal_bytes: int

    @classmethod
    def of(cls, info: PartitionInfo) -> PartitionView:
        first, end = info.first_offset, info.end_offset
        return cls(info.number, first, end, end - first, info.segments, info.segment_bytes, info.journal_bytes)


class TopicView(msgspec.Struct):
    """A topic, in numbers, with its options."""

    name: str
    partitions: int
    messages: int
    first_offsets: list[int]
    end_offsets: list[int]
    bytes: int
    segments: int
    segment_bytes: int
    journal_bytes: int
    groups: int
    config: TopicConfig


class BusyTopic(TopicView):
    """A topic, and how much is published to it."""

    published_per_second: float
    """Over the last seconds."""


class LaneView(msgspec.Struct):
    """How many messages of one priority some group is not done with."""

    priority: int
    messages: int


def topic_fields(listed: ListedTopic) -> dict[str, Any]:
    """What is shown of a topic, by name."""
    name, config, partitions = listed.info.name, listed.info.config, listed.info.partitions
    segment_bytes = journal_bytes = segments = 0
    for each in partitions:
        segment_bytes += each.segment_bytes
        journal_bytes += each.journal_bytes
        segments += each.segments
    count = config.partitions if config.spread > 1 else len(partitions)  # others are elsewhere: 0 stands for them
    firsts, ends = [0] * count, [0] * count
    for each in partitions:
        firsts[each.number], ends[each.number] = each.first_offset, each.end_offset
    return {
        "name": name,
        "partitions": count,
        "messages": sum(ends) - sum(firsts),
        "first_offsets": firsts,
        "end_offsets": ends,
        "bytes": segment_bytes + journal_bytes,
        "segments": segments,
        "segment_bytes": segment_bytes,
        "journal_bytes": journal_bytes,
        "groups": listed.groups,
        "config": config,
    }


class TopicOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Options of a topic; null switches off what can be off. Those that are left out stay as they are."""

    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] | UnsetType = UNSET
    num_partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] | UnsetType = UNSET
    """Another name of `partitions`."""
    retention_age: Seconds | UnsetType | None = UNSET
    retention_hours: Annotated[float, Meta(ge=0, le=1e7)] | UnsetType | None = UNSET
    """`retention_age`, in hours."""
    retention_bytes: Size | UnsetType | None = UNSET
    archive: Annotated[str, Meta(min_length=1, max_length=1000)] | UnsetType | None = UNSET
    dedupe_window: Seconds | UnsetType = UNSET
    protect_unacked: bool | UnsetType = UNSET
    max_backlog: Annotated[int, Meta(ge=1, le=_COUNT_MAX)] | UnsetType | None = UNSET
    backlog_groups: Literal["live", "all"] | UnsetType = UNSET
    max_delay: Seconds | UnsetType = UNSET
    visibility_timeout: Seconds | UnsetType = UNSET
    max_deliveries: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType = UNSET
    retry_backoff: Seconds | UnsetType = UNSET
    retry_backoff_max: Seconds | UnsetType = UNSET
    lanes: Literal["strict", "weighted"] | UnsetType = UNSET
    lane_weights: Weights | UnsetType = UNSET
    order: Literal["lane", "key"] | UnsetType = UNSET
    dead_letter_lapsed: bool | UnsetType = UNSET
    spread: Annotated[int, Meta(ge=1, le=SHARDS_MAX)] | UnsetType = UNSET
    """Over how many shards the partitions are dealt; fixed when the topic is made."""

    def options(self) -> dict[str, Any]:
        """Those that were given, as the broker takes them."""
        given = {field: getattr(self, field) for field in TopicOptions.__struct_fields__}
        found = {name: value for name, value in given.items() if value is not UNSET}
        _rename(found, "num_partitions", "partitions")
        hours = found.get("retention_hours")
        if hours is not None:
            found["retention_hours"] = hours * 3600.0
        _rename(found, "retention_hours", "retention_age")
        weights = found.get("lane_weights")
        if isinstance(weights, dict):
            found["lane_weights"] = {_lane(priority): weight for priority, weight in weights.items()}
        return found


class NewTopic(TopicOptions, kw_only=True):
    """A topic to make."""

    name: str


def _rename(options: dict[str, Any], name: str, known: str) -> None:
    if name in options:
        if known in options:
            raise InvalidArgument(f"give {known} or {name}, not both")
        options[known] = options.pop(name)


def _lane(priority: str) -> str | int:
    is_number = priority.isascii() and priority.isdigit() and len(priority) < 4
    return int(priority) if is_number else priority
