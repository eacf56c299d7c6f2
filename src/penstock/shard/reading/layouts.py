"""Where the segments of a topic are, for clients that read segments themselves."""

from __future__ import annotations

import os
import posixpath

from penstock.log.partition_log import Log, first_offset
from penstock.log.topics import Topic
from penstock.model.layout import LogLayout, SegmentPlace, TopicLayout
from penstock.model.stored import SegmentInfo, place_of_segment
from penstock.storage import Storage
from penstock.storage.buckets import is_bucket


def topic_layout(topic: Topic, storage: Storage | None) -> TopicLayout:
    """The logs of a topic as they are now (of a slice, its own); without segments if no storage has a directory."""
    roots = {} if storage is None else _roots(topic, storage)
    own = [topic.partitions[number] for number in topic.own_partitions]
    messages = tuple(_log_layout(partition.messages, roots) for partition in own)
    events = tuple(
        LogLayout(partition.messages.partition, 0, 0, 0, ())
        if partition.events is None
        else _log_layout(partition.events, roots)
        for partition in own
    )
    return TopicLayout(topic.name, messages, events)


def _roots(topic: Topic, storage: Storage) -> dict[str | None, str]:
    """The paths of the directory and of each archive, without `..`, which Spark resolves differently."""
    directory, base = storage.path, storage.base_path
    if directory is None or base is None:
        return {}
    archives = {_place(log, segment)[0] for log in topic.logs() for segment in log.segments}
    found = {archive: directory if archive is None else _archive(base, archive) for archive in archives}
    return {archive: os.path.realpath(path) if ".." in path.split("/") else path for archive, path in found.items()}


def _archive(base: str, archive: str) -> str:
    """Where an archive is: a path or a bucket of its own, or below the base."""
    return archive if is_bucket(archive) else posixpath.join(base, archive)


def _place(log: Log, segment: SegmentInfo) -> tuple[str | None, str]:
    return place_of_segment(segment, log.topic.name, log.table, log.partition, log.topic.config.archive)


def _log_layout(log: Log, roots: dict[str | None, str]) -> LogLayout:
    return LogLayout(
        log.partition,
        first_offset(log),
        log.settled_end,
        log.committed_end,
        tuple(_segment_layout(log, segment, roots) for segment in log.segments) if roots else (),
    )


def _segment_layout(log: Log, segment: SegmentInfo, roots: dict[str | None, str]) -> SegmentPlace:
    archive, name = _place(log, segment)
    return SegmentPlace(
        posixpath.join(roots[archive], name),
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
