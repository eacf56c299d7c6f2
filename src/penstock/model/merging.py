"""What several shards, or processes, tell of one topic that is spread, as one answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from penstock.model.group_settings import GroupSettings
from penstock.model.info import GroupInfo, MemberInfo, TopicInfo
from penstock.model.layout import LogLayout, TopicLayout

Item = TypeVar("Item")
_SUMS = (
    *("published", "acked", "ready", "leased", "delayed", "retrying", "dead", "lapsed", "withdrawn", "skipped"),
    *("lost", "lag"),
)


def by(items: Iterable[Item], name: Callable[[Item], Hashable], merge: Callable[[Sequence[Item]], Item]) -> list[Item]:
    """Items of one name as one, in the order of their first."""
    found: dict[Hashable, list[Item]] = {}
    for item in items:
        found.setdefault(name(item), []).append(item)
    return [merge(some) if len(some) > 1 else some[0] for some in found.values()]


def merge_topics(slices: Sequence[TopicInfo]) -> TopicInfo:
    """A topic: each slice tells of the partitions that it has."""
    if len(slices) == 1:
        return slices[0]
    partitions = [partition for slice_ in slices for partition in slice_.partitions]
    return replace(slices[0], partitions=tuple(sorted(partitions, key=lambda partition: partition.number)))


def merge_layouts(slices: Sequence[TopicLayout]) -> TopicLayout:
    """Where the messages and events of all partitions lie; nothing lies in those that no slice tells of."""
    messages = [log for slice_ in slices for log in slice_.messages]
    events = [log for slice_ in slices for log in slice_.events]
    return replace(
        slices[0],
        messages=_all_partitions(messages),
        events=_all_partitions(events),
    )


def _all_partitions(logs: Iterable[LogLayout]) -> tuple[LogLayout, ...]:
    found = {log.partition: log for log in sorted(logs, key=lambda log: log.end)}
    count = max(found, default=-1) + 1
    return tuple(found.get(number) or LogLayout(number, 0, 0, 0, ()) for number in range(count))


def merge_groups(slices: Sequence[GroupInfo]) -> GroupInfo:
    """A group, with what each slice counts; it stands at the beginning of partitions that a slice does not have."""
    if len(slices) == 1:
        return slices[0]
    ages = [slice_.oldest_unacked_s for slice_ in slices if slice_.oldest_unacked_s is not None]
    length = max(len(slice_.positions) for slice_ in slices)
    positions = [slice_.positions + (0,) * (length - len(slice_.positions)) for slice_ in slices]
    return replace(
        slices[0],
        **{name: sum(getattr(slice_, name) for slice_ in slices) for name in _SUMS},
        oldest_unacked_s=max(ages, default=None),
        positions=tuple(map(max, *positions)),
        members=tuple(by((member for slice_ in slices for member in slice_.members), _name_of, _merge_members)),
        settings=merge_settings([slice_.settings for slice_ in slices]),
    )


def _name_of(member: MemberInfo) -> str:
    return member.name


def _merge_members(slices: Sequence[MemberInfo]) -> MemberInfo:
    partitions = {partition for slice_ in slices for partition in slice_.partitions}
    in_flight = sum(slice_.in_flight for slice_ in slices)
    return replace(slices[0], in_flight=in_flight, partitions=tuple(sorted(partitions)))


def merge_settings(slices: Sequence[GroupSettings]) -> GroupSettings:
    """The settings of a group; each slice has its share of what is a limit."""
    limits = [slice_.max_in_flight for slice_ in slices if slice_.max_in_flight is not None]
    rates = [slice_.rate for slice_ in slices if slice_.rate is not None]
    first = slices[0]
    return GroupSettings(
        visibility_timeout=first.visibility_timeout,
        max_in_flight=sum(limits) if limits else None,
        until=first.until,
        rate=sum(rates) if rates else None,
        archived=first.archived,
        paused=any(slice_.paused for slice_ in slices),
        checkpoint=first.checkpoint,
        missing=first.missing,
    )
