"""Where a topic lies, told to those who read segments themselves."""

from __future__ import annotations

import posixpath

from penstock.broker.topics import Log, Topic, first_offset
from penstock.model.layout import LogLayout, SegmentPlace, TopicLayout
from penstock.segments.info import SegmentInfo, archived_name, segment_name


def topic_layout(topic: Topic, directory: str | None) -> TopicLayout:
    """The logs of a topic as they are now; under the state lock. With no directory no segments are told."""
    messages = tuple(_log_layout(partition.messages, directory) for partition in topic.partitions)
    events = tuple(
        LogLayout(number, 0, 0, 0, ()) if partition.events is None else _log_layout(partition.events, directory)
        for number, partition in enumerate(topic.partitions)
    )
    return TopicLayout(topic.name, messages, events)


def _log_layout(log: Log, directory: str | None) -> LogLayout:
    return LogLayout(
        log.partition,
        first_offset(log),
        log.settled_end,
        log.committed_end,
        () if directory is None else tuple(_place(log, segment, directory) for segment in log.segments),
    )


def _place(log: Log, segment: SegmentInfo, directory: str) -> SegmentPlace:
    place = (log.topic.name, log.table, log.partition, segment.base)
    archive = segment.archive or log.topic.config.archive
    name = segment_name(*place)
    if segment.archived and archive is not None:
        name = posixpath.join(archive, archived_name(*place))
    return SegmentPlace(
        posixpath.join(directory, name),
        segment.base,
        segment.end,
        segment.rows,
        segment.size_bytes,
        segment.first_us,
        segment.last_us,
        segment.footer_bytes,
        segment.footer_crc,
        segment.archived,
    )
