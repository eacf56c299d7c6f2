"""Places in a bucket, used as paths are: as much of `pathlib` as the files of jobs need.

What is written is there as a whole or not at all. There are no directories: one is there as soon as something is in it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from penstock.model.errors import InvalidArgument
from penstock.spark.buckets import objects_at
from penstock.storage.buckets import is_bucket
from penstock.storage.objects import ObjectStore


class BucketPath:
    """A name in a bucket: of an object, of what is below it, or of nothing yet."""

    def __init__(self, root: ObjectStore, name: str = "") -> None:
        """`name`: below the root."""
        self._root, self._name = root, name

    def __str__(self) -> str:
        return f"{self._root.address}/{self._name}".rstrip("/")

    def __truediv__(self, name: str) -> BucketPath:
        return BucketPath(self._root, f"{self._name}/{name}".strip("/"))

    @property
    def name(self) -> str:
        return self._name.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0] or self.name

    @property
    def parent(self) -> BucketPath:
        return BucketPath(self._root, self._name.rpartition("/")[0])

    def exists(self) -> bool:
        return self.is_dir() or self._is_object()

    def is_dir(self) -> bool:
        return bool(self.inside())

    def is_file(self) -> bool:
        return self._is_object()

    def _is_object(self) -> bool:
        return bool(self._name) and self.name in self.parent.inside() and not self.is_dir()

    def inside(self) -> list[str]:
        """The names in it."""
        return self._root.list_folder(f"{self._name}/" if self._name else "")

    def iterdir(self) -> Iterator[BucketPath]:
        return (self / name for name in self.inside())

    def glob(self, pattern: str) -> Iterator[BucketPath]:
        """What is there and matches, level by level."""
        first, _, rest = pattern.partition("/")
        for name in self.inside():
            if fnmatchcase(name, first):
                yield from (self / name).glob(rest) if rest else [self / name]

    def read_bytes(self) -> bytes:
        data = self._root.get(self._name)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", str(self))
        return data

    def write_bytes(self, data: bytes) -> None:
        self._root.put(self._name, data)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove it; whether it is there is not asked."""
        assert missing_ok
        self._root.delete([self._name])

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """There is nothing to make."""


AnyPath = Path | BucketPath


def path_of(place: str | os.PathLike[str]) -> AnyPath:
    """The path of a directory here, absolute, or of a place in a bucket."""
    given = os.fspath(place)
    return BucketPath(objects_at(given)) if is_bucket(given) else Path(given).absolute()


def local_path(place: str | os.PathLike[str], why: str) -> Path:
    """The path of what has to be a directory that all machines of Spark see."""
    if "://" in os.fspath(place):
        raise InvalidArgument(f"{why} needs a directory, not an address: {os.fspath(place)!r}")
    return Path(place)
