"""Operations on several shards, which no one topic routes; those on one topic are in `spreading`.

A function here stands for the operation of its name, in the place of the one that a single shard does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from penstock.cluster.slices import find, find_existing, is_shown, of_slice, spread_of
from penstock.model.errors import StageNotFound
from penstock.model.info import BrokerStatus, GroupInfo, RecoveryReport, TopicInfo
from penstock.model.intake import to_bytes
from penstock.model.merging import by, merge_groups, merge_topics
from penstock.model.message import Data
from penstock.model.names import Priority
from penstock.model.placement import is_slice
from penstock.model.schedules import SCHEDULES, Schedule
from penstock.model.units import Duration
from penstock.shard.interrupts import uninterrupted
from penstock.shard.operations import groups as groups_of
from penstock.shard.operations import schedules as schedules_of
from penstock.views import info

if TYPE_CHECKING:
    from penstock.cluster.shards import Shards
    from penstock.shard.shard import Shard

_Changed = TypeVar("_Changed")


def status(shards: Shards) -> BrokerStatus:
    """All of them as one broker."""
    parts: list[BrokerStatus] = []
    names: set[str] = set()
    for shard in shards:
        own = info.status(shard)
        with shard.lock:
            known = shard.catalog.by_name
            names |= {name for name, topic in known.items() if is_shown(shards, shard, topic)}
            extra = SCHEDULES in known and not shards.is_home(shard, SCHEDULES)
        parts.append(dataclasses.replace(own, directory=shards.path, partitions=own.partitions - extra))
    return dataclasses.replace(merge_statuses(parts), topics=sum(map(shards.counts, names)))


def merge_statuses(parts: Sequence[BrokerStatus]) -> BrokerStatus:
    """Several as one broker, with the identity of the first."""

    def total(name: str) -> int:
        return sum(getattr(part, name) for part in parts)

    return dataclasses.replace(
        parts[0],
        topics=total("topics"),
        partitions=total("partitions"),
        groups=total("groups"),
        journal_bytes=total("journal_bytes"),
        journal_files=total("journal_files"),
        segments=total("segments"),
        segment_bytes=total("segment_bytes"),
        unwritten_bytes=total("unwritten_bytes"),
        frozen=next((part.frozen for part in parts if part.frozen is not None), None),
        recovery=recovery([part.recovery for part in parts]),
    )


def recovery(reports: Sequence[RecoveryReport]) -> RecoveryReport:
    """What all of them found when they were opened, one after the other."""
    names = [field.name for field in dataclasses.fields(RecoveryReport)]
    return RecoveryReport(**{name: sum(getattr(report, name) for report in reports) for name in names})


def topics(shards: Shards) -> list[TopicInfo]:
    """Every topic, by name, with its partitions."""
    found: list[TopicInfo] = []
    for shard in shards:
        with shard.lock:
            known = shard.catalog.by_name.values()
            found += [info.topic_info(topic) for topic in known if is_shown(shards, shard, topic)]
    return sorted(by(found, lambda topic: topic.name, merge_topics), key=lambda topic: topic.name)


def groups(shards: Shards, topic: str | None = None) -> list[GroupInfo]:
    """Every group, or those of one topic."""
    if topic is None:
        found = [group for shard in shards for group in groups_of.groups(shard)]
    else:
        name, slices = find_existing(shards, topic)
        found = [group for shard in slices for group in groups_of.groups(shard, name)]
    return sorted(by(found, _topic_and_name, merge_groups), key=_topic_and_name)


def _topic_and_name(group: GroupInfo) -> tuple[str, str]:
    return group.topic, group.name


# Schedules live with the topics that they publish to.


@uninterrupted
def schedule(
    shards: Shards,
    name: str,
    cron: str,
    topic: str,
    value: Data,
    *,
    zone: str = "UTC",
    key: Data | None = None,
    headers: Mapping[str, str] | None = None,
    priority: Priority = "normal",
    expires_in: Duration | None = None,
) -> Schedule:
    """Make a schedule, or another one of the same name instead: the old one goes when the new one is durable."""
    spread = spread_of(shards, topic)
    topic, (home, *_) = find(shards, topic) if is_slice(topic) else (topic, (shards.of(topic),))
    if spread is not None and key is not None:  # the slice of its messages
        home = of_slice(shards, topic, spread, spread.of_key(to_bytes("key", key)))

    def make() -> Schedule:
        given = (home, name, cron, topic, value)
        return schedules_of.schedule(
            *given, zone=zone, key=key, headers=headers, priority=priority, expires_in=expires_in
        )

    if shards.count == 1:
        return make()
    with shards.schedules_lock:
        made = make()
        for shard in _with_schedule(shards, name):
            if shard is not home:
                schedules_of.remove_schedule(shard, name)
    return made


def schedules(shards: Shards) -> list[Schedule]:
    """Every schedule, by name."""
    return sorted(
        (found for shard in shards for found in schedules_of.schedules(shard)), key=lambda schedule: schedule.name
    )


def pause_schedule(shards: Shards, name: str) -> Schedule:
    """Stop a schedule from firing."""
    return _change(shards, name, schedules_of.pause_schedule)


def resume_schedule(shards: Shards, name: str) -> Schedule:
    """Let a paused schedule fire again, from now on."""
    return _change(shards, name, schedules_of.resume_schedule)


def remove_schedule(shards: Shards, name: str) -> None:
    """End a schedule."""
    _change(shards, name, schedules_of.remove_schedule)


@uninterrupted
def _change(shards: Shards, name: str, change: Callable[[Shard, str], _Changed]) -> _Changed:
    """Do it wherever there is a schedule of this name: two only if a move of it was cut short."""
    if shards.count == 1:
        return change(shards.only, name)
    with shards.schedules_lock:
        changed = [change(shard, name) for shard in _with_schedule(shards, name) or [shards.first]]
    return changed[0]


def _with_schedule(shards: Shards, name: str) -> list[Shard]:
    found: list[Shard] = []
    for shard in shards:
        with shard.lock:
            if shard.schedules.has(name):
                found.append(shard)
    return found


# Stages: one of a name stands in every shard, so that each knows what was published.


def seal_stage(shards: Shards, stage: str, staged: int = 0) -> int:
    """Put what was staged on disk; how many messages, which must be as many as were staged."""
    if shards.count == 1:
        return shards.only.stages.seal_stage(stage, staged)
    sealed = sum(shard.stages.seal_stage(stage) for shard in shards)
    if sealed < staged:
        told = f"the stage {stage!r} was sealed with {sealed} messages, without the rest"
        raise StageNotFound(f"{told}: stage it again under another name")
    return sealed


def publish_staged(shards: Shards, stages: Sequence[str], producer: str, sequence: int) -> int:
    """Publish what sealed stages hold, shard after shard: each does it once for each producer and sequence."""
    return sum(shard.staging.publish_staged(stages, producer, sequence) for shard in shards)


def staged_sequence(shards: Shards, producer: str) -> int | None:
    """The sequence that all shards know of a producer: what one of them does not know has to be done again."""
    known = [shard.staging.staged_sequence(producer) for shard in shards]
    found = [sequence for sequence in known if sequence is not None]
    return min(found) if len(found) == len(known) else None


def drop_staged(shards: Shards, stages: Sequence[str]) -> None:
    """Forget stages that will not be published."""
    for shard in shards:
        shard.stages.drop_staged(stages)
