"""Groups as people see them: list, show, move, delete."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.broker.reading import LogReader
from penstock.broker.topics import Topic, first_offset
from penstock.delivery.progress import Tally
from penstock.model.errors import InvalidArgument
from penstock.model.info import GroupInfo, MemberInfo
from penstock.model.units import Time, parse_time_us
from penstock.segments.window import Window

if TYPE_CHECKING:
    from penstock.broker.engine import Engine
    from penstock.broker.topic_delivery import GroupDesk, TopicDelivery


def list_groups(engine: Engine, topic_name: str | None) -> list[tuple[str, str]]:
    """The topics and names of all groups, or of those of one topic."""
    with engine.lock:
        topics = [engine.topic(topic_name)] if topic_name is not None else list(engine.catalog.by_name.values())
        return sorted((topic.name, name) for topic in topics for name in _names(topic))


def show_group(engine: Engine, topic_name: str, name: str) -> GroupInfo:
    """Everything about one group, at one instant."""
    delivery = engine.deliveries.find_group(topic_name, name)
    with engine.lock:
        delivery.tick(engine.deliveries.now())
        desk = delivery.desk(name)
        info = _info(delivery, desk)
        ends = [claims.end() for claims in desk.group.claims]
    age_s = _oldest_age_s(engine, delivery.topic, info, ends)
    return replace(info, oldest_unacked_s=age_s)


def seek_group(engine: Engine, topic_name: str, name: str, to: str | int | Time, partition: int | None) -> None:
    """Move a group to an offset, a time, or to the beginning or the end."""
    delivery = engine.deliveries.find_group(topic_name, name)
    topic = delivery.topic
    if partition is not None and not (isinstance(partition, int) and 0 <= partition < len(topic.partitions)):
        raise InvalidArgument(f"{topic_name} has no partition {partition!r}: it has 0 to {len(topic.partitions) - 1}")
    chosen = range(len(topic.partitions)) if partition is None else [partition]
    engine.deliveries.seek(topic_name, name, {number: _target(engine, topic, number, to) for number in chosen})


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
            f"{to!r} is not a position: give an offset, a point in time, 'earliest' or 'latest'"
        ) from error
    return max(first, LogReader(engine, log).first_at(time_us))


def _names(topic: Topic) -> set[str]:
    return {name for partition in topic.partitions if partition.state is not None for name in partition.state.groups}


def _info(delivery: TopicDelivery, desk: GroupDesk) -> GroupInfo:
    group = desk.group
    tally = Tally()
    for claims in group.claims:
        for field in tally.__struct_fields__:
            setattr(tally, field, getattr(tally, field) + getattr(claims.progress.tally, field))
    ends = [claims.end() for claims in group.claims]
    lapsing = sum(len(claims.lapsing) for claims in group.claims)
    return GroupInfo(
        topic=delivery.topic.name,
        name=group.name,
        published=sum(max(0, end - claims.progress.start) for end, claims in zip(ends, group.claims, strict=True)),
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
        members=tuple(
            MemberInfo(
                seat.consumer,
                seat.mode,
                group.leases.in_flight[seat.consumer],
                () if desk.assignment is None else tuple(sorted(desk.assignment.owned(seat.consumer))),
            )
            for seat in desk.seats.values()
        ),
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
