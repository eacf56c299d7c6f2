"""Groups as people see them: list, show, move; and those that only show how far a reader is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.broker.reading import LogReader
from penstock.broker.routing import check_partition
from penstock.delivery.progress import Progress, Tally
from penstock.log.partition_log import first_offset
from penstock.log.topics import Topic
from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument
from penstock.model.info import GroupInfo, MemberInfo
from penstock.model.names import check_group_name
from penstock.model.units import Time, parse_digits, parse_time_us
from penstock.segments.window import Window

if TYPE_CHECKING:
    from penstock.broker.engine import Engine
    from penstock.broker.topic_delivery import GroupDesk, TopicDelivery


def list_groups(engine: Engine, topic_name: str | None) -> list[tuple[str, str]]:
    """The topics and names of all groups, or of those of one topic."""
    with engine.lock:
        topics = [engine.topic(topic_name)] if topic_name is not None else list(engine.catalog.by_name.values())
        return sorted((topic.name, name) for topic in topics for name in group_names(topic))


def show_group(engine: Engine, topic_name: str, name: str) -> GroupInfo:
    """Everything about one group, at one instant."""
    with engine.lock:
        topic = engine.topic(topic_name)
        is_checkpoint = engine.deliveries.settings_of(topic, name).checkpoint
        info = _checkpoint_info(topic, name) if is_checkpoint else None
        ends = [partition.messages.committed_end for partition in topic.partitions]
    if info is None:
        delivery = engine.deliveries.find_group(topic_name, name)
        with engine.lock:
            delivery.tick(engine.deliveries.now())
            desk = delivery.desk(name)
            info = _info(delivery, desk)
            topic, ends = delivery.topic, [claims.end() for claims in desk.group.claims]
    return replace(info, oldest_unacked_s=_oldest_age_s(engine, topic, info, ends))


def seek_group(engine: Engine, topic_name: str, name: str, to: str | int | Time, partition: int | None) -> None:
    """Move a group to an offset, a time, or to the beginning or the end."""
    delivery = engine.deliveries.find_group(topic_name, name)
    topic = delivery.topic
    if partition is not None and not (isinstance(partition, int) and 0 <= partition < len(topic.partitions)):
        raise InvalidArgument(
            f"{topic_name} has no partition {shown(partition)}: it has 0 to {len(topic.partitions) - 1}"
        )
    chosen = range(len(topic.partitions)) if partition is None else [partition]
    engine.deliveries.seek(topic_name, name, {number: _target(engine, topic, number, to) for number in chosen})


def place_group(engine: Engine, topic_name: str, name: str, positions: Mapping[int, int]) -> None:
    """Have a group stand at these offsets, in one commit: everything before is done, everything else is to be done.

    Where there is no such group, it is made as one that shows how far a reader is that keeps its own position.
    """
    wanted = positions_of(positions)
    with engine.lock:
        topic = engine.topic(topic_name)
        known = topic.partitions[0].delivery_state().groups.get(name)
        for number, offset in wanted.items():
            check_partition(topic_name, len(topic.partitions), number)
            log = topic.partitions[number].messages
            first, end = first_offset(log), log.committed_end
            if known is not None and not known.settings.checkpoint and not first <= offset <= end:
                raise InvalidArgument(f"offset {offset} is not in {topic_name}/{number}: it holds {first} to {end}")
    if known is None or known.settings.checkpoint:
        checkpoint_group(engine, topic_name, name, wanted)
    elif wanted:
        engine.deliveries.seek(topic_name, name, wanted)


def checkpoint_group(engine: Engine, topic_name: str, name: str, positions: Mapping[int, int]) -> None:
    """Note how far a reader is that keeps its own position, so that its lag is seen; its group is made if it is new."""
    check_group_name(name)
    wanted = positions_of(positions)
    with engine.lock:
        topic = engine.topic(topic_name)
        is_new = name not in topic.partitions[0].delivery_state().groups
        for number, offset in wanted.items():
            check_partition(topic_name, len(topic.partitions), number)
            end = topic.partitions[number].messages.committed_end
            if offset > end:
                raise InvalidArgument(f"offset {offset} is not in {topic_name}/{number}: give 0 to {end}, its end")
    if is_new:
        engine.deliveries.create_checkpoint(topic, name, wanted)
    engine.deliveries.move_checkpoint(topic, name, wanted)


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


def _target(engine: Engine, topic: Topic, number: int, to: str | int | Time) -> int:
    log = topic.partitions[number].messages
    with engine.lock:
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
    return max(first, LogReader(engine, log).first_at(time_us))


def group_names(topic: Topic) -> set[str]:
    """The groups of a topic, in use or not; under the state lock."""
    return {name for partition in topic.partitions if partition.state is not None for name in partition.state.groups}


def tally_of(progresses: Iterable[Progress]) -> Tally:
    """What became of the messages of all partitions."""
    tally = Tally()
    for progress in progresses:
        for field in tally.__struct_fields__:
            setattr(tally, field, getattr(tally, field) + getattr(progress.tally, field))
    return tally


def _checkpoint_info(topic: Topic, name: str) -> GroupInfo:
    """A group that only shows how far a reader is, to whom everything is ready; under the state lock."""
    progresses = [partition.delivery_state().groups[name] for partition in topic.partitions]
    ends = [partition.messages.committed_end for partition in topic.partitions]
    tally = tally_of(progresses)
    lag = sum(progress.backlog(end) for progress, end in zip(progresses, ends, strict=True))
    return GroupInfo(
        topic=topic.name,
        name=name,
        published=sum(progress.published(end) for progress, end in zip(progresses, ends, strict=True)),
        acked=tally.acked,
        ready=lag,
        leased=0,
        delayed=0,
        retrying=0,
        dead=tally.dead,
        lapsed=tally.lapsed,
        withdrawn=tally.withdrawn,
        skipped=tally.skipped,
        lost=tally.lost,
        lag=lag,
        oldest_unacked_s=None,
        positions=tuple(progress.floor for progress in progresses),
        members=(),
        kind="checkpoint",
    )


def _info(delivery: TopicDelivery, desk: GroupDesk) -> GroupInfo:
    group = desk.group
    tally = tally_of(claims.progress for claims in group.claims)
    ends = [claims.end() for claims in group.claims]
    lapsing = sum(len(claims.lapsing) for claims in group.claims)
    return GroupInfo(
        topic=delivery.topic.name,
        name=group.name,
        published=sum(claims.progress.published(end) for end, claims in zip(ends, group.claims, strict=True)),
        acked=tally.acked,
        ready=sum(claims.ready() for claims in group.claims),
        leased=sum(claims.held for claims in group.claims),
        delayed=sum(claims.delayed() for claims in group.claims),
        retrying=sum(claims.waiting() for claims in group.claims),
        dead=tally.dead,
        lapsed=tally.lapsed + lapsing,
        withdrawn=tally.withdrawn,
        skipped=tally.skipped,
        lost=tally.lost,
        lag=sum(claims.progress.backlog(end) for end, claims in zip(ends, group.claims, strict=True)),
        oldest_unacked_s=None,
        positions=tuple(claims.progress.floor for claims in group.claims),
        members=members_of(desk),
    )


def members_of(desk: GroupDesk) -> tuple[MemberInfo, ...]:
    """The consumers of a group that is in use; under the state lock."""
    in_flight, assignment = desk.group.leases.in_flight, desk.assignment
    return tuple(
        MemberInfo(
            seat.consumer,
            seat.mode,
            in_flight[seat.consumer],
            () if assignment is None else tuple(sorted(assignment.owned(seat.consumer))),
        )
        for seat in desk.seats.values()
    )


def _oldest_age_s(engine: Engine, topic: Topic, info: GroupInfo, ends: list[int]) -> float | None:
    """The age of the oldest message that is not done."""
    oldest: list[int] = []
    for partition, floor, end in zip(topic.partitions, info.positions, ends, strict=True):
        log = partition.messages
        if floor < end:
            found = next(LogReader(engine, log, include_deleted=True).messages(Window(floor, floor + 1)), None)
            oldest += [] if found is None else [found.timestamp_us]
    return max(0, engine.clock.wall_us() - min(oldest)) / 1_000_000 if oldest else None
