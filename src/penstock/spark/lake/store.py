"""Where the files of a topic of a lake are put: a directory that all machines of Spark see, or a bucket.

In a directory one job at a time writes, by a lock. A bucket has none: the commit of a number is created once, and who
comes second has changed nothing. So in a bucket only commits remove files, and what a job that was killed left stays
until the job that is run again has made use of it: it writes the same files under the same names.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from penstock.journal.bucket_reading import pause_of_readers
from penstock.model.errors import CorruptData, DirectoryLocked
from penstock.spark.buckets import objects_at
from penstock.spark.files.whole import hold
from penstock.spark.lake.layout import LOG, NEW, TABLES
from penstock.spark.paths import AnyPath
from penstock.storage import FileStorage
from penstock.storage.objects import Outcome


class TopicStore(Protocol):
    """The files of one topic, by their names below its root."""

    def hold(self) -> None:
        """Keep other jobs away, where that can be done; raises DirectoryLocked."""

    def release(self) -> None:
        """Let others come."""

    def put(self, name: str, chunks: Sequence[bytes]) -> None:
        """Write a file, which is there as a whole; its name is durable after `synced`."""

    def synced(self, names: Iterable[str]) -> None:
        """Have the names of files that were put on disk."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless one has the name: whether it is this one, durably."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def tidy(self, known: Container[str]) -> None:
        """Remove what is not known: left by a job that was killed, or replaced."""


def store_of(topic_root: AnyPath) -> TopicStore:
    """What writes the files of a topic."""
    return InDirectory(topic_root) if isinstance(topic_root, Path) else InBucket(str(topic_root))


def check_files(topic_root: AnyPath, sizes: Mapping[str, int]) -> None:
    """Raise unless files are there, and as large as they were, where that is known without reading them."""
    if not isinstance(topic_root, Path):
        objects = objects_at(str(topic_root))
        there = {name for table in TABLES for name in objects.list(f"{table}/")}
        for name in sizes.keys() - there:
            raise _missing(topic_root / name)
        return
    for name, expected in sizes.items():
        try:
            size = (topic_root / name).stat().st_size
        except FileNotFoundError:
            raise _missing(topic_root / name) from None
        if size != expected:
            raise CorruptData(str(topic_root / name), 0, f"it has {size} bytes instead of {expected}")


def _missing(place: AnyPath) -> CorruptData:
    return CorruptData(str(place), 0, "the file is missing, and the log of the lake has it")


class InDirectory:
    """A topic in a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._storage = FileStorage(root, readable_by="all")
        self._lock_fd: int | None = None

    def hold(self) -> None:
        self._storage.elsewhere(LOG)
        self._lock_fd = hold(self._root / LOG / "lock")
        if self._lock_fd is None:
            raise DirectoryLocked(f"another job is writing to {self._root}: wait until it is done, and run this again")

    def release(self) -> None:
        fd, self._lock_fd = self._lock_fd, None
        if fd is not None:
            os.close(fd)

    def put(self, name: str, chunks: Sequence[bytes]) -> None:
        temporary = f"{NEW}/{uuid.uuid4().hex}"  # the same task may run twice at a time
        self._write(temporary, chunks)
        self._storage.elsewhere(str(Path(name).parent))  # makes it, on disk
        self._storage.rename(temporary, name)

    def _write(self, name: str, chunks: Sequence[bytes]) -> None:
        file = self._storage.create(name)
        try:
            file.write(0, chunks)
            file.sync()
        except OSError:
            self._storage.remove(name)
            raise
        finally:
            file.close()

    def synced(self, names: Iterable[str]) -> None:
        for directory in sorted({str(Path(name).parent) for name in names}):
            self._storage.sync_directory(directory)

    def create(self, name: str, data: bytes) -> bool:
        """A link never replaces a file."""
        temporary = f"{NEW}/commit-{os.getpid()}"
        self._write(temporary, [data])
        try:
            os.link(self._root / temporary, self._root / name)
        except FileExistsError:
            return False
        finally:
            self._storage.remove(temporary)
        self.synced([name])
        return True

    def remove(self, name: str) -> None:
        self._storage.remove(name)

    def tidy(self, known: Container[str]) -> None:
        shutil.rmtree(self._root / NEW, ignore_errors=True)
        for table in TABLES:
            for day in (self._root / table).glob("date=*"):
                for place in day.iterdir():
                    if str(place.relative_to(self._root)) not in known and place.suffix == ".parquet":
                        place.unlink()
                with contextlib.suppress(OSError):  # it has files
                    day.rmdir()


class InBucket:
    """A topic in a bucket."""

    def __init__(self, address: str) -> None:
        self._objects, self._pause = objects_at(address), pause_of_readers()

    def hold(self) -> None:
        """Nobody can be kept away."""

    def release(self) -> None:
        """Nobody was kept away."""

    def put(self, name: str, chunks: Sequence[bytes]) -> None:
        self._objects.put(name, b"".join(chunks))

    def synced(self, names: Iterable[str]) -> None:
        """What is put is there."""

    def create(self, name: str, data: bytes) -> bool:
        attempt = 0
        while self._objects.create(name, data) is not Outcome.DONE:
            there = self._objects.get(name)
            if there is not None:
                return there == data  # of an attempt before, whose answer was lost
            attempt += 1
            self._pause(attempt)
        return True

    def remove(self, name: str) -> None:
        self._objects.delete([name])

    def tidy(self, known: Container[str]) -> None:
        """A job on another machine may be about to commit what is not known."""
