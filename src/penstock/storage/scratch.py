"""A storage whose changes stay in memory, over one that is only read: a broker on it leaves no trace.

So whoever only looks at what others own sees what a broker would see, with all that this does when it opens.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from penstock.storage.content import ContentFile
from penstock.storage.interface import Buffer, File, Storage, inside

_ROOM_BYTES = 1 << 60


class ScratchFile(ContentFile):
    """A file that was written here."""

    overwrites = False

    def sync(self) -> None:
        """It is in memory only."""


class _Changed:
    """A file from below, of which a copy is made when it is changed."""

    overwrites = False

    def __init__(self, storage: ScratchStorage, name: str, below: File) -> None:
        self._storage, self._name = storage, name
        self._file = below

    def _own(self) -> File:
        if not isinstance(self._file, ScratchFile):
            self._file = self._storage.copy(self._name, self._file)
        return self._file

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        return self._own().write(position, buffers)

    def read(self, position: int, length: int) -> bytes:
        return self._file.read(position, length)

    def sync(self) -> None:
        """It is in memory only, or nothing was written."""

    def truncate(self, length: int) -> None:
        self._own().truncate(length)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class ScratchStorage:
    """Has what is below until it is changed here."""

    epoch = 0
    remote = False

    def __init__(self, below: Storage) -> None:
        self._below = below
        self._contents: dict[str, bytearray | None] = {}  # None: it is removed
        self._others: dict[str, ScratchStorage] = {}

    @property
    def path(self) -> str | None:
        """Of what is below."""
        return self._below.path

    @property
    def base_path(self) -> str | None:
        return self._below.base_path

    def create(self, name: str) -> File:
        content = self._contents[inside(name)] = bytearray()
        return ScratchFile(content)

    def copy(self, name: str, file: File) -> File:
        """Have a file of below here, to be changed."""
        content = self._contents[name] = bytearray(file.read(0, file.size()))
        return ScratchFile(content)

    def open(self, name: str) -> File:
        if name not in self._contents:
            return _Changed(self, name, self._below.open(name))
        content = self._contents[name]
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return ScratchFile(content)

    def rename(self, old: str, new: str) -> None:
        file = self.open(old)
        if old not in self._contents:
            self.copy(old, file)
        self._contents[inside(new)], self._contents[old] = self._contents[old], None

    def remove(self, name: str) -> None:
        self._contents[inside(name)] = None

    def outdate(self, names: Sequence[str]) -> None:
        """They are removed one by one."""

    def remove_due(self) -> bool:
        return False

    def walk(self, directory: str) -> Sequence[str]:
        own = {name: content for name, content in self._contents.items() if name.startswith(f"{directory}/")}
        made = {name for name, content in own.items() if content is not None}
        return sorted((set(self._below.walk(directory)) - set(own)) | made)

    def list(self, directory: str) -> list[str]:
        prefix = f"{directory}/" if directory else ""
        own = {name: content for name, content in self._contents.items() if name.startswith(prefix)}
        gone = {name.removeprefix(prefix) for name, content in own.items() if content is None}
        made = {name.removeprefix(prefix).partition("/")[0] for name, content in own.items() if content is not None}
        return sorted((set(self._below.list(directory)) - gone) | made)

    def sync_directory(self, directory: str) -> None:
        """It is in memory only."""

    def free_bytes(self) -> int:
        return _ROOM_BYTES

    def elsewhere(self, path: str) -> ScratchStorage:
        if path not in self._others:
            self._others[path] = ScratchStorage(self._below.elsewhere(path))
        return self._others[path]

    def part(self, name: str) -> ScratchStorage:
        return ScratchStorage(self._below.part(name))

    def lock(self) -> None:
        """Nobody else has what is here."""

    def close(self) -> None:
        """There is no lock to let go."""

    def prove(self) -> None:
        """Nobody else has it."""

    def abandon(self) -> ScratchStorage:
        return self
