"""A topic of one partition as a plain queue: how much is in it, and what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.delivery.offsets import Offsets, from_range
from penstock.log.partition_log import first_offset
from penstock.log.topics import Topic
from penstock.model.errors import LimitExceeded
from penstock.model.units import format_size
from penstock.shard.reading.contents import Unreadable

if TYPE_CHECKING:
    from penstock.shard.shard import Shard

_BYTES_MAX = 64 << 20


def queue_length(shard: Shard, topic_name: str, group: str) -> int:
    """How many messages a group has not taken out yet; all of them, while it has taken none."""
    with shard.lock:
        partition = shard.topic(topic_name).partitions[0]
        log = partition.messages
        progress = None if partition.state is None else partition.state.groups.get(group)
        return log.committed_end - first_offset(log) if progress is None else progress.backlog(log.committed_end)


def list_queue(shard: Shard, topic_name: str, group: str, skip: int, limit: int) -> tuple[list[bytes], int]:
    """Some of the messages that are in a queue, in their order, and how many there are."""
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
    """What the group has not finished with."""
    partition = topic.partitions[0]
    log = partition.messages
    first, end = first_offset(log), log.committed_end
    if partition.state is None:
        return from_range(first, end)
    progress = partition.state.groups.get(group)
    return from_range(first, end) - partition.state.withdrawn if progress is None else progress.pending(end)
