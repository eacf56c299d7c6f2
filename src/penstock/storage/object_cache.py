"""What is hot of a bucket, kept near: ranges of objects, in memory or in a directory, those that were used last.

Objects that are read through it are written once and never changed, so nothing here can be out of date. What a
directory keeps is there after a restart; it is checked whenever it is read, and an entry that is damaged is dropped, as
one is that is missing: whoever asks gets it from the bucket.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from google_crc32c import value as crc32c

from penstock.model.errors import InvalidArgument
from penstock.storage.counted import BucketMeter
from penstock.storage.objects import ObjectStore, Range

_ENTRY_BYTES = 200  # what an entry takes beside its bytes
_SHARE_MAX = 4  # a range that takes more than this part of the room is not kept: it would drive out all others
_AT_ONCE, _AT_ONCE_BYTES, _JOINED_BYTES = 32, 64 << 20, 16 << 20
_KEY_BYTES = 20
_HEADER = struct.Struct(f"<4sI{_KEY_BYTES}s")
_MAGIC, _ENDING, _ASIDE = b"PNOC", ".range", ".tmp"


class Shelf(Protocol):
    """Where the bytes are. It fails by losing them, and never otherwise."""

    def put(self, key: bytes, data: bytes) -> None:
        """Keep them, if that can be done."""

    def get(self, key: bytes) -> bytes | None:
        """The bytes that were put; None if they are not there, or damaged."""

    def drop(self, key: bytes) -> None:
        """Let them go."""

    def found(self) -> Iterable[tuple[bytes, int]]:
        """The keys and sizes of what is there from before, the oldest first."""


class MemoryShelf:
    """Bytes in memory."""

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}

    def put(self, key: bytes, data: bytes) -> None:
        self._data[key] = data

    def get(self, key: bytes) -> bytes | None:
        return self._data.get(key)

    def drop(self, key: bytes) -> None:
        self._data.pop(key, None)

    def found(self) -> Iterable[tuple[bytes, int]]:
        return ()


class DirectoryShelf:
    """Bytes in files, each with its key and a checksum; only the user who runs the broker may read them."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = Path(path).absolute()
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidArgument(f"cache_dir: {error}: give a directory that this process may write to") from error
        self._numbers = itertools.count()

    def put(self, key: bytes, data: bytes) -> None:
        aside = self._root / f"{os.getpid()}-{next(self._numbers)}{_ASIDE}"
        try:
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(_HEADER.pack(_MAGIC, crc32c(key + data), key))
                file.write(data)
            aside.rename(self._path(key))
        except OSError:  # the disk is full, most likely: it is only a cache
            with contextlib.suppress(OSError):
                aside.unlink()

    def get(self, key: bytes) -> bytes | None:
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        data = content[_HEADER.size :]
        is_sound = content[: _HEADER.size] == _HEADER.pack(_MAGIC, crc32c(key + data), key)
        return data if is_sound else None

    def drop(self, key: bytes) -> None:
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def found(self) -> Iterator[tuple[bytes, int]]:
        entries = sorted(
            (entry.stat().st_mtime_ns, entry.name, entry.stat().st_size) for entry in os.scandir(self._root)
        )
        for _, name, size_bytes in entries:
            with contextlib.suppress(ValueError):
                key = bytes.fromhex(name.removesuffix(_ENDING))
                if name.endswith(_ENDING) and len(key) == _KEY_BYTES:
                    yield key, size_bytes - _HEADER.size
                    continue
            if name.endswith(_ASIDE):  # of a process that ended meanwhile
                (self._root / name).unlink(missing_ok=True)

    def _path(self, key: bytes) -> Path:
        return self._root / f"{key.hex()}{_ENDING}"


class ObjectCache:
    """Ranges of objects of any bucket; for all threads of a process."""

    def __init__(
        self, size_bytes: int, directory: str | os.PathLike[str] | None = None, meter: BucketMeter | None = None
    ) -> None:
        """`size_bytes`: how much it keeps, in memory or in a directory that is its own."""
        self._room_bytes = size_bytes
        self._shelf: Shelf = MemoryShelf() if directory is None else DirectoryShelf(directory)
        self._meter = meter or BucketMeter()
        self._lock = threading.Lock()
        self._sizes: OrderedDict[bytes, int] = OrderedDict()  # those used last stand last
        self._taken_bytes = 0
        for key, found_bytes in self._shelf.found():
            self._note(key, found_bytes)

    def read(self, objects: ObjectStore, ranges: Sequence[Range]) -> list[bytes | None]:
        """The bytes of ranges, in their order; what is not here is asked for, many at a time, and kept.

        Ranges that follow one another are asked for together: stores that compress objects read all of one for each.
        """
        keys = [_key(objects, one) for one in ranges]
        found = [self._get(key, one) for key, one in zip(keys, ranges, strict=True)]
        missing = [place for place, data in enumerate(found) if data is None]
        self._meter.looked_up(len(ranges) - len(missing), len(missing))
        for together in _at_once(_joined(ranges, missing)):
            answers = objects.get_ranges([whole for whole, _ in together])
            for (whole, places), data in zip(together, answers, strict=True):
                if data is None:
                    continue
                for place in places:
                    start = ranges[place].start - whole.start
                    found[place] = part = data[start : start + ranges[place].length]
                    if len(part) == ranges[place].length:
                        self._put(keys[place], part)
        return found

    def fetch(self, objects: ObjectStore, ranges: Iterable[Range]) -> None:
        """Have ranges here that will be read one after the other, as many of them as half of the room is for."""
        left_bytes, wanted = self._room_bytes // 2, list[Range]()
        for one in ranges:
            left_bytes -= one.length + _ENTRY_BYTES
            if left_bytes < 0:
                break
            wanted.append(one)
        self.read(objects, wanted)

    def keep(self, objects: ObjectStore, one: Range, data: bytes) -> None:
        """Keep a range that was just written: it is likely to be read."""
        if len(data) == one.length:
            self._put(_key(objects, one), data)

    def _get(self, key: bytes, one: Range) -> bytes | None:
        with self._lock:
            if key not in self._sizes:
                return None
            self._sizes.move_to_end(key)
        data = self._shelf.get(key)
        if data is not None and len(data) == one.length:
            return data
        self._forget(key)
        return None

    def _put(self, key: bytes, data: bytes) -> None:
        if (len(data) + _ENTRY_BYTES) * _SHARE_MAX <= self._room_bytes:
            self._shelf.put(key, data)
            self._note(key, len(data))

    def _note(self, key: bytes, size_bytes: int) -> None:
        """Take an entry in, as the one used last, and let others go for which there is no room."""
        with self._lock:
            self._taken_bytes += size_bytes + _ENTRY_BYTES - self._sizes.pop(key, 0)
            self._sizes[key] = size_bytes + _ENTRY_BYTES
            gone = []
            while self._taken_bytes > self._room_bytes:
                oldest, taken_bytes = self._sizes.popitem(last=False)
                self._taken_bytes -= taken_bytes
                gone.append(oldest)
            self._meter.cache_bytes = self._taken_bytes
        for oldest in gone:
            self._shelf.drop(oldest)

    def _forget(self, key: bytes) -> None:
        with self._lock:
            self._taken_bytes -= self._sizes.pop(key, 0)
            self._meter.cache_bytes = self._taken_bytes
        self._shelf.drop(key)


def _joined(ranges: Sequence[Range], places: Iterable[int]) -> Iterator[tuple[Range, list[int]]]:
    """Some of the ranges, those together that follow one another in an object, with their places."""
    joined: list[int] = []
    for place in places:
        first, one = ranges[joined[0] if joined else place], ranges[place]
        end = first.start + sum(ranges[known].length for known in joined)
        if joined and (one.name != first.name or one.start != end or end - first.start >= _JOINED_BYTES):
            yield Range(first.name, first.start, end - first.start), joined
            joined = []
        joined.append(place)
    if joined:
        first = ranges[joined[0]]
        yield Range(first.name, first.start, sum(ranges[place].length for place in joined)), joined


def _at_once(joined: Iterable[tuple[Range, list[int]]]) -> Iterator[list[tuple[Range, list[int]]]]:
    """What is asked for at a time."""
    together: list[tuple[Range, list[int]]] = []
    for one in joined:
        size_bytes = sum(whole.length for whole, _ in together)
        if together and (len(together) == _AT_ONCE or size_bytes + one[0].length > _AT_ONCE_BYTES):
            yield together
            together = []
        together.append(one)
    if together:
        yield together


def _key(objects: ObjectStore, one: Range) -> bytes:
    """What is the same for the same bytes alone."""
    text = f"{one.start}+{one.length} {objects.address}/{one.name}"
    return hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()
