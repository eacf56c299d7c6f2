"""Which files a lake has, and what is remembered of each."""

from __future__ import annotations

import msgspec

from penstock.model.layout import SegmentPlace, ThinnedSegment
from penstock.model.units import to_datetime
from penstock.spark.paths import AnyPath

FILE_ROWS = 1 << 19
"""A file ends before an offset that is a multiple of this."""
FILE_BYTES = 128 << 20
"""A file ends after the row with which it reaches this size, uncompressed."""
DAY_US = 86_400_000_000
TABLES = ("messages", "events")
NEW = "_new"
"""Where files lie while they are written."""
LOG = "_log"
"""Where the commits are."""


class Limits(msgspec.Struct, frozen=True):
    """How large files get; passed to tasks, so that all use the same limits."""

    rows: int
    size_bytes: int


def limits() -> Limits:
    """The limits of every lake."""
    return Limits(FILE_ROWS, FILE_BYTES)


class LakeFile(msgspec.Struct, frozen=True):
    """A Parquet file of a lake: consecutive places of one log, all of one UTC date."""

    table: str
    partition: int
    date: str
    base: int
    """The first place that it stands for."""
    end: int
    """The place behind the last one."""
    rows: int
    """Fewer than end - base only where compaction left some out."""
    size_bytes: int
    content_bytes: int
    """What its rows hold, uncompressed; this decides where a file ends, on every machine alike."""
    first_us: int
    last_us: int
    footer_bytes: int
    footer_crc: int

    @property
    def name(self) -> str:
        """Its place below the directory of the topic; other contents have another name."""
        return f"{self.table}/date={self.date}/{self.partition}-{self.base:020d}-{self.footer_crc:08x}.parquet"

    @property
    def thinned(self) -> bool:
        """Whether rows were left out on purpose."""
        return self.rows < self.end - self.base

    def place(self, topic_root: AnyPath) -> SegmentPlace:
        """The file as readers of segments know it."""
        return (ThinnedSegment if self.thinned else SegmentPlace)(
            str(topic_root / self.name),
            self.base,
            self.end,
            self.rows,
            self.size_bytes,
            self.first_us,
            self.last_us,
            self.footer_bytes,
            self.footer_crc,
            archived=False,
        )

    def is_open(self, limit: Limits) -> bool:
        """Whether what follows may belong into this file too, so that it is written again together with that."""
        return not self.thinned and self.end % limit.rows != 0 and self.content_bytes < limit.size_bytes


def date_of(time_us: int) -> str:
    """The UTC date of a time, as directories are named after it."""
    return to_datetime(time_us).date().isoformat()
