"""A disk that fails as real disks do.

It keeps two states of everything: what the process sees, and what is certainly on disk. `crash` discards the first, and
keeps an arbitrary part of the unsynced writes: some whole, some torn in the middle, some not at all, in any order; the
same for unsynced creates, renames and removes. All choices come from a seed.

    storage = FaultyStorage(seed=7)
    ...                            # run a broker on it
    storage = storage.crash()      # power cut: what a new broker would find

`cut_power_after(n)` stops the disk in the middle of what the broker is doing. `fail(operation, error)` makes operations
fail, once or always. A failed sync forgets that the writes were not on disk, as Linux does: a later sync that succeeds
says nothing about them.

The parts of a storage (shards) share its power, its faults and its seed; `crash_part` loses one of them alone.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections.abc import Callable, Sequence

from penstock.storage.interface import Buffer
from penstock.testing.memory import MemoryFile, MemoryStorage

_SECTOR = 512
_CHANGES = ("write", "sync", "truncate", "create", "rename", "remove", "sync_directory")

Change = tuple[str, str, str, "Inode | None"]  # operation, name, new name, file


class Inode:
    """The bytes of one file: as seen, as durable, and the writes between the two."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.durable = bytearray()
        self.unsynced: list[tuple[int, bytes]] = []  # (position, data); data b"" is a cut at the position


class FaultyFile(MemoryFile):
    """An open file of a FaultyStorage."""

    def __init__(self, storage: FaultyStorage, name: str, inode: Inode) -> None:
        super().__init__(inode.seen)
        self._storage, self._name, self._inode = storage, name, inode

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)
        room = self._storage.room_for(position + len(data) - len(self.content))
        if room < 0:  # as on a full disk: a part is written, then comes the error
            self._store(position, data[: max(0, len(data) + room)])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._name)
        try:
            self._storage.check("write", self._name)
        except OSError:
            part = self._storage.random.choice((0, self._storage.random.randrange(len(data) + 1), len(data)))
            self._store(position, data[:part])
            raise
        self._store(position, data)
        return position + len(data)

    def _store(self, position: int, data: bytes) -> None:
        if data:
            super().write(position, [data])
            self._inode.unsynced.append((position, data))

    def read(self, position: int, length: int) -> bytes:
        self._storage.check("read", self._name)
        return super().read(position, length)

    def truncate(self, length: int) -> None:
        self._storage.check("truncate", self._name)
        super().truncate(length)
        self._inode.unsynced.append((length, b""))

    def sync(self) -> None:
        try:
            self._storage.check("sync", self._name)
        except OSError:
            if not self._storage.crashed:
                self._inode.unsynced.clear()
            raise
        for position, data in self._inode.unsynced:
            _apply(self._inode.durable, position, data)
        self._inode.unsynced.clear()


class FaultyStorage(MemoryStorage):
    """Files that lose what was not synced, and fail on request."""

    def __init__(self, seed: int = 0, capacity_bytes: int = 1 << 40) -> None:
        super().__init__(capacity_bytes)
        self.random = random.Random(seed)
        self._inodes: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._unsynced_names: list[Change] = []
        self._faults: dict[str, tuple[Callable[[str], bool], int, bool]] = {}
        self._operations_left: int | None = None
        self._is_cut = False
        self._place = ""  # of a part in its whole

    @property
    def crashed(self) -> bool:
        """Whether the power is cut, here or for the whole that this is a part of."""
        return self._is_cut or (isinstance(self.whole, FaultyStorage) and self.whole.crashed)

    def fail(self, operation: str, error: int, *, always: bool = False, name_contains: str = "") -> None:
        """Make the next `write`, `sync`, `read`, `truncate`, `create`, `rename` or `sync_directory` fail (or all)."""
        self._faults[operation] = (lambda name: name_contains in name, error, always)

    def cut_power_after(self, operations: int) -> None:
        """Allow this many more changes, then fail everything: a crash in the middle of an operation."""
        self._operations_left = operations

    def heal(self) -> None:
        """Cancel all requested failures."""
        self._faults.clear()

    def flip_bit(self, name: str, position: int, bit: int = 0) -> None:
        """Bit rot: change one bit of a file, as seen and as durable."""
        inode = self._inodes[name]
        inode.seen[position] ^= 1 << bit
        if position < len(inode.durable):
            inode.durable[position] ^= 1 << bit

    def crash(self) -> FaultyStorage:
        """Cut the power; returns the storage as the next process finds it. This one fails from now on."""
        self._is_cut = True
        survivor = FaultyStorage(self.random.randrange(1 << 62), self.capacity_bytes)
        names = dict(self._durable_names)
        for change in self._unsynced_names:
            if self.random.random() < 0.5:
                _apply_change(names, change)
        copies = {inode: self._survivor_of(inode) for inode in dict.fromkeys(names.values())}
        names = {name: copies[inode] for name, inode in names.items()}
        survivor._inodes, survivor._durable_names = dict(names), dict(names)
        survivor.contents = {name: inode.seen for name, inode in names.items()}
        survivor.others = {
            path: other.crash() if isinstance(other, FaultyStorage) else other for path, other in self.others.items()
        }
        return survivor

    def crash_part(self, name: str) -> None:
        """Cut the power of one part: whoever had it open fails from now on, and the next one finds what survived."""
        self.others[name] = self.part(name).crash()

    def part(self, name: str) -> FaultyStorage:
        made = super().part(name)
        assert isinstance(made, FaultyStorage)
        made.random, made._place = self.random, f"{name}/"  # noqa: SLF001 - it is of this class
        return made

    def _survivor_of(self, inode: Inode) -> Inode:
        """A copy of the file with an arbitrary part of its unsynced writes."""
        survivor = Inode()
        survivor.durable = bytearray(inode.durable)
        for position, data in inode.unsynced:
            fate = self.random.random()
            if fate < 0.4:
                _apply(survivor.durable, position, data)
            elif fate < 0.8:  # torn: each sector of it on its own; a cut is done or not
                for start in range(0, len(data), _SECTOR):
                    if self.random.random() < 0.5:
                        _apply(survivor.durable, position + start, data[start : start + _SECTOR])
        survivor.seen = bytearray(survivor.durable)
        return survivor

    def check(self, operation: str, name: str) -> None:
        """Raise the error requested with `fail`; called before every operation."""
        if isinstance(self.whole, FaultyStorage):
            self.whole.check(operation, self._place + name)
        if self._operations_left is not None and operation in _CHANGES:
            self._is_cut = self._is_cut or self._operations_left == 0
            self._operations_left -= 1
        if self.crashed:
            raise OSError(errno.EIO, "the power is cut", name)
        if operation in self._faults:
            matches, error, always = self._faults[operation]
            if matches(name):
                if not always:
                    del self._faults[operation]
                raise OSError(error, os.strerror(error), name)

    def room_for(self, growth_bytes: int) -> int:
        """How many bytes would be free after growing by this many."""
        return self.free_bytes() - max(0, growth_bytes)

    def create(self, name: str) -> FaultyFile:
        self.check("create", name)
        inode = self._inodes[name] = Inode()
        self.contents[name] = inode.seen
        self._unsynced_names.append(("create", name, "", inode))
        return FaultyFile(self, name, inode)

    def open(self, name: str) -> FaultyFile:
        self.check("open", name)
        super().open(name)
        return FaultyFile(self, name, self._inodes[name])

    def rename(self, old: str, new: str) -> None:
        self.check("rename", old)
        super().rename(old, new)
        inode = self._inodes[new] = self._inodes.pop(old)
        self._unsynced_names.append(("rename", old, new, inode))

    def remove(self, name: str) -> None:
        self.check("remove", name)
        super().remove(name)
        self._inodes.pop(name, None)
        self._unsynced_names.append(("remove", name, "", None))

    def sync_directory(self, directory: str) -> None:
        self.check("sync_directory", directory)
        later: list[Change] = []
        for change in self._unsynced_names:
            if posixpath.dirname(change[1]) == directory:
                _apply_change(self._durable_names, change)
            else:
                later.append(change)
        self._unsynced_names = later


def _apply(content: bytearray, position: int, data: bytes) -> None:
    if data:
        MemoryFile(content).write(position, [data])
    else:
        del content[position:]


def _apply_change(names: dict[str, Inode], change: Change) -> None:
    operation, name, new_name, inode = change
    if operation == "create" and inode is not None:
        names[name] = inode
    elif operation == "rename" and inode is not None:
        names.pop(name, None)
        names[new_name] = inode
    else:
        names.pop(name, None)
