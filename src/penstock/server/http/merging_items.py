"""What several processes tell in JSON of one topic, or of one group of it: pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

Item = Mapping[str, Any]
_TOPIC_SUMS = ("messages", "bytes", "segments", "segment_bytes", "journal_bytes", "backlog", "published_per_second")
_TOPIC_LISTS = ("first_offsets", "end_offsets")
_GROUP_SUMS = (
    *("published", "acked", "ready", "leased", "delayed", "retrying", "dead", "lapsed", "withdrawn", "skipped"),
    *("lost", "lag"),
)
_LIMITS = ("max_in_flight", "rate")  # of which each slice has its share


def by(items: Iterable[Item], name: Callable[[Item], Hashable], merge: Callable[[Sequence[Item]], Item]) -> list[Any]:
    """Items of one name as one, in the order of their first."""
    found: dict[Hashable, list[Item]] = {}
    for item in items:
        found.setdefault(name(item), []).append(item)
    return [merge(some) if len(some) > 1 else some[0] for some in found.values()]


def merge_topics(parts: Sequence[Item]) -> Item:
    """A topic; what a process tells of partitions that it does not have is 0."""
    return {
        **parts[0],
        **{name: sum(part[name] for part in parts) for name in _TOPIC_SUMS if name in parts[0]},
        **{name: _highest(part[name] for part in parts) for name in _TOPIC_LISTS},
        **{name: max(part[name] for part in parts) for name in ("partitions", "groups")},
    }


def merge_details(parts: Sequence[Item]) -> Item:
    """A topic with its partitions, lanes and groups."""
    lanes: Counter[int] = Counter()
    for lane in (lane for part in parts for lane in part["lanes"]):
        lanes[lane["priority"]] += lane["messages"]
    groups = by((group for part in parts for group in part["group_list"]), lambda group: group["group"], merge_groups)
    return {
        **merge_topics(parts),
        "partition_list": merge_partitions(part["partition_list"] for part in parts),
        "lanes": [{"priority": priority, "messages": lanes[priority]} for priority in sorted(lanes)],
        "groups": len(groups),
        "group_list": sorted(groups, key=lambda group: group["group"]),
    }


def merge_partitions(parts: Iterable[Sequence[Item]]) -> list[Item]:
    """All partitions, by number."""
    return sorted((item for part in parts for item in part), key=lambda item: item["partition"])


def merge_groups(parts: Sequence[Item]) -> Item:
    """A group of a topic, or how far it is."""
    ages = [part["oldest_unacked_s"] for part in parts if part["oldest_unacked_s"] is not None]
    settings = [part["settings"] for part in parts]
    limits = {
        name: sum(one[name] for one in settings if name in one)
        for name in _LIMITS
        if any(name in one for one in settings)
    }
    paused = {"paused": True} if any(one.get("paused") for one in settings) else {}
    return {
        **parts[0],
        **{name: _sum(part[name] for part in parts) for name in _GROUP_SUMS},
        "oldest_unacked_s": max(ages, default=None),
        "positions": _highest(part["positions"] for part in parts),
        "members": merge_members(part["members"] for part in parts),
        "settings": {**settings[0], **limits, **paused},
    }


def merge_members(parts: Iterable[Sequence[Item]]) -> list[Any]:
    """Consumers, each once."""
    return by((member for part in parts for member in part), lambda member: member["name"], _merge_member)


def merge_offsets(parts: Sequence[Item]) -> Item:
    """How far a group is with a topic."""
    offsets: dict[str, int] = {}
    for partition, offset in ((key, value) for part in parts for key, value in part["offsets"].items()):
        offsets[partition] = max(offset, offsets.get(partition, 0))
    in_order = sorted(offsets, key=int)
    return {**parts[0], "offsets": {key: offsets[key] for key in in_order}, "lag": sum(part["lag"] for part in parts)}


def _merge_member(parts: Sequence[Item]) -> Item:
    partitions = {partition for part in parts for partition in part["partitions"]}
    return {**parts[0], "in_flight": sum(part["in_flight"] for part in parts), "partitions": sorted(partitions)}


def _highest(lists: Iterable[Sequence[int]]) -> list[int]:
    return [max(numbers) for numbers in zip_longest(*lists, fillvalue=0)]


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Null where one of them is not known."""
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)
