"""Segments of a bucket, copied to where Spark's own Parquet reader finds them; once, for they never change.

That reader is more than twice as fast as any that is written in Python, and needs files. Whoever reads a topic again
finds the copies there. Nobody removes them but whoever made the directory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from penstock.model.errors import InvalidArgument
from penstock.model.layout import SegmentPlace
from penstock.spark.buckets import objects_at
from penstock.spark.slices import Span
from penstock.storage.buckets import is_bucket
from penstock.storage.objects import ObjectStore, Range

_PART_BYTES, _PARTS_AT_ONCE = 16 << 20, 4  # what is smaller is one request: some stores unpack all of it for any part
_FILES_AT_ONCE = 4


class Copies:
    """Copies in a directory that all machines of Spark see."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        if "://" in os.fspath(directory):
            raise InvalidArgument(f"copies: {os.fspath(directory)!r} is an address; give a directory")
        self._root = Path(directory).absolute()

    def of(self, spans: Sequence[Span]) -> list[Span]:
        """The same spans, with copies in place of what is on a bucket; what is gone there stays as it is."""
        wanted = {segment.path: segment for span in spans for segment in span.segments if is_bucket(segment.path)}
        with ThreadPoolExecutor(_FILES_AT_ONCE) as threads:
            copied = dict(zip(wanted, threads.map(self._copy, wanted.values()), strict=True))
        return [
            replace(span, segments=tuple(copied.get(segment.path, segment) for segment in span.segments))
            for span in spans
        ]

    def _copy(self, segment: SegmentPlace) -> SegmentPlace:
        address = urlsplit(segment.path)
        target = self._root / f"{address.netloc}{address.path}".strip("/")
        if not target.exists() or target.stat().st_size != segment.size_bytes:
            place, _, name = segment.path.rpartition("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_name(f".{target.name}.{os.getpid()}")
            try:
                _fetch(objects_at(place), name, segment.size_bytes, unfinished)
            except FileNotFoundError:  # whoever reads it will say so
                unfinished.unlink(missing_ok=True)
                return segment
            unfinished.replace(target)
        return replace(segment, path=str(target))


def _fetch(objects: ObjectStore, name: str, size_bytes: int, target: Path) -> None:
    """Write an object to a file; a large one by parts, some of them at a time."""
    if size_bytes <= _PART_BYTES:
        whole = objects.get(name)
        if whole is None:
            raise FileNotFoundError(f"{objects.address}/{name} is gone")
        target.write_bytes(whole)
        return
    parts = [Range(name, start, _PART_BYTES) for start in range(0, size_bytes, _PART_BYTES)]
    with target.open("wb") as file:
        for first in range(0, len(parts), _PARTS_AT_ONCE):
            for data in objects.get_ranges(parts[first : first + _PARTS_AT_ONCE]):
                if data is None:
                    raise FileNotFoundError(f"{objects.address}/{name} is gone")
                file.write(data)
