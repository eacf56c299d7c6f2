"""Where a table comes from, as the driver sees it: a server, a data directory, an archive; a lake: `lake.origin`."""

from __future__ import annotations

import json
import os
import re
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from google_crc32c import value as crc32c

from penstock.client.sync import Client
from penstock.cluster.snapshots import Snapshots
from penstock.journal.bucket_reading import JournalObject, ReadOnlyShard
from penstock.log.partition_log import BlockRef
from penstock.model.errors import CorruptData, InvalidArgument, TopicNotFound
from penstock.model.layout import LogLayout, SegmentPlace, TopicLayout
from penstock.model.stored import SegmentInfo
from penstock.model.units import to_datetime
from penstock.segments.reader import SegmentReader
from penstock.segments.schema import POSITION, TIMESTAMP, is_schema_of
from penstock.segments.window import OFFSET_MAX, Window
from penstock.segments.writer import ROW_GROUPS_KEY
from penstock.spark.buckets import directory_at, root_at
from penstock.spark.connecting import through_restarts
from penstock.spark.options import ReadOptions
from penstock.spark.paths import AnyPath, path_of


class JournalPart(NamedTuple):
    """Blocks of a journal."""

    directory: str
    """The one in which the journal is: that of a shard, where the whole is divided."""
    blocks: tuple[BlockRef, ...]
    objects: tuple[JournalObject, ...] | None = None
    """On a bucket: what the journal files are made of."""


class Origin(Protocol):
    """What planning has to know."""

    def topic_names(self) -> list[str]:
        """Every topic."""

    def layout(self, topic: str, segments: bool = True) -> TopicLayout:
        """Where a topic lies; without its segments if only its ends are of interest."""

    def blocks(self, topic: str, table: str, partition: int, start: int, end: int) -> JournalPart | None:
        """The journal blocks with these offsets; None where they are read through the server, or no journal is."""

    def offset_at(self, topic: str, partition: int, time_us: int, include_deleted: bool) -> int:
        """The first offset at or after a time, among what can be read."""

    def note_position(self, topic: str, group: str, positions: Mapping[int, int]) -> None:
        """Tell the broker how far a stream is."""


def chosen_topics(origin: Origin, options: ReadOptions) -> list[str]:
    """The topics that the options choose; one that is named has to be there."""
    if options.pattern is not None:
        whole = re.compile(options.pattern)
        return [name for name in origin.topic_names() if whole.fullmatch(name)]
    return list(options.topics or options.assigned)


class ServerOrigin:
    """A server: what is settled is read from files where they can be seen, the rest through it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def topic_names(self) -> list[str]:
        return [info.name for info in self._client.topics()]

    def layout(self, topic: str, segments: bool = True) -> TopicLayout:
        return self._client.layout(topic, segments=segments)

    def blocks(self, topic: str, table: str, partition: int, start: int, end: int) -> None:
        return None

    def offset_at(self, topic: str, partition: int, time_us: int, include_deleted: bool) -> int:
        time = to_datetime(time_us)
        if include_deleted:  # the archive is not looked at by `offset_at`
            for message in self._client.read(topic, partition, from_time=time, limit=1, include_deleted=True):
                return message.offset
        return self._client.offset_at(topic, time, partition)

    def note_position(self, topic: str, group: str, positions: Mapping[int, int]) -> None:
        through_restarts(partial(self._client.checkpoint_group, topic, group, positions))


class DirectoryOrigin:
    """A data directory that no broker has open, or a bucket, as it is when the query is planned."""

    def __init__(self, path: str) -> None:
        self._snapshots = Snapshots(root_at(path))
        weakref.finalize(self, self._snapshots.close)

    def topic_names(self) -> list[str]:
        return [info.name for info in self._snapshots.topics()]

    def layout(self, topic: str, segments: bool = True) -> TopicLayout:
        return self._snapshots.layout(topic)

    def blocks(self, topic: str, table: str, partition: int, start: int, end: int) -> JournalPart:
        snapshot = self._snapshots.of(topic, partition)
        storage, blocks = snapshot.storage, tuple(snapshot.blocks(topic, partition, table, start, end))
        if not isinstance(storage, ReadOnlyShard):
            return JournalPart(storage.path, blocks)
        return JournalPart(storage.path, blocks, storage.journal_objects(block.sequence for block in blocks))

    def offset_at(self, topic: str, partition: int, time_us: int, include_deleted: bool) -> int:
        snapshot = self._snapshots.of(topic, partition)
        return snapshot.reader(snapshot.log(topic, partition), include_deleted).first_at(time_us)

    def note_position(self, topic: str, group: str, positions: Mapping[int, int]) -> None:
        """Nobody is there to be told."""


class ArchiveOrigin:
    """Segments in a directory, with nothing else beside them: `<topic>/messages/<partition>/<offset>.parquet`."""

    kind = "archive"

    def __init__(self, path: str) -> None:
        self.root: AnyPath = path_of(path)
        self._layouts: dict[str, TopicLayout] = {}

    def topic_names(self) -> list[str]:
        found = sorted(place.parent.name for place in self.root.glob("*/messages"))
        if not found:
            raise InvalidArgument(
                f"path: {self.root} is neither a data directory (with checkpoint-a or penstock.json) nor an archive "
                "(with <topic>/messages/<partition>/*.parquet) nor a lake (with <topic>/_log)"
            )
        return found

    def layout(self, topic: str, segments: bool = True) -> TopicLayout:
        if topic not in self._layouts:
            if topic not in self.topic_names():
                raise TopicNotFound(f"there is no topic {topic!r} in the {self.kind} {self.root}")
            self._layouts[topic] = self.read_layout(topic)
        return self._layouts[topic]

    def read_layout(self, topic: str) -> TopicLayout:
        """Where a topic lies, by its files."""
        numbers = {int(place.name) for place in self.root.glob(f"{topic}/*/*") if place.name.isdigit()}
        messages, events = (
            tuple(self._log(topic, table, number) for number in range(max(numbers, default=0) + 1))
            for table in ("messages", "events")
        )
        return TopicLayout(topic, messages, events)

    def _log(self, topic: str, table: str, partition: int) -> LogLayout:
        assert isinstance(self.root, Path)
        files = sorted((self.root / topic / table / str(partition)).glob("*.parquet"))
        return settled_log(partition, [_place(path, table) for path in files])

    def blocks(self, topic: str, table: str, partition: int, start: int, end: int) -> None:
        return None

    def offset_at(self, topic: str, partition: int, time_us: int, include_deleted: bool) -> int:
        log = self.layout(topic).messages[partition]
        for segment in log.segments:
            if segment.last_us >= time_us:
                with open_segment(segment, "messages") as reader:
                    for table in reader.tables(Window(from_us=time_us), columns=["offset"]):
                        return int(table.column(0)[0].as_py())
        return log.end

    def note_position(self, topic: str, group: str, positions: Mapping[int, int]) -> None:
        """Nobody is there to be told."""


def settled_log(partition: int, segments: Sequence[SegmentPlace]) -> LogLayout:
    """A log that lies in segments and nowhere else."""
    first, end = (segments[0].base, segments[-1].end) if segments else (0, 0)
    return LogLayout(partition, first, end, end, tuple(segments))


def open_segment(segment: SegmentPlace, table: str) -> SegmentReader:
    """A segment that lies in a file of this machine, or on a bucket."""
    directory, name = os.path.split(segment.path)
    info = SegmentInfo(
        segment.base,
        segment.end,
        segment.rows,
        segment.size_bytes,
        segment.first_us,
        segment.last_us,
        0,
        segment.footer_bytes,
        segment.footer_crc,
    )
    return SegmentReader(directory_at(directory), name, table, info)


def _place(path: Path, table: str) -> SegmentPlace:
    """What the broker would remember of the segment, from the file itself; what does not fit together is refused."""
    try:
        return _looked_at(path, table)
    except (pa.ArrowException, OSError, LookupError, ValueError, AttributeError, TypeError) as error:
        raise CorruptData(str(path), 0, f"not a segment: {error}") from error


def _looked_at(path: Path, table: str) -> SegmentPlace:
    metadata = pq.read_metadata(path)
    marks = json.loads(metadata.metadata[ROW_GROUPS_KEY.encode()])
    if not is_schema_of(table, metadata.schema.to_arrow_schema()):
        raise ValueError("its columns are others")
    columns = {metadata.schema.column(i).path: i for i in range(len(metadata.schema))}
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    places, times = (
        [_bounds(group.column(columns[name]).statistics) for group in groups]
        for name in (POSITION[table], TIMESTAMP[table])
    )
    rows = sum(group.num_rows for group in groups)
    follow = all(low <= high < after for (low, high), (after, _) in pairwise([*places, (OFFSET_MAX, 0)]))
    if not follow or places[0][0] != int(path.stem) or rows != metadata.num_rows or len(marks) != len(groups):
        raise ValueError("its row groups do not fit together")
    size, start = path.stat().st_size, int(marks[-1][0])
    with path.open("rb") as file:
        file.seek(start)
        footer = file.read()
    return SegmentPlace(
        str(path),
        places[0][0],
        places[-1][1] + 1,
        rows,
        size,
        min(low for low, _ in times),
        max(high for _, high in times),
        size - start,
        crc32c(footer),
        archived=False,
    )


def _bounds(statistics: Any) -> tuple[int, int]:
    """The lowest and the highest value of a column in a row group."""
    return int(statistics.min_raw), int(statistics.max_raw)
