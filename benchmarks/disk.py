"""The disk without a broker: the baseline of everything that is durable."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from time import perf_counter

from penstock import Broker

BARE = "bare pwrite + fdatasync"


def journal_bytes(broker: Broker) -> bytes:
    """Everything that is in the journal of a broker."""
    with broker.shard.lock:
        files = [(file.handle, file.end) for file in broker.shard.journal.files.values()]
    return b"".join(handle.read(0, end) for handle, end in files)


def bare_commits(path: Path, data: bytes, commits: int) -> list[float]:
    """Write the data to a new file in so many parts, each synced before the next; the seconds of each."""
    ends = [len(data) * number // commits for number in range(commits + 1)]
    parts = [memoryview(data)[start:end] for start, end in pairwise(ends)]
    seconds = []
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        position = _write(fd, data[:4096], 0)
        os.fsync(fd)
        for part in parts:
            start = perf_counter()
            position = _write(fd, part, position)
            os.fdatasync(fd)
            seconds.append(perf_counter() - start)
    finally:
        os.close(fd)
    return seconds


def bare_beside(broker: Broker, path: Path) -> list[float]:
    """Write and sync what a broker wrote since it made its topic, in groups of the same size."""
    return bare_commits(path, journal_bytes(broker), broker.shard.journal.commits - 1)


def bare_read(directory: Path) -> float:
    """The seconds that reading all files of a directory takes."""
    start = perf_counter()
    for path in sorted(directory.iterdir()):
        path.read_bytes()
    return perf_counter() - start


def forget_cached(directory: Path) -> None:
    """Drop the files of a directory from the page cache, so that the next read is from the disk."""
    for path in directory.iterdir():
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _write(fd: int, data: bytes | memoryview, position: int) -> int:
    written = os.pwrite(fd, data, position)
    if written != len(data):
        raise OSError(f"the disk took {written} of {len(data)} bytes")
    return position + written
