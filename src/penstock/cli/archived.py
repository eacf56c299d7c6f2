"""Messages of an archive or a lake, which no broker reads: from their files, as they are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.model.errors import InvalidArgument
from penstock.model.units import TIME_US_MAX, parse_time_us

if TYPE_CHECKING:
    from penstock import StoredMessage
    from penstock.cli.printing import Past
    from penstock.model.layout import LogLayout
    from penstock.segments.window import Window


def is_archive(directory: Path) -> bool:
    """Whether this is a directory, and none of a broker."""
    from penstock.cli.target import flaw_of

    return directory.is_dir() and flaw_of(directory) is not None


def read_archive(directory: Path, topic: str, past: Past, limit: int | None) -> Iterator[StoredMessage]:
    """What an archive or a lake has of a topic, partition after partition, each in the order of its offsets."""
    from penstock.segments.window import Window
    from penstock.spark.finding import origin_at
    from penstock.spark.options import Secrets

    logs = origin_at(None, str(directory), Secrets()).layout(topic).messages
    if past.partition is not None:
        if past.partition >= len(logs):
            raise InvalidArgument(f"{topic} has no partition {past.partition}: it has {len(logs)}")
        logs = (logs[past.partition],)
    from_us = 0 if past.from_time is None else parse_time_us(past.from_time)
    to_us = TIME_US_MAX + 1 if past.to_time is None else parse_time_us(past.to_time)
    window = Window(past.from_offset or 0, from_us=from_us, to_us=to_us)
    found = itertools.chain.from_iterable(_messages(topic, log, window) for log in logs)
    return itertools.islice(found, limit)


def _messages(topic: str, log: LogLayout, window: Window) -> Iterator[StoredMessage]:
    from penstock.segments.schema import messages_from_arrow
    from penstock.shard.reading.log_reader import to_messages
    from penstock.spark.origins import open_segment

    for segment in log.segments:
        if window.meets(segment.base, segment.end - 1, segment.first_us, segment.last_us):
            with open_segment(segment, "messages") as reader:
                for table in reader.tables(window):
                    yield from to_messages(topic, log.partition, messages_from_arrow(table))
