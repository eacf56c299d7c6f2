"""Writing and reading whole files."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Sequence

from penstock.storage.interface import Buffer, Storage

TEMPORARY = ".tmp"


def put_file(storage: Storage, name: str, buffers: Sequence[Buffer]) -> None:
    """Write a whole file so that after any crash it is there complete, or is what it was before."""
    stage_file(storage, name, buffers)
    publish_files(storage, [name])


def stage_file(storage: Storage, name: str, buffers: Sequence[Buffer], temporary: str = TEMPORARY) -> None:
    """The first half of `put_file`: the bytes are on the disk, under a name that ends with `temporary`."""
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
    """The second half: staged files get their names, with one sync for each directory."""
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
