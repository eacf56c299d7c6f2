"""A disk in memory: fast, and gone when the process ends."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from penstock.model.errors import DirectoryLocked
from penstock.storage.content import ContentFile
from penstock.storage.interface import inside


class MemoryFile(ContentFile):
    """An open file; several may be open on the same bytes."""

    overwrites = True

    def sync(self) -> None:
        """There is nothing to sync."""


class MemoryStorage:
    """Files as byte arrays by name. Closing a broker and opening another on it is a clean restart."""

    path: str | None = None
    epoch = 0
    remote = False
    base_path: str | None = None

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        self.capacity_bytes = capacity_bytes
        self.contents: dict[str, bytearray] = {}
        self._locked = False
        self.others: dict[str, MemoryStorage] = {}
        self.whole: MemoryStorage | None = None  # that this is a part of

    def create(self, name: str) -> MemoryFile:
        self.contents[inside(name)] = bytearray()
        return MemoryFile(self.contents[name])

    def open(self, name: str) -> MemoryFile:
        if name not in self.contents:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return MemoryFile(self.contents[name])

    def rename(self, old: str, new: str) -> None:
        if old not in self.contents:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self.contents[inside(new)] = self.contents.pop(old)

    def remove(self, name: str) -> None:
        self.contents.pop(name, None)

    def outdate(self, names: Sequence[str]) -> None:
        """They are removed one by one."""

    def remove_due(self) -> bool:
        return False

    def walk(self, directory: str) -> Sequence[str]:
        return sorted(name for name in self.contents if name.startswith(f"{directory}/"))

    def list(self, directory: str) -> list[str]:
        prefix = f"{directory}/" if directory else ""
        return sorted({name[len(prefix) :].split("/")[0] for name in self.contents if name.startswith(prefix)})

    def sync_directory(self, directory: str) -> None:
        """There is nothing to sync."""

    def free_bytes(self) -> int:
        return self.capacity_bytes - sum(map(len, self.contents.values()))

    def elsewhere(self, path: str) -> MemoryStorage:
        if self.whole is not None:
            return self.whole.elsewhere(path)
        if path not in self.others:
            self.others[path] = type(self)()
        return self.others[path]

    def part(self, name: str) -> MemoryStorage:
        made = self.elsewhere(inside(name))
        made.whole = self
        return made

    def lock(self) -> None:
        if self._locked:
            raise DirectoryLocked("this memory storage is in use by another broker")
        self._locked = True

    def close(self) -> None:
        self._locked = False

    def prove(self) -> None:
        """No other process takes the lock of one that runs."""

    def abandon(self) -> MemoryStorage:
        self.close()
        return self
