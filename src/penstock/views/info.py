"""Information about topics and the broker; and a topic of one partition as a plain queue."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from penstock.delivery.offsets import Offsets, from_range
from penstock.log.partition_log import first_offset
from penstock.log.topics import Partition, Topic
from penstock.model.errors import LimitExceeded
from penstock.model.info import BrokerStatus, PartitionInfo, TopicInfo
from penstock.model.units import format_size
from penstock.shard.reading.contents import Unreadable
from penstock.version import __version__

if TYPE_CHECKING:
    from penstock.shard.shard import Shard

_TOPICS_AT_ONCE = 500
_BYTES_MAX = 64 << 20


def topic_info(topic: Topic) -> TopicInfo:
    """The current numbers of a topic; of a slice, its own partitions only."""
    partitions = (topic.partitions[number] for number in topic.own_partitions)
    return TopicInfo(topic.name, topic.config, tuple(map(_partition_info, partitions)))


def _partition_info(partition: Partition) -> PartitionInfo:
    log = partition.messages
    live = [segment for segment in log.segments if not segment.archived]
    return PartitionInfo(
        log.partition,
        first_offset(log),
        log.committed_end,
        len(live),
        sum(segment.size_bytes for segment in live),
        log.live_bytes,
    )


class JournalSize(NamedTuple):
    """What waits to be settled, and what waits to be written."""

    size_bytes: int
    files: int
    unwritten_bytes: int


def journal_size(shard: Shard) -> JournalSize:
    """How much is in the journal."""
    with shard.lock:
        ends = [file.end for file in shard.journal.files.values()]
        return JournalSize(sum(ends), len(ends), shard.journal.unwritten_bytes)


def status(shard: Shard) -> BrokerStatus:
    """The current numbers; topics are counted some at a time, so that publishers do not wait."""
    with shard.lock:
        topics = list(shard.catalog.by_id.values())
    journal = journal_size(shard)
    partitions = groups = 0
    sizes: list[int] = []
    for start in range(0, len(topics), _TOPICS_AT_ONCE):
        with shard.lock:
            for topic in topics[start : start + _TOPICS_AT_ONCE]:
                partitions += len(topic.own_partitions)
                state = topic.partitions[0].state
                groups += 0 if state is None or topic.slice else len(state.groups)
                for log in topic.logs():
                    if log.segments:
                        sizes += [segment.size_bytes for segment in log.segments if not segment.archived]
    return BrokerStatus(
        broker_id=shard.broker_id.hex(),
        epoch=shard.epoch,
        version=__version__,
        directory=shard.storage.path,
        sync=shard.config.sync,
        uptime_s=shard.clock.monotonic_s() - shard.started_s,
        topics=sum(topic.slice == 0 for topic in topics),
        partitions=partitions,
        groups=groups,
        journal_bytes=journal.size_bytes,
        journal_files=journal.files,
        segments=len(sizes),
        segment_bytes=sum(sizes),
        unwritten_bytes=journal.unwritten_bytes,
        frozen=None if shard.frozen is None else str(shard.frozen),
        recovery=dataclasses.replace(shard.recovery),
    )


# A topic of one partition as a plain queue.


def queue_length(shard: Shard, topic_name: str, group: str) -> int:
    """How many messages a group has not taken yet; all of them, if it has taken none."""
    with shard.lock:
        partition = shard.topic(topic_name).partitions[0]
        log = partition.messages
        progress = None if partition.state is None else partition.state.groups.get(group)
        return log.committed_end - first_offset(log) if progress is None else progress.backlog(log.committed_end)


def list_queue(shard: Shard, topic_name: str, group: str, skip: int, limit: int) -> tuple[list[bytes], int]:
    """A page of the messages in a queue, in order, and how many there are."""
    with shard.lock:
        topic = shard.topic(topic_name)
        inside = _inside(topic, group)
    wanted = inside[skip : skip + limit] if skip < len(inside) else Offsets()
    values: list[bytes] = []
    size_bytes = 0
    unreadable: Unreadable = []
    for rows in shard.dispatcher.contents.rows(topic.partitions[0].messages, wanted, unreadable):
        for value in rows.batch.values:
            size_bytes += len(value)
            if size_bytes > _BYTES_MAX:
                raise LimitExceeded(f"this page has more than {format_size(_BYTES_MAX)}: ask for fewer at once")
            values.append(value)
    if unreadable:
        raise unreadable[0][1]
    return values, len(inside)


def _inside(topic: Topic, group: str) -> Offsets:
    """The messages that the group has not finished."""
    partition = topic.partitions[0]
    log = partition.messages
    first, end = first_offset(log), log.committed_end
    if partition.state is None:
        return from_range(first, end)
    progress = partition.state.groups.get(group)
    return from_range(first, end) - partition.state.withdrawn if progress is None else progress.pending(end)
