"""A directory that is only read: every change is refused; and what all have in common that is only read.

Only what recovery does to a torn tail (cutting it off, and syncing) is allowed, without effect: readers must use the
end that recovery found, not the size of the file.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from penstock.model.errors import DirectoryLocked, InvalidArgument
from penstock.storage.content import ContentFile
from penstock.storage.files import OpenFile, walk_directory
from penstock.storage.interface import Buffer, Storage, inside


class ReadableStorage(Storage, Protocol):
    """What is only read, by whoever has no broker: a directory, or a bucket."""

    @property
    def path(self) -> str:
        """Where it is: a path of this machine, or the address of a bucket."""

    @property
    def base_path(self) -> str:
        """Where relative paths of other directories start."""

    @property
    def is_shared(self) -> bool:
        """Whether a broker may have it, and change it, while it is read."""

    def check_readable(self) -> None:
        """Raise if there is nothing to read, or if a broker has it that wants it alone."""

    def look_again(self) -> bool:
        """See it as it is now; whether it has changed since. Raises as `check_readable` does."""

    def elsewhere(self, path: str) -> ReadableStorage:
        """Another directory, such as an archive."""

    def part(self, name: str) -> ReadableStorage:
        """A directory in this one."""


class ReadOnlyFile(OpenFile):
    """A file that cannot be changed."""

    __slots__ = ()

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        refuse("a file is not written")

    def sync(self) -> None:
        """Nothing was written."""

    def truncate(self, length: int) -> None:
        """The tail stays where it is."""


class ReadOnlyContent(ContentFile):
    """Bytes in memory that cannot be changed."""

    overwrites = False

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        refuse("a file is not written")

    def sync(self) -> None:
        """Nothing was written."""

    def truncate(self, length: int) -> None:
        """The tail stays where it is."""


class ReadOnlyStorage:
    """A directory on this machine; not created if it is missing."""

    epoch = 0
    remote = False
    is_shared = False

    def __init__(self, path: str | os.PathLike[str], base: str | os.PathLike[str] | None = None) -> None:
        self._root = Path(path).absolute()
        self._base = self._root if base is None else Path(base).absolute()

    @property
    def path(self) -> str:
        return str(self._root)

    @property
    def base_path(self) -> str:
        return str(self._base)

    def check_readable(self) -> None:
        if not self._root.is_dir():
            raise InvalidArgument(f"{self._root} is no data directory: there is no such directory")
        self.check_unlocked()

    def look_again(self) -> bool:
        self.check_unlocked()
        return False

    def check_unlocked(self) -> None:
        """Raise DirectoryLocked if a broker has the directory open now; the lock is not kept."""
        try:
            fd = os.open(self._root / "LOCK", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # no broker was ever here, or it was not copied
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 32, 0).decode(errors="replace").strip()
            raise DirectoryLocked(
                f"{self._root} is in use by a broker"
                + (f" (process {owner})" if owner else "")
                + ": close it to read the directory itself, or read through it"
                " (`penstock serve`, and the option servers= with its address)"
            ) from None
        finally:
            os.close(fd)

    def create(self, name: str) -> ReadOnlyFile:
        refuse(f"{name} is not made")

    def open(self, name: str) -> ReadOnlyFile:
        return ReadOnlyFile(os.open(self._root / inside(name), os.O_RDONLY | os.O_CLOEXEC))

    def rename(self, old: str, new: str) -> None:
        refuse(f"{old} keeps its name")

    def remove(self, name: str) -> None:
        refuse(f"{name} is not removed")

    def outdate(self, names: Sequence[str]) -> None:
        """None is removed."""

    def remove_due(self) -> bool:
        return False

    def walk(self, directory: str) -> Sequence[str]:
        return walk_directory(self._root, directory)

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / inside(directory)))
        except FileNotFoundError:
            return []

    def sync_directory(self, directory: str) -> None:
        """Nothing was changed here."""

    def free_bytes(self) -> int:
        return 0

    def elsewhere(self, path: str) -> ReadOnlyStorage:
        return ReadOnlyStorage(self._base / path)

    def part(self, name: str) -> ReadOnlyStorage:
        return ReadOnlyStorage(self._root / name, self._base)

    def lock(self) -> None:
        refuse("it cannot be kept from others")

    def close(self) -> None:
        """There is no lock to let go."""

    def prove(self) -> None:
        """No other process takes the lock of one that runs."""

    def abandon(self) -> ReadOnlyStorage:
        return self


def refuse(what: str) -> NoReturn:
    """Tell whoever would change something that it cannot be."""
    raise OSError(errno.EROFS, f"this storage is only read: {what}")
