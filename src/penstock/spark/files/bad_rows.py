"""Rows that were set aside: a file of JSON lines for each part of a load, written before the part is published."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.model.errors import InvalidArgument
from penstock.spark.files.rows import BadRow
from penstock.spark.files.whole import write_whole

_encode = msgspec.json.Encoder().encode


class BadRows:
    """A directory for what could not be loaded, of one load."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def check(self) -> None:
        """Raise if nothing could be written there, before there is something to write."""
        there = self.directory
        while not there.exists():
            there = there.parent
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise InvalidArgument(f"bad rows cannot be set aside in {self.directory}: {there} is not to be written to")

    def clear(self) -> None:
        """Remove what an earlier load of the same words left."""
        for path in list(self.directory.glob("part-*.jsonl")):
            path.unlink()

    def write(self, part: int, rows: Sequence[BadRow]) -> None:
        """Set the bad rows of a part aside; a part without any has no file."""
        path = self._path(part)
        if rows:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_whole(path, b"".join(_encode(row._asdict()) + b"\n" for row in rows))
        else:
            path.unlink(missing_ok=True)

    def counts(self, parts: int) -> Counter[str]:
        """How many bad rows of each file the first parts have."""
        found: Counter[str] = Counter()
        for path in map(self._path, range(parts)):
            if path.exists():
                found.update(msgspec.json.decode(line)["file"] for line in path.read_bytes().splitlines())
        return found

    def _path(self, part: int) -> Path:
        return self.directory / f"part-{part:05}.jsonl"
