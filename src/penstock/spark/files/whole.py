"""Files that are there whole, or not at all; and files that one process holds."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from penstock.spark.paths import AnyPath

_UNFINISHED = ".unfinished"


@contextlib.contextmanager
def written_whole(path: AnyPath) -> Iterator[IO[bytes]]:
    """A file to be written; it gets its name when everything is in it and on disk, or is put with it on a bucket."""
    if not isinstance(path, Path):
        content = io.BytesIO()
        yield content
        path.write_bytes(content.getvalue())
        return
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}{_UNFINISHED}")
    try:
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_whole(path: AnyPath, data: bytes) -> None:
    """Write a file at once."""
    with written_whole(path) as file:
        file.write(data)


def remove_unfinished(directory: AnyPath) -> None:
    """Remove what was being written when its writer was killed; on a bucket nothing is."""
    if not isinstance(directory, Path):
        return
    for path in directory.glob(f".*{_UNFINISHED}"):
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Have a file, or the names in a directory, on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def hold(path: Path) -> int | None:
    """Lock a file for this process until the handle is closed; None if another process has locked it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
