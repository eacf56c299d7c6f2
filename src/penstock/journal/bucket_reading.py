"""Buckets read by whoever owns nothing there, while owners go on: nothing is claimed, sealed or written.

A shard is shown with the names that its owner has: the checkpoint, and journal files made of bundles and of the pieces
behind the checkpoint, up to the first hole. It is the state of one moment. Bundles and segments are objects that stay
for a while after their owner has no need of them; whoever meets one that is gone looks again (`look_again`).
"""

from __future__ import annotations

import errno
import os
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from penstock.journal.bucket_stages import parts_of, stage_files
from penstock.journal.bucket_state import decode_state
from penstock.journal.chain import Found, read
from penstock.journal.chain_layout import PIECE_HEADER_BYTES, piece_name
from penstock.journal.conversing import carry_out
from penstock.journal.layout import file_name, sequence_of
from penstock.model.clock import ShardClock, SystemClock
from penstock.model.errors import InvalidArgument
from penstock.model.stored import STAGES
from penstock.storage.buckets import is_bucket, open_objects
from penstock.storage.interface import Buffer, File, inside
from penstock.storage.objects import ObjectStore, Range, StoreUnavailable
from penstock.storage.persistent import Pause, PersistentObjects
from penstock.storage.read_only import ReadableStorage, ReadOnlyContent, ReadOnlyStorage, refuse

_DIVISION, _SHARD, _CHECKPOINT, _JOURNAL, _SEGMENT = "penstock.json", "shards/", "checkpoint-a", "journal", ".parquet"
_ATTEMPTS, _PAUSE_S, _PAUSE_MAX_S = 9, 0.1, 2.0
_AHEAD_BYTES, _RANGE_BYTES, _AT_ONCE = 4 << 20, 4 << 20, 32
_WHOLE = 1 << 62


def open_root_for_reading(address: str | os.PathLike[str]) -> ReadableStorage:
    """What is at a path or at the address of a bucket, for whoever only reads it."""
    given = os.fspath(address)
    if not is_bucket(given):
        return ReadOnlyStorage(given)
    return ReadOnlyBucket(open_to_read(given))


def open_to_read(address: str) -> ObjectStore:
    """The bucket of an address, which is asked again when it does not answer, for a while."""
    return PersistentObjects(open_objects(address), pause_of_readers())


def pause_of_readers(clock: ShardClock | None = None) -> Pause:
    """Waits before a request is made again, and gives up in the end."""
    sleep_s = (clock or SystemClock()).sleep_s

    def pause(attempt: int) -> None:
        if attempt > _ATTEMPTS:
            raise StoreUnavailable(errno.EIO, f"no answer to any of {attempt} attempts: {sys.exception()}")
        sleep_s(min(_PAUSE_MAX_S, _PAUSE_S * 2.0**attempt))

    return pause


# Files.


class JournalObject(NamedTuple):
    """Where some bytes of a journal file lie."""

    sequence: int
    """Of the file."""
    position: int
    """Of the first of them in the file."""
    end: int
    name: str
    """Of the object."""
    skip: int
    """How many bytes of the object come before."""


class ObjectsFile:
    """Objects that follow one another, read by ranges, and small ones several at a time."""

    overwrites = False

    def __init__(self, objects: ObjectStore, parts: Sequence[JournalObject], ahead_bytes: int) -> None:
        """`ahead_bytes`: how much is read where less is asked for, because what follows is asked for next."""
        self._objects, self._parts, self._ahead_bytes = objects, parts, ahead_bytes
        self._loaded = (0, b"")  # where, and what
        self._expected: tuple[int, Future[bytes]] | None = None
        self._reading: ThreadPoolExecutor | None = None  # of what is expected

    def expect(self, position: int, length: int) -> None:
        self._reading = self._reading or ThreadPoolExecutor(1, "penstock-ahead")
        self._expected = position, self._reading.submit(self._load, position, length)

    def read(self, position: int, length: int) -> bytes:
        """Raises FileNotFoundError if an object is gone."""
        found: list[bytes] = []
        while length > 0 and position < self._parts[-1].end:
            data = self._from(position, length)
            if not data:  # it is shorter than it was, which whoever asks finds out
                break
            found.append(data)
            position, length = position + len(data), length - len(data)
        return found[0] if len(found) == 1 else b"".join(found)

    def _from(self, position: int, length: int) -> bytes:
        """The bytes at a place, or the first of them."""
        if self._expected is not None and self._expected[0] == position:
            self._loaded, self._expected = (position, self._expected[1].result()), None
        start, data = self._loaded
        if not start <= position < start + len(data):
            ahead_bytes = self._ahead_bytes if position else 0  # where only the head of a file is of interest
            self._loaded = start, data = position, self._load(position, max(length, ahead_bytes))
        return data[position - start : position - start + length]

    def _load(self, position: int, length: int) -> bytes:
        ranges = list(islice(self._ranges(position, position + length), _AT_ONCE))
        found: list[bytes] = []
        for one, data in zip(ranges, self._objects.get_ranges(ranges), strict=True):
            found.append(_there(data, one.name))
            if len(found[-1]) < one.length:  # it is shorter than it was, which whoever asks finds out
                break
        return found[0] if len(found) == 1 else b"".join(found)

    def _ranges(self, position: int, end: int) -> Iterator[Range]:
        """What there is to ask for, from a place to another."""
        first = bisect_right(self._parts, position, key=attrgetter("position")) - 1
        for part in islice(self._parts, first, None):
            for start in range(max(part.position, position), min(part.end, end), _RANGE_BYTES):
                wanted = min(part.end, end, start + _RANGE_BYTES) - start
                yield Range(part.name, part.skip + start - part.position, wanted)
            if part.end >= end:
                return

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        refuse("a file is not written")

    def sync(self) -> None:
        """Nothing was written."""

    def truncate(self, length: int) -> None:
        """The tail stays where it is."""

    def size(self) -> int:
        last = self._parts[-1]
        return last.end if last.end < _WHOLE else len(_there(self._objects.get(last.name), last.name))

    def close(self) -> None:
        if self._reading is not None:
            self._reading.shutdown(wait=False, cancel_futures=True)
            self._reading = None


def _there(data: bytes | None, name: str) -> bytes:
    if data is None:
        raise FileNotFoundError(errno.ENOENT, "the object is gone", name)
    return data


def open_stage(objects: ObjectStore, name: str, content: bytes) -> ObjectsFile | None:
    """The file of a stage that was sealed in parts; None where this is no such file."""
    parts = parts_of(name, content) if name.startswith(f"{STAGES}/") else None
    if parts is None:
        return None
    found = [JournalObject(0, part.position, part.end, part.name, 0) for part in parts]
    return ObjectsFile(objects, found, _AHEAD_BYTES)


# Directories.


class ReadOnlyObjects:
    """Objects as the files of a directory: segments by ranges, what else there is as a whole."""

    epoch = 0
    remote = is_shared = True

    def __init__(self, objects: ObjectStore, base: ObjectStore | None = None) -> None:
        """`base`: the whole of which this is a part."""
        self._objects, self._base = objects, base or objects

    @property
    def path(self) -> str:
        return self._objects.address

    @property
    def base_path(self) -> str:
        return self._base.address

    def check_readable(self) -> None:
        """Whatever is there can be read."""

    def look_again(self) -> bool:
        return False

    def open(self, name: str) -> File:
        if inside(name).endswith(_SEGMENT):
            return ObjectsFile(self._objects, [JournalObject(0, 0, _WHOLE, name, 0)], 0)
        data = self._objects.get(name)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", name)
        return open_stage(self._objects, name, data) or ReadOnlyContent(bytearray(data))

    def outdate(self, names: Sequence[str]) -> None:
        """None is removed."""

    def remove_due(self) -> bool:
        return False

    def walk(self, directory: str) -> Sequence[str]:
        return self._objects.list(f"{inside(directory)}/")

    def list(self, directory: str) -> list[str]:
        entries = self._objects.list_folder(f"{inside(directory)}/" if directory else "")
        return stage_files(entries) if directory == STAGES else entries

    def create(self, name: str) -> File:
        refuse(f"{name} is not made")

    def rename(self, old: str, new: str) -> None:
        refuse(f"{old} keeps its name")

    def remove(self, name: str) -> None:
        refuse(f"{name} is not removed")

    def sync_directory(self, directory: str) -> None:
        """Nothing was changed here."""

    def free_bytes(self) -> int:
        return 0

    def elsewhere(self, path: str) -> ReadableStorage:
        if is_bucket(path):
            return ReadOnlyObjects(open_to_read(path))
        return ReadOnlyObjects(self._base.part(f"{inside(path).strip('/')}/"))

    def part(self, name: str) -> ReadableStorage:
        return ReadOnlyObjects(self._objects.part(f"{inside(name)}/"), self._base)

    def lock(self) -> None:
        refuse("it cannot be kept from others")

    def close(self) -> None:
        """There is no lock to let go."""

    def prove(self) -> None:
        """No other process takes the lock of one that runs."""

    def abandon(self) -> ReadableStorage:
        return self


class ReadOnlyBucket(ReadOnlyObjects):
    """A whole bucket: what is said of it, and its shards."""

    def check_readable(self) -> None:
        if self._objects.get(_DIVISION) is None:
            raise InvalidArgument(f"{self.path}: there is no {_DIVISION}, so no broker was ever started on it")

    def part(self, name: str) -> ReadableStorage:
        number = inside(name).removeprefix(_SHARD)
        if name.startswith(_SHARD) and number.isdecimal():
            return ReadOnlyShard(self._objects.part(f"{name}/"), int(number), self._base)
        return super().part(name)


class ReadOnlyShard(ReadOnlyObjects):
    """A shard as it was at one moment; one that nobody has owned yet is empty."""

    def __init__(self, objects: ObjectStore, number: int, base: ObjectStore | None = None) -> None:
        super().__init__(objects, base)
        self._number = number
        self._found = self._read()

    def _read(self) -> Found:
        found: Found = carry_out(read(self._number), self._objects, lambda _: None)
        state = decode_state(found.checkpoint, self.path)
        self._checkpoint = state.checkpoint
        self._parts: dict[int, list[JournalObject]] = {}
        self._pieces: dict[int, bytearray] = {}
        for bundle in state.bundles:
            self._parts[bundle.sequence] = [JournalObject(bundle.sequence, 0, bundle.size_bytes, bundle.name, 0)]
        for piece in state.unbundled(found.pieces):
            end = piece.position + len(piece.body)
            part = JournalObject(piece.sequence, piece.position, end, piece_name(piece.mark), PIECE_HEADER_BYTES)
            self._parts.setdefault(piece.sequence, []).append(part)
            content = self._pieces.setdefault(piece.sequence, bytearray())
            content[piece.position :] = piece.body
        self.epoch = found.end.epoch
        return found

    def look_again(self) -> bool:
        before, self._found = self._found, self._read()
        return (before.name, before.end) != (self._found.name, self._found.end)

    def open(self, name: str) -> File:
        sequence = _sequence(name)
        if sequence in self._pieces:
            return ReadOnlyContent(self._pieces[sequence])
        if sequence in self._parts:
            return ObjectsFile(self._objects, self._parts[sequence], _AHEAD_BYTES)
        if name == _CHECKPOINT and self._checkpoint:
            return ReadOnlyContent(bytearray(self._checkpoint))
        return super().open(name)

    def list(self, directory: str) -> list[str]:
        if directory == _JOURNAL:
            return [file_name(sequence).removeprefix(f"{_JOURNAL}/") for sequence in sorted(self._parts)]
        if not directory:
            return [_CHECKPOINT] if self._checkpoint else []
        return super().list(directory)

    def journal_objects(self, sequences: Iterable[int]) -> tuple[JournalObject, ...]:
        """Where the bytes of journal files lie, for another process that reads them soon."""
        return tuple(part for sequence in sorted(set(sequences)) for part in self._parts.get(sequence, ()))


class PlannedJournal(ReadOnlyObjects):
    """The journal files of a shard, by the objects that were found to have them: nothing is looked up again."""

    def __init__(self, objects: ObjectStore, parts: Iterable[JournalObject]) -> None:
        super().__init__(objects)
        self._parts: dict[int, list[JournalObject]] = {}
        for part in parts:
            self._parts.setdefault(part.sequence, []).append(part)

    def open(self, name: str) -> File:
        sequence = _sequence(name)
        if sequence in self._parts:
            return ObjectsFile(self._objects, self._parts[sequence], _AHEAD_BYTES)
        return super().open(name)


def _sequence(name: str) -> int:
    """Of a journal file; 0 if it is none."""
    directory, _, base = name.rpartition("/")
    return (sequence_of(base) or 0) if directory == _JOURNAL else 0
