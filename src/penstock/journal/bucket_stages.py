"""Stages on a bucket: each object is created, and never put again.

    staging/<file>/<part>     bytes of the file, in order; ten digits, from 0; large stages only
    staging/<file>.sealed     the file, or what its parts are: "PENPARTS" and msgpack of their sizes

A put that was answered late, or never, could bring back what the file was before. And what is staged needs little
memory, however much it is. Without the second object it is a stage that was not sealed, and is lost.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence

import msgspec

from penstock.model.errors import CorruptData
from penstock.storage.interface import Buffer
from penstock.storage.persistent import PersistentObjects

PART_BYTES, _LEAST_BYTES = 8 << 20, 64 << 10
_MAGIC = b"PENPARTS"
_OPEN, _SEALED = ".open", ".sealed"


def folder_of(name: str) -> str:
    """Where the parts of a stage are, by the name of its file."""
    return f"{name.rpartition('.')[0]}/"


def _part_name(name: str, number: int) -> str:
    return f"{folder_of(name)}{number:010d}"


class StagePart(msgspec.Struct, frozen=True):
    """Some bytes of the file of a stage."""

    name: str
    """Of the object."""
    position: int
    end: int


def parts_of(name: str, content: bytes) -> list[StagePart] | None:
    """The parts of a sealed stage; None if its object is the file itself."""
    if not content.startswith(_MAGIC):
        return None
    try:
        sizes = msgspec.msgpack.decode(content[len(_MAGIC) :], type=list[int])
    except msgspec.MsgspecError as error:
        raise CorruptData(name, len(_MAGIC), f"it does not say what the parts of the stage are: {error}") from error
    ends = list(itertools.accumulate(sizes, initial=0))
    return [StagePart(_part_name(name, number), *ends[number : number + 2]) for number in range(len(sizes))]


def stage_files(entries: Iterable[str]) -> list[str]:
    """The files of stages, from the objects and folders in their directory."""
    found = set(entries)
    files = {entry for entry in found if entry.endswith((_OPEN, _SEALED))}
    folders = found - files - {name.rpartition(".")[0] for name in files}
    return sorted(files | {folder + _OPEN for folder in folders})


class OpenStage:
    """The file of a stage that is being filled: written at its end only, and not read."""

    overwrites = False

    def __init__(self, objects: PersistentObjects, name: str) -> None:
        self._objects, self._name = objects, name
        self._sizes: list[int] = []  # of the parts that are there
        self._put_bytes = 0
        self._rest = bytearray()
        self._lock = threading.Lock()  # of what is above
        self._putting = threading.Lock()

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)
        with self._lock:
            start = position - self._put_bytes
            assert 0 <= start <= len(self._rest), "what is a part is not written any more"
            self._rest[start : start + len(data)] = data
        return position + len(data)

    def read(self, position: int, length: int) -> bytes:
        raise NotImplementedError("a stage is read when it is sealed")

    def truncate(self, length: int) -> None:
        with self._lock:
            assert length >= self._put_bytes
            del self._rest[length - self._put_bytes :]

    def sync(self) -> None:
        """Put what is there, unless it is little: that is put by `seal`."""
        with self._putting:
            while len(self._rest) >= _LEAST_BYTES:
                self._put(bytes(self._rest[:PART_BYTES]))

    def seal(self, name: str) -> None:
        """Put what is left, and that it is complete."""
        with self._putting:
            if self._sizes and self._rest:
                self._put(bytes(self._rest))
            whole = _MAGIC + msgspec.msgpack.encode(self._sizes) if self._sizes else bytes(self._rest)
            self._objects.make(name, whole)

    def _put(self, data: bytes) -> None:
        self._objects.make(_part_name(self._name, len(self._sizes)), data)
        with self._lock:
            self._sizes.append(len(data))
            self._put_bytes += len(data)
            del self._rest[: len(data)]

    def size(self) -> int:
        with self._lock:
            return self._put_bytes + len(self._rest)

    def close(self) -> None:
        """There is no descriptor to close."""
