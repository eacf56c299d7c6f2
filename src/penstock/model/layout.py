"""Where the messages and events of a topic lie: for whoever reads the segment files without the broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """A Parquet file, and what is needed to know that it is the right one."""

    path: str
    """On the machine of the broker."""
    base: int
    end: int
    rows: int
    """Fewer than end - base only where a repair left a gap."""
    size_bytes: int
    first_us: int
    last_us: int
    footer_bytes: int
    footer_crc: int
    archived: bool


@dataclass(frozen=True, slots=True)
class ThinnedSegment(SegmentPlace):
    """A file of a lake of which rows were left out on purpose: that they are missing is no loss."""


@dataclass(frozen=True, slots=True)
class LogLayout:
    """One log: what is before `settled_end` lies in segments, or is gone; the rest is in the journal."""

    partition: int
    first: int
    """The lowest place that can be read; archived segments, which may lie before it, do not count."""
    settled_end: int
    end: int
    segments: tuple[SegmentPlace, ...]


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """The logs of a topic, by partition."""

    topic: str
    messages: tuple[LogLayout, ...]
    events: tuple[LogLayout, ...]
