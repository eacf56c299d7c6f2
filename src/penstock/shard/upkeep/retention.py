"""Retention: which segments a topic no longer keeps, and what becomes of them.

Whole segments are archived or removed, and an event says so; a failing archive delays its own topic only.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.delivery.offsets import from_range
from penstock.log.fold import let_go
from penstock.log.partition_log import Log, first_offset
from penstock.log.reservations import reserve_removal
from penstock.log.topics import Topic
from penstock.model.errors import TopicNotFound
from penstock.model.events import Event, EventKind
from penstock.model.placement import check_partition
from penstock.model.schedules import check_open_topic
from penstock.model.stored import SegmentInfo, archived_name, segment_name
from penstock.shard.dispatch.topics_in_use import TopicsInUse
from penstock.shard.operations.groups import positions_of
from penstock.storage import put_file, read_file
from penstock.storage.refusals import told_as_refusals

if TYPE_CHECKING:
    from penstock.shard.shard import Shard

_log = logging.getLogger("penstock")
_REFUSED = "not everything could be let go; try again later"


def retain(shard: Shard) -> int:
    """Archive or remove every segment that its topic no longer keeps; how many."""
    with shard.upkeep_lock, told_as_refusals(_REFUSED):
        shard.check_not_closed()
        with shard.lock:
            topics = list(shard.catalog.by_id.values())
        gone = sum(_retain_topic(shard, topic) for topic in topics)
        if gone:
            shard.checkpoint()
        return gone


def _retain_topic(shard: Shard, topic: Topic) -> int:
    now_us = shard.clock.wall_us()
    with shard.lock:
        expired = expired_segments(topic, shard.dispatcher.in_use, now_us)
    gone = 0
    lost: Counter[str] = Counter()
    try:
        for log, segment in expired:
            # Another shard has the partitions that are not here, and their place in the archive.
            archive = topic.config.archive if log.partition in topic.own_partitions else None
            gone += _let_go(shard, topic, log, segment, now_us, archive, lost)
    except TopicNotFound:
        return gone  # the topic was deleted meanwhile, with all its segments
    except OSError as error:
        _log.warning("retention of %s will be tried again: %s", topic.name, error)
    _tell_lost(topic, lost)
    return gone


def _tell_lost(topic: Topic, lost: Counter[str]) -> None:
    """Log which groups had not finished removed messages: these no longer count as lag."""
    for group, count in sorted(lost.items()):
        _log.warning(
            "messages were removed that a group had not acked",
            extra={"topic": topic.name, "group": group, "lost": count},
        )


def trim(shard: Shard, name: str, before: Mapping[int, int], events: Mapping[int, int] | None = None) -> int:
    """Remove the segments of a topic that are entirely before these offsets, by partition; how many.

    They are not archived: the caller has copies. Segments that retention may not remove stay. Segments of events before
    the numbers in `events` are removed too, if all messages that they are about are gone.
    """
    with shard.upkeep_lock, told_as_refusals(_REFUSED):
        shard.check_not_closed()
        with shard.lock:
            topic = shard.topic(check_open_topic(name))
            ends, event_ends = (_ends(topic, given) for given in (before, {} if events is None else events))
        gone = 0
        lost: Counter[str] = Counter()
        try:
            for number, end in ends.items():
                gone += _trim_log(shard, topic, topic.partitions[number].messages, end, lost)
            for number, end in event_ends.items():
                log = topic.partitions[number].events
                gone += 0 if log is None else _trim_log(shard, topic, log, end, lost)
        finally:
            _tell_lost(topic, lost)
            if gone:
                shard.checkpoint()
        return gone


def _ends(topic: Topic, given: object) -> dict[int, int]:
    found = positions_of(given)
    for number in found:
        check_partition(topic.name, len(topic.partitions), number)
    return found


def _trim_log(shard: Shard, topic: Topic, log: Log, end: int, lost: Counter[str]) -> int:
    now_us = shard.clock.wall_us()
    with shard.lock:
        first = first_offset(topic.partitions[log.partition].messages)
        chosen = [
            segment
            for segment in log.segments
            if segment.end <= end
            and not segment.archived
            and (log.table == "messages" or segment.high < first)
            and not _is_protected(topic, shard.dispatcher.in_use, log, segment, now_us)
        ]
    return sum(_let_go(shard, topic, log, segment, now_us, None, lost) for segment in chosen)


def expired_segments(topic: Topic, in_use: TopicsInUse, now_us: int) -> list[tuple[Log, SegmentInfo]]:
    """The segments to archive or remove now: too old, or the oldest of too many bytes.

    Segments stay, whatever their age, with messages that are leased, not yet due, or unacked and protected.
    """
    live = sorted(
        (
            (log, segment)
            for log in topic.logs()
            for segment in log.segments
            if not segment.archived and not _is_protected(topic, in_use, log, segment, now_us)
        ),
        key=lambda entry: entry[1].last_us,
    )
    config = topic.config
    oldest_us = 0 if config.retention_age is None else now_us - round(config.retention_age * 1_000_000)
    excess_bytes = 0
    if config.retention_bytes is not None:
        sizes = (segment.size_bytes for log in topic.logs() for segment in log.segments if not segment.archived)
        excess_bytes = sum(sizes) - topic.share(config.retention_bytes)
    expired: list[tuple[Log, SegmentInfo]] = []
    for log, segment in live:
        if segment.last_us >= oldest_us and excess_bytes <= 0:
            break
        expired.append((log, segment))
        excess_bytes -= segment.size_bytes
    return expired


def _is_protected(topic: Topic, in_use: TopicsInUse, log: Log, segment: SegmentInfo, now_us: int) -> bool:
    """Whether a segment holds a message that is still needed."""
    if segment.due_us > now_us:
        return True
    state = topic.partitions[log.partition].state
    if log.table == "events" or (state is None and not topic.config.protect_unacked):
        return False
    inside = from_range(segment.base, segment.end)
    if state is not None and any(offset in inside and due_us > now_us for offset, due_us in state.moved.items()):
        return True
    active_groups = in_use.groups(topic).values()
    if any(
        lease.messages & inside
        for active in active_groups
        for lease in active.group.leases.held_by(partition=log.partition)
    ):
        return True
    if not topic.config.protect_unacked:
        return False
    if state is None or not state.groups:
        return state is None or bool(inside - state.withdrawn)
    return any(inside & progress.pending(segment.end) for progress in state.groups.values())


def _lost_of(topic: Topic, partition: int) -> Counter[str]:
    """How many messages of a partition each group has lost."""
    state = topic.partitions[partition].state
    return Counter({name: progress.tally.lost for name, progress in state.groups.items()} if state is not None else {})


def _let_go(
    shard: Shard,
    topic: Topic,
    log: Log,
    segment: SegmentInfo,
    now_us: int,
    archive: str | None,
    lost: Counter[str],
) -> bool:
    """Archive or remove a segment, unless it is needed again by now; whether that was done.

    Messages that groups lose by this are added to `lost`.
    """
    place = (topic.name, log.table, log.partition, segment.base, segment.epoch)
    kind = EventKind.REMOVED
    if archive is not None:
        kind = EventKind.ARCHIVED
        data = read_file(shard.storage, segment_name(*place))
        put_file(shard.storage.elsewhere(archive), archived_name(*place), [data])
    event = Event(kind, now_us, segment.base, segment.end - segment.base, detail=archive)
    with shard.lock:
        if log.table == "events":  # there are no events about events: the next checkpoint says it
            let_go(shard.state, log, event)
            shard.meters.retained[kind] += 1
            return True
        if _is_protected(topic, shard.dispatcher.in_use, log, segment, now_us):
            return False
        before = _lost_of(topic, log.partition)
        commit = shard.log_events(topic, [(log.partition, event)])
        reserve_removal(log, segment.base)
    shard.journal.wait(commit)
    with shard.lock:
        lost += _lost_of(topic, log.partition) - before
    shard.meters.retained[kind] += 1
    return True
