"""The storage seam: everything that the journal and the segments ask of a disk.

Names are relative paths with `/`, and none leaves its directory (`inside`). The interface is as low as the guarantees
of a real disk, on purpose: a written byte is durable only after `File.sync`, a created, renamed or removed name only
after `Storage.sync_directory`. So a test can lose exactly what a power cut would lose.
Failures are `OSError`s, as the operating system gives them.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from penstock.model.stored import is_inside

TEMPORARY = ".tmp"
Buffer = bytes | memoryview


def inside(name: str) -> str:
    """The name itself; raises if it leads out of its directory (H4)."""
    if not is_inside(name):
        raise PermissionError(errno.EACCES, "this name leads out of its directory", name)
    return name


class File(Protocol):
    """An open file, read and written by position."""

    @property
    def overwrites(self) -> bool:
        """Whether bytes can be written where others are, and sync faster there than at the end."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write the buffers one after the other; the position after the last byte."""

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""

    def sync(self) -> None:
        """Return once everything written is on the disk."""

    def truncate(self, length: int) -> None:
        """Cut the file to this many bytes."""

    def size(self) -> int:
        """How many bytes the file has."""

    def close(self) -> None:
        """Close the file; closing twice is harmless."""


@runtime_checkable
class ReadsAhead(Protocol):
    """A file that can begin to read what will be asked for next."""

    def expect(self, position: int, length: int) -> None:
        """Begin to read these bytes; they may also never be asked for."""


class Storage(Protocol):
    """A directory of files that belongs to one broker."""

    @property
    def path(self) -> str | None:
        """The directory on this machine; None if it is not on disk."""

    @property
    def epoch(self) -> int:
        """Of the ownership, where a process that was replaced may write here still, so that names carry it; or 0."""

    @property
    def remote(self) -> bool:
        """Whether it is on other machines: what is asked of it may take long, or never be answered."""

    @property
    def base_path(self) -> str | None:
        """Where relative paths of other directories start: here, or in the directory that this is a part of."""

    def create(self, name: str) -> File:
        """A new, empty file; an old one of that name is emptied. Missing directories are made."""

    def open(self, name: str) -> File:
        """An existing file, to read and to write."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of any file that has it."""

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""

    def outdate(self, names: Sequence[str]) -> None:
        """These journal files, and no others, are removed as soon as the next checkpoint is there."""

    def remove_due(self) -> bool:
        """Have what was removed take no more room, where nobody can need it; whether that waits for a proof."""

    def walk(self, directory: str) -> Sequence[str]:
        """The names of all files below a directory, from here, sorted: what costs a bucket least, if there are many."""

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty if there is no such directory."""

    def sync_directory(self, directory: str) -> None:
        """Return once every create, rename and remove in the directory is on the disk."""

    def free_bytes(self) -> int:
        """How many bytes are free on the disk."""

    def elsewhere(self, path: str) -> Storage:
        """The storage of another directory, such as an archive; a relative path is taken from `base_path`."""

    def part(self, name: str) -> Storage:
        """A directory in this one, with a lock of its own."""

    def lock(self) -> None:
        """Lock the directory for this process, or raise DirectoryLocked."""

    def close(self) -> None:
        """Release the lock."""

    def prove(self) -> None:
        """Return if the lock is this process's still; raises NotOwner where another one may have taken it, and has."""

    def abandon(self) -> Storage:
        """Release the lock at once: what waits for an answer fails. What is to be locked the next time."""


# Whole files.


def put_file(storage: Storage, name: str, buffers: Sequence[Buffer]) -> None:
    """Write a whole file, so that after a crash it is complete, or as it was before."""
    stage_file(storage, name, buffers)
    publish_files(storage, [name])


def stage_file(storage: Storage, name: str, buffers: Sequence[Buffer], temporary: str = TEMPORARY) -> None:
    """The first half of `put_file`: write the bytes and sync them, under a name that ends with `temporary`."""
    file = storage.create(name + temporary)
    try:
        file.write(0, buffers)
        file.sync()
    except OSError:
        with contextlib.suppress(OSError):
            storage.remove(name + temporary)
        raise
    finally:
        file.close()


def publish_files(storage: Storage, names: Sequence[str], temporary: str = TEMPORARY) -> None:
    """The second half: give staged files their names, with one sync for each directory."""
    for name in names:
        storage.rename(name + temporary, name)
    for directory in dict.fromkeys(posixpath.dirname(name) for name in names):
        storage.sync_directory(directory)


def read_file(storage: Storage, name: str) -> bytes:
    """All bytes of a file."""
    file = storage.open(name)
    try:
        return file.read(0, file.size())
    finally:
        file.close()
