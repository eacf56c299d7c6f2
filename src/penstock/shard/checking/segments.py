"""The segments that a checkpoint lists, in the directory and in archives."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import NamedTuple

from penstock.log.checkpoint import Checkpoint, LogState
from penstock.model.errors import CorruptData
from penstock.model.stored import SegmentInfo, place_of_segment
from penstock.segments.window import Window
from penstock.shard.checking.report import MOUNT, Problem, offset_run
from penstock.storage import Storage


class ListedSegment(NamedTuple):
    """A segment of the checkpoint."""

    log: LogState
    info: SegmentInfo
    table: str
    run: str
    archive: str | None
    name: str

    @property
    def shown(self) -> str:
        """Its name, with the archive that it is in."""
        return posixpath.join(self.archive, self.name) if self.archive else self.name


def listed_segments(checkpoint: Checkpoint) -> Iterator[ListedSegment]:
    """Every segment of every log."""
    for topic in checkpoint.topics:
        archive = None if (path := topic.config.get("archive")) is None else str(path)
        for table, logs in (("messages", topic.messages), ("events", topic.events)):
            for partition, log in enumerate(logs):
                if log is None:
                    continue
                for info in log.segments:
                    place = place_of_segment(info, topic.name, table, partition, archive)
                    run = offset_run(topic.name, partition, table, info.base, info.end)
                    yield ListedSegment(log, info, table, run, *place)


def reachable_storages(
    storage: Storage, segments: list[ListedSegment]
) -> tuple[dict[str | None, Storage], list[Problem]]:
    """The storage of each archive. One that is not mounted is one problem; its segments stay in the checkpoint."""
    found: dict[str | None, Storage] = {None: storage}
    problems = []
    for path in dict.fromkeys(segment.archive for segment in segments if segment.archive):
        wrong = "the archive is empty"
        try:
            archive = storage.elsewhere(path)
            if archive.list(""):
                found[path] = archive
                continue
        except OSError as error:
            wrong = f"the archive cannot be reached: {error}"
        runs = [segment.run for segment in segments if segment.archive == path]
        problems.append(Problem(path, 0, wrong, runs, MOUNT, repairable=False))
    return found, problems


def read_segment(storage: Storage, name: str, table: str, info: SegmentInfo) -> None:
    """Read a whole segment; raises if it is damaged, or has other rows than the checkpoint says."""
    from penstock.segments.reader import SegmentReader

    rows, base, end = 0, info.base, info.base
    with SegmentReader(storage, name, table, info) as reader:
        for part in reader.tables(Window()):
            offsets = part.column(0)
            base = base if rows else offsets[0].as_py()
            rows, end = rows + len(offsets), offsets[-1].as_py() + 1
    if (base, end, rows) != (info.base, info.end, info.rows):
        listed_rows = f"{info.rows} from {info.base} to before {info.end}"
        raise CorruptData(name, 0, f"it has {rows} rows from {base} to before {end}, not {listed_rows}")
