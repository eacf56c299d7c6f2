"""The files beside checkpoint and journal that a shard needs: segments, also those of its own archives, and stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from google_crc32c import value as crc32c

from penstock.log.checkpoint import Checkpoint
from penstock.log.state import State
from penstock.model.errors import InvalidArgument
from penstock.model.stored import STAGES, SegmentInfo, is_inside, place_of_segment
from penstock.shard.checking.segments import listed_segments
from penstock.shard.staging.stage_files import OPEN, SEALED
from penstock.storage import Storage
from penstock.storage.buckets import is_bucket


class NeededSegment(NamedTuple):
    """A segment, and the archive that it is in, if it is in one."""

    archive: str | None
    name: str
    table: str
    info: SegmentInfo

    @property
    def key(self) -> tuple[str, str]:
        """Where it is."""
        return self.archive or "", self.name


class NeededFiles(NamedTuple):
    """What is to be copied, and what stays where it is."""

    segments: list[NeededSegment]
    stages: list[str]
    elsewhere: set[str]
    """Archives that are no part of the source: the copy refers to them as the source does."""

    @property
    def size_bytes(self) -> int:
        """Of all segments."""
        return sum(segment.info.size_bytes for segment in self.segments)


def is_own(archive: str | None) -> bool:
    """Whether an archive is a part of the directory or the bucket, so that it is copied too."""
    return archive is None or not (is_bucket(archive) or archive.startswith("/") or not is_inside(archive))


def files_of(checkpoint: Checkpoint, state: State, stages: Sequence[str]) -> NeededFiles:
    """What a cut needs, as the checkpoint says it and as the journal behind has it: a broker looks for both."""
    places = {segment.key: segment for segment in (*_noted(checkpoint), *_folded(state))}
    archives = {*_configured(state), *(one.archive for one in places.values() if one.archive is not None)}
    return NeededFiles(
        [segment for segment in places.values() if is_own(segment.archive)],
        [f"{STAGES}/{name}" for name in stages if name.endswith((OPEN, SEALED))],
        {archive for archive in archives if not is_own(archive)},
    )


def check_stages(state: State, stages: Sequence[str]) -> None:
    """Raise if a state of the past is in the middle of publishing stages that are there no more."""
    for record in state.staged.values():
        left = () if record.next_file is None else record.files[record.next_file :]
        if not {file + SEALED for file in left} <= set(stages):
            raise InvalidArgument(
                f"{record.producer!r} was just publishing stages then, which are gone since: give another time"
            )


def _configured(state: State) -> Iterator[str]:
    """Where segments go that expire."""
    return (topic.config.archive for topic in state.catalog.by_id.values() if topic.config.archive is not None)


def _noted(checkpoint: Checkpoint) -> Iterator[NeededSegment]:
    for listed in listed_segments(checkpoint):
        yield NeededSegment(listed.archive, listed.name, listed.table, listed.info)


def _folded(state: State) -> Iterator[NeededSegment]:
    for topic in state.catalog.by_id.values():
        for log in topic.logs():
            for info in log.segments:
                place = place_of_segment(info, topic.name, log.table, log.partition, topic.config.archive)
                yield NeededSegment(*place, log.table, info)


def read_listed(storage: Storage, name: str, info: SegmentInfo) -> bytes:
    """All bytes that a segment should have, or fewer."""
    file = storage.open(name)
    try:
        return file.read(0, info.size_bytes)
    finally:
        file.close()


def is_listed(data: bytes, info: SegmentInfo) -> bool:
    """Whether bytes are those of a segment, by their number and by their footer."""
    return len(data) == info.size_bytes and crc32c(data[-info.footer_bytes :]) == info.footer_crc


def is_same(storage: Storage, name: str, info: SegmentInfo) -> bool:
    """Whether a file is a segment, as its footer says, in which are the checksums of all that is before it."""
    try:
        file = storage.open(name)
        try:
            footer = file.read(info.size_bytes - info.footer_bytes, info.footer_bytes + 1)
        finally:
            file.close()
    except OSError:
        return False
    return len(footer) == info.footer_bytes and crc32c(footer) == info.footer_crc
