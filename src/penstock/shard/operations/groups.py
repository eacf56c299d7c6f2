"""Groups as people see them: make, list, show, move, change, forget; and those that only show how far a reader is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import structs

from penstock.delivery.outcomes import Logged
from penstock.delivery.standing import Standing
from penstock.log.partition_log import first_offset
from penstock.log.topics import Topic
from penstock.model.bounds import shown
from penstock.model.errors import GroupInUse, InvalidArgument
from penstock.model.events import Event, EventKind
from penstock.model.group_settings import GroupSettings, encode_changed
from penstock.model.info import GroupInfo, MemberInfo
from penstock.model.names import check_group_name
from penstock.model.options import duration, optional, whole
from penstock.model.placement import check_partition
from penstock.model.schedules import check_open_topic
from penstock.model.units import Duration, Time, parse_digits, parse_time_us
from penstock.segments.window import Window
from penstock.shard.interrupts import uninterrupted
from penstock.shard.reading.log_reader import LogReader

if TYPE_CHECKING:
    from penstock.shard.dispatch.active_group import ActiveGroup
    from penstock.shard.shard import Shard


@uninterrupted
def create_group(
    shard: Shard,
    topic: str,
    group: str,
    *,
    start: str | Time = "earliest",
    visibility_timeout: Duration | None = None,
    max_in_flight: int | None = None,
) -> GroupInfo:
    """Make a group, which must be new."""
    check_group_name(group)
    settings = GroupSettings(
        visibility_timeout=optional(duration(0.001))(visibility_timeout),
        max_in_flight=optional(whole(1, 1_000_000_000))(max_in_flight),
    )
    if (topic, group) in list_groups(shard, None):
        raise GroupInUse(f"{topic} has a group {shown(group)} already")
    shard.dispatcher.open_group(topic, group, start, settings)
    return show_group(shard, topic, group)


@uninterrupted
def groups(shard: Shard, topic: str | None = None) -> list[GroupInfo]:
    """Every group, or those of one topic."""
    return [show_group(shard, *pair) for pair in list_groups(shard, topic)]


@uninterrupted
def group(shard: Shard, topic: str, group: str) -> GroupInfo:
    """One group."""
    return show_group(shard, topic, group)


def list_groups(shard: Shard, topic_name: str | None) -> list[tuple[str, str]]:
    """The topics and names of all groups, or of those of one topic."""
    with shard.lock:
        topics = [shard.topic(topic_name)] if topic_name is not None else list(shard.catalog.by_name.values())
        return sorted((topic.name, name) for topic in topics for name in group_names(topic))


def show_group(shard: Shard, topic_name: str, name: str) -> GroupInfo:
    """Everything about one group, at one instant."""
    with shard.lock:
        topic = shard.topic(topic_name)
        is_checkpoint = shard.dispatcher.settings_of(topic, name).checkpoint
        standing = standing_of(topic, name, None) if is_checkpoint else None
        info = None if standing is None else group_info(topic, name, standing, None)
    if standing is None or info is None:
        delivery = shard.dispatcher.find_group(topic_name, name)
        with shard.lock:
            delivery.tick(shard.dispatcher.now())
            topic, active = delivery.topic, delivery.active(name)
            standing = standing_of(topic, name, active)
            info = group_info(topic, name, standing, active)
    return replace(info, oldest_unacked_s=_oldest_age_s(shard, topic, standing))


def pause_group(shard: Shard, topic: str, group: str) -> GroupInfo:
    """Hand no messages to a group until it is resumed."""
    return configure_group(shard, topic, group, paused=True)


def resume_group(shard: Shard, topic: str, group: str) -> GroupInfo:
    """Hand messages to a paused group again."""
    return configure_group(shard, topic, group, paused=False)


@uninterrupted
def configure_group(shard: Shard, topic_name: str, name: str, **changes: Any) -> GroupInfo:
    """Change settings of a group, durably; where they are as wanted already, nothing is written."""
    with shard.lock:
        topic = shard.topic(check_open_topic(topic_name))
        known = shard.dispatcher.settings_of(topic, name)
        if known.checkpoint:
            raise InvalidArgument(
                f"the group {shown(name)} of {topic_name} shows how far a reader is that keeps its own position: "
                "it has no consumers and no settings"
            )
        commit = None
        if structs.replace(known, **changes) != known:
            now_us = shard.clock.wall_us()
            commit = shard.log_events(topic, _configured(topic, name, changes, now_us))
    if commit is not None:
        shard.journal.wait(commit)
    return show_group(shard, topic_name, name)


def _configured(topic: Topic, name: str, changes: Mapping[str, Any], now_us: int) -> Iterator[Logged]:
    """An event for each partition; it speaks of what the group is not done with, so that traces tell of it."""
    for number, partition in enumerate(topic.partitions):
        progress = partition.delivery_state().groups[name]
        count = max(0, progress.within(partition.messages.committed_end) - progress.floor)
        detail = encode_changed(progress.settings, changes)
        yield number, Event(EventKind.CONFIGURED, now_us, progress.floor, count, name, detail=detail)


@uninterrupted
def seek_group(shard: Shard, topic: str, group: str, to: int | str | Time, *, partition: int | None = None) -> None:
    """Move a group to an offset, a time, or to the beginning or the end."""
    found = shard.dispatcher.find_group(topic, group).topic
    if partition is not None and not (isinstance(partition, int) and 0 <= partition < len(found.partitions)):
        raise InvalidArgument(f"{topic} has no partition {shown(partition)}: it has 0 to {len(found.partitions) - 1}")
    chosen = range(len(found.partitions)) if partition is None else [partition]
    shard.dispatcher.seek(topic, group, {number: _target(shard, found, number, to) for number in chosen})


def reset_group(shard: Shard, topic: str, group: str) -> None:
    """Move a group to the beginning."""
    seek_group(shard, topic, group, "earliest")


@uninterrupted
def delete_group(shard: Shard, topic: str, group: str) -> None:
    """Forget a group without consumers."""
    shard.dispatcher.delete_group(topic, group)


def place_group(shard: Shard, topic_name: str, name: str, positions: Mapping[int, int]) -> None:
    """Have a group stand at these offsets, in one commit: everything before is done, everything else is to be done.

    Where there is no such group, it is made as one that shows how far a reader is that keeps its own position.
    """
    wanted = positions_of(positions)
    with shard.lock:
        topic = shard.topic(topic_name)
        known = topic.partitions[0].delivery_state().groups.get(name)
        for number, offset in wanted.items():
            check_partition(topic_name, len(topic.partitions), number)
            log = topic.partitions[number].messages
            first, end = first_offset(log), log.committed_end
            if known is not None and not known.settings.checkpoint and not first <= offset <= end:
                raise InvalidArgument(f"offset {offset} is not in {topic_name}/{number}: it holds {first} to {end}")
    if known is None or known.settings.checkpoint:
        checkpoint_group(shard, topic_name, name, wanted)
    elif wanted:
        shard.dispatcher.seek(topic_name, name, wanted)


@uninterrupted
def checkpoint_group(shard: Shard, topic_name: str, name: str, positions: Mapping[int, int]) -> None:
    """Note how far a reader is that keeps its own position, so that its lag is seen; its group is made if it is new."""
    check_group_name(name)
    wanted = positions_of(positions)
    with shard.lock:
        topic = shard.topic(topic_name)
        is_new = name not in topic.partitions[0].delivery_state().groups
        for number, offset in wanted.items():
            check_partition(topic_name, len(topic.partitions), number)
            end = topic.partitions[number].messages.committed_end
            if offset > end:
                raise InvalidArgument(f"offset {offset} is not in {topic_name}/{number}: give 0 to {end}, its end")
    if is_new:
        shard.dispatcher.create_checkpoint(topic, name, wanted)
    shard.dispatcher.move_checkpoint(topic, name, wanted)


def positions_of(positions: object) -> dict[int, int]:
    """Offsets by partition; the partitions may be written as text, as in JSON."""
    if not isinstance(positions, Mapping):
        raise InvalidArgument(
            f"{shown(positions)} is not a mapping of partitions to offsets, such as {{0: 1500, 1: 1498}}"
        )
    found: dict[int, int] = {}
    for partition, offset in positions.items():
        number = parse_digits(partition) if isinstance(partition, str) else partition
        number = partition if number is None else number
        for value, what in ((number, "a partition"), (offset, "an offset")):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InvalidArgument(f"{shown(value)} is not {what}: they are whole numbers from 0")
        found[number] = offset
    return found


def _target(shard: Shard, topic: Topic, number: int, to: str | int | Time) -> int:
    log = topic.partitions[number].messages
    with shard.lock:
        first, end = first_offset(log), log.committed_end
    if to == "earliest":
        return first
    if to == "latest":
        return end
    if isinstance(to, int) and not isinstance(to, bool):
        if not first <= to <= end:
            raise InvalidArgument(f"offset {to} is not in {topic.name}/{number}: it holds {first} to {end}")
        return to
    try:
        time_us = parse_time_us(to)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{shown(to)} is not a position: give an offset, a point in time, 'earliest' or 'latest'"
        ) from error
    return max(first, LogReader(shard, log).first_at(time_us))


def group_names(topic: Topic) -> set[str]:
    """The groups of a topic, in use or not."""
    return {name for partition in topic.partitions if partition.state is not None for name in partition.state.groups}


def standing_of(topic: Topic, name: str, active: ActiveGroup | None) -> Standing:
    """How far a group is in all partitions of a topic that know it, active or not."""
    standing, positions, lags = Standing(), [], []
    for number, partition in enumerate(topic.partitions):
        progress = None if partition.state is None else partition.state.groups.get(name)
        if number not in topic.own_partitions:
            positions.append(0)
            lags.append(0)
        elif progress is not None:
            claims = None if active is None else active.group.claims[number]
            positions.append(progress.floor)
            lags.append(standing.add(partition.messages.committed_end, progress, claims))
    standing.positions, standing.lags = tuple(positions), tuple(lags)
    return standing


def group_info(
    topic: Topic, name: str, standing: Standing, active: ActiveGroup | None, oldest_unacked_s: float | None = None
) -> GroupInfo:
    """A group as people see it; where it is not indexed, `ready` has what is delayed too."""
    return GroupInfo(
        topic=topic.name,
        name=name,
        published=standing.published,
        acked=standing.acked,
        ready=standing.ready + standing.unsorted,
        leased=standing.leased,
        delayed=standing.delayed,
        retrying=standing.retrying,
        dead=standing.dead,
        lapsed=standing.lapsed,
        withdrawn=standing.withdrawn,
        skipped=standing.skipped,
        lost=standing.lost,
        lag=standing.lag,
        oldest_unacked_s=oldest_unacked_s,
        positions=standing.positions,
        members=() if active is None else members_of(active),
        kind=standing.kind,
        settings=topic.partitions[0].delivery_state().groups[name].settings,
    )


def members_of(active: ActiveGroup) -> tuple[MemberInfo, ...]:
    """The consumers of a group that is in use."""
    in_flight, assignment = active.group.leases.in_flight, active.assignment
    return tuple(
        MemberInfo(
            member.consumer,
            member.mode,
            in_flight[member.consumer],
            () if assignment is None else tuple(sorted(assignment.owned(member.consumer))),
        )
        for member in active.members.values()
    )


def _oldest_age_s(shard: Shard, topic: Topic, standing: Standing) -> float | None:
    """The age of the oldest message that is not done, read from the log."""
    oldest: list[int] = []
    for partition, floor, lag in zip(topic.partitions, standing.positions, standing.lags, strict=True):
        if lag:
            reader = LogReader(shard, partition.messages, include_deleted=True)
            found = next(reader.messages(Window(floor, floor + 1)), None)
            oldest += [] if found is None else [found.timestamp_us]
    return max(0, shard.clock.wall_us() - min(oldest)) / 1_000_000 if oldest else None
