"""Operations on one topic, wherever it lives: on its shard, or on all of its slices, and what they answer as one.

A function here stands for the operation of its name. Where a topic is spread, what changes it is done slice after
slice, the one of its home last: whoever is interrupted finds it undone there, and does it again.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.cluster import publishing
from penstock.cluster.slices import find, find_existing, known_topic
from penstock.model.errors import (
    GroupInUse,
    GroupNotFound,
    InvalidArgument,
)
from penstock.model.info import GroupInfo
from penstock.model.letters import DeadLetter, LetterChoice, RedriveReport
from penstock.model.merging import merge_groups
from penstock.model.message import MessageId, StoredMessage
from penstock.model.options import check_limit, check_rate, optional, whole
from penstock.model.placement import check_partition, is_slice
from penstock.model.schedules import DelayedMessage
from penstock.model.units import Duration, Time
from penstock.shard.operations import dead_letters as letters_of
from penstock.shard.operations import delays as delays_of
from penstock.shard.operations import groups as groups_of
from penstock.shard.operations import replay as replay_of
from penstock.shard.upkeep import retention

if TYPE_CHECKING:
    from penstock.cluster.shards import Shards
    from penstock.shard.shard import Shard

Answer = TypeVar("Answer")


# Groups: one in each slice.


def create_group(
    shards: Shards,
    topic: str,
    group: str,
    *,
    start: str | Time = "earliest",
    visibility_timeout: Duration | None = None,
    max_in_flight: int | None = None,
) -> GroupInfo:
    """Make a group, which must be new; each slice has its share of `max_in_flight`."""
    name, slices = find(shards, topic)
    limit = optional(whole(1, 1_000_000_000))(max_in_flight)
    made: list[GroupInfo] = []
    for shard in reversed(slices):
        known = shard.catalog.by_name.get(name)
        own = limit if limit is None or known is None else known.share(limit)
        try:
            made.append(
                groups_of.create_group(
                    shard, name, group, start=start, visibility_timeout=visibility_timeout, max_in_flight=own
                )
            )
        except GroupInUse:
            if known is None or known.slice == 0:
                raise
            made.append(groups_of.group(shard, name, group))  # of an attempt that was interrupted
    return merge_groups(made[::-1])


def group(shards: Shards, topic: str, group: str) -> GroupInfo:
    """One group."""
    return merge_groups(_where_it_is(shards, topic, lambda shard, name: groups_of.group(shard, name, group)))


def seek_group(shards: Shards, topic: str, group: str, to: int | str | Time, *, partition: int | None = None) -> None:
    """Move a group to an offset, a time, or to the beginning or the end."""
    name, slices = find(shards, topic)
    if partition is not None:
        slices = _with_partition(slices, name, partition)
    elif isinstance(to, int) and not isinstance(to, bool) and known_topic(slices, name).config.spread > 1:
        raise InvalidArgument(f"{name} is spread over several shards: give the partition that offset {to} is of")
    for shard in reversed(slices):
        groups_of.seek_group(shard, name, group, to, partition=partition)


def reset_group(shards: Shards, topic: str, group: str) -> None:
    """Move a group to the beginning."""
    seek_group(shards, topic, group, "earliest")


def pause_group(shards: Shards, topic: str, group: str) -> GroupInfo:
    """Hand no messages to a group until it is resumed."""
    return merge_groups(_where_it_is(shards, topic, lambda shard, name: groups_of.pause_group(shard, name, group)))


def resume_group(shards: Shards, topic: str, group: str) -> GroupInfo:
    """Hand messages to a paused group again."""
    return merge_groups(_where_it_is(shards, topic, lambda shard, name: groups_of.resume_group(shard, name, group)))


def checkpoint_group(shards: Shards, topic: str, group: str, positions: Mapping[int, int]) -> None:
    """Note how far a reader is that keeps its own position; each slice notes it for its partitions."""
    name, slices = find(shards, topic)
    for shard, own in _by_slice(slices, name, groups_of.positions_of(positions)):
        groups_of.checkpoint_group(shard, name, group, own)


def place_group(shards: Shards, topic: str, group: str, positions: Mapping[int, int]) -> None:
    """Have a group stand at these offsets, in one commit a slice."""
    name, slices = find(shards, topic)
    for shard, own in _by_slice(slices, name, groups_of.positions_of(positions)):
        groups_of.place_group(shard, name, group, own)


def delete_group(shards: Shards, topic: str, group: str) -> None:
    """Forget a group without consumers."""
    _where_it_is(shards, topic, lambda shard, name: groups_of.delete_group(shard, name, group))


# Delays, dead letters and the past.


def trim(shards: Shards, topic: str, before: Mapping[int, int], *, events: Mapping[int, int] | None = None) -> int:
    """Remove the segments that lie wholly before these offsets."""
    name, slices = find(shards, topic)
    if len(slices) == 1 and not is_slice(topic):
        return retention.trim(slices[0], name, before, events)
    own_events = dict(_by_slice(slices, name, groups_of.positions_of(events or {})))
    parts = _by_slice(slices, name, groups_of.positions_of(before))
    there = ((shard, own) for shard, own in parts if name in shard.catalog.by_name)
    return sum(retention.trim(shard, name, own, own_events[shard]) for shard, own in there)


def delayed(shards: Shards, topic: str, *, limit: int | None = None) -> list[DelayedMessage]:
    """What is not due yet, the next to fall due first."""
    return list(list_delayed(shards, topic, check_limit(limit)))


def list_delayed(shards: Shards, topic: str, limit: int | None = None, skip: int = 0) -> Iterator[DelayedMessage]:
    """What is not due yet, behind the first ones that are skipped."""
    name, slices = find_existing(shards, topic)
    if len(slices) == 1:
        return delays_of.list_delayed(slices[0], name, limit, skip)
    end = None if limit is None else skip + limit
    found = [delays_of.list_delayed(shard, name, end) for shard in slices]
    return itertools.islice(heapq.merge(*found, key=lambda message: (message.due_us, message.id)), skip, end)


def dead_letters(
    shards: Shards, topic: str, *, filter: LetterChoice | None = None, limit: int | None = None
) -> list[DeadLetter]:
    """The dead letters of a topic, oldest first."""
    chosen = (letter for letter in list_dead_letters(shards, topic) if filter is None or filter(letter))
    return list(itertools.islice(chosen, check_limit(limit)))


def list_dead_letters(shards: Shards, topic: str, after: MessageId | None = None) -> Iterator[DeadLetter]:
    """The dead letters of a topic, or those behind one of them, partition after partition: each slice has its own."""
    name, slices = find_existing(shards, topic)
    if len(slices) == 1:
        return letters_of.list_dead_letters(slices[0], name, after)
    found = [letters_of.list_dead_letters(shard, name, after) for shard in slices]
    return heapq.merge(*found, key=lambda letter: letter.id)


def redrive(
    shards: Shards,
    topic: str,
    *,
    filter: LetterChoice | None = None,
    to: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    progress: Callable[[int], object] | None = None,
) -> RedriveReport:
    """Send dead letters back to where they died, or to another topic."""
    name, slices = find_existing(shards, topic)
    report = RedriveReport(dry_run=dry_run)
    for shard in slices:
        is_here = to is None or publishing.lives_in(shards, to, shard)
        away = None if is_here else partial(publishing.publish_anywhere, shards)
        report.add(
            letters_of.redrive(
                shard, name, filter=filter, to=to, rate=rate, dry_run=dry_run, progress=progress, publish=away
            )
        )
    return report


def purge_dead_letters(shards: Shards, topic: str, *, filter: LetterChoice | None = None) -> int:
    """Let dead letters go for good; how many."""
    name, slices = find_existing(shards, topic)
    return sum(letters_of.purge_dead_letters(shard, name, filter=filter) for shard in slices)


def replay(
    shards: Shards,
    topic: str,
    to: str | Callable[[StoredMessage], object],
    *,
    from_time: Time | None = None,
    to_time: Time | None = None,
    from_offset: int | None = None,
    to_offset: int | None = None,
    partition: int | None = None,
    filter: Callable[[StoredMessage], bool] | None = None,
    rate: float | None = None,
) -> int:
    """A window of the past once more, into a fresh group (of each slice) or a function; how many messages."""
    name, slices = find_existing(shards, topic) if partition is None else find(shards, topic)
    if partition is not None and not isinstance(to, str):
        slices = _with_partition(slices, name, partition)
    shared = check_rate(rate)
    if shared is not None and isinstance(to, str):  # the replays of all slices go on at the same time
        shared /= known_topic(slices, name).config.spread
    return sum(
        replay_of.replay(
            shard,
            name,
            to,
            from_time=from_time,
            to_time=to_time,
            from_offset=from_offset,
            to_offset=to_offset,
            partition=partition,
            filter=filter,
            rate=shared,
        )
        for shard in reversed(slices)
    )


def _where_it_is(shards: Shards, topic: str, ask: Callable[[Shard, str], Answer]) -> list[Answer]:
    """What the slices that have a group answer, their first one last; one of them must have it."""
    name, slices = find_existing(shards, topic)
    if len(slices) == 1:
        return [ask(slices[0], name)]
    found: list[Answer] = []
    missing: GroupNotFound | None = None
    for shard in reversed(slices):
        try:
            found.append(ask(shard, name))
        except GroupNotFound as error:  # it is being made, or deleted, by somebody who was interrupted
            missing = error
    if missing is not None and not found:
        raise missing
    return found[::-1]


def _with_partition(slices: Sequence[Shard], topic: str, partition: object) -> Sequence[Shard]:
    """The slice that has a partition, if it is one of these."""
    known = known_topic(slices, topic)
    if known.config.spread == 1:
        return slices
    check_partition(topic, len(known.partitions), partition)
    return [shard for shard in slices if partition in shard.topic(topic).own_partitions]


def _by_slice(slices: Sequence[Shard], topic: str, given: Mapping[int, int]) -> Iterator[tuple[Shard, dict[int, int]]]:
    """What is given by partition, for each slice: all of them are asked to do it, the first one last."""
    known = known_topic(slices, topic)
    if known.config.spread == 1:
        yield slices[0], dict(given)
        return
    for partition in given:
        check_partition(topic, len(known.partitions), partition)
    for shard in reversed(slices):
        own = shard.topic(topic).own_partitions
        yield shard, {partition: offset for partition, offset in given.items() if partition in own}
