"""Files of a shard on a bucket: what is written is in memory; a sync makes it an object, or a piece of the chain."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from penstock.journal.chain_layout import Mark, Piece
from penstock.storage.content import ContentFile
from penstock.storage.interface import Buffer
from penstock.storage.objects import ObjectStore

Append = Callable[[int, int, bytes], object]
"""Add a piece to the chain: of which file, where in it, and its bytes."""


class PieceFile(ContentFile):
    """A journal file that is being written, or was: it grows at its end only, and what a sync covers is a piece."""

    overwrites = False

    def __init__(self, sequence: int, append: Append, end: Callable[[], Mark]) -> None:
        """`end`: of the chain, where its next piece will be."""
        super().__init__(bytearray())
        self._sequence, self._append, self._end = sequence, append, end
        self.synced = 0
        self.first: Mark | None = None
        """Where its first piece is, or will be."""

    def restore(self, piece: Piece) -> None:
        """Take a piece that is there already."""
        self.first = self.first or piece.mark
        self.synced = self.write(piece.position, [piece.body])

    def sync(self) -> None:
        if len(self.content) > self.synced:
            self.first = self.first or self._end()
            self._append(self._sequence, self.synced, bytes(self.content[self.synced :]))
            self.synced = len(self.content)

    def truncate(self, length: int) -> None:
        if length < self.synced:
            raise OSError(errno.EROFS, "pieces of a chain cannot be cut", f"journal file {self._sequence}")
        super().truncate(length)

    def durable(self) -> bytes:
        """All of it that is in pieces."""
        return bytes(self.content[: self.synced])


class BundleFile(ContentFile):
    """A journal file that is one object: read as a whole when it is first needed, and never written."""

    overwrites = False

    def __init__(self, objects: ObjectStore, name: str, size_bytes: int) -> None:
        super().__init__(bytearray())
        self._objects, self._name, self._size_bytes = objects, name, size_bytes

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        raise OSError(errno.EROFS, "a complete journal file is not written any more", self._name)

    def read(self, position: int, length: int) -> bytes:
        if not self.content:
            data = self._objects.get(self._name)
            if data is None:
                raise FileNotFoundError(errno.ENOENT, "no such object", self._name)
            self.content += data
        return super().read(position, length)

    def sync(self) -> None:
        """Nothing was written."""

    def truncate(self, length: int) -> None:
        raise OSError(errno.EROFS, "a complete journal file is not cut", self._name)

    def size(self) -> int:
        return self._size_bytes


class WholeFile(ContentFile):
    """A file that is one object, put again by each sync; one that has no name yet is kept until it gets one."""

    overwrites = False

    def __init__(self, objects: ObjectStore, name: str | None, content: bytes = b"") -> None:
        super().__init__(bytearray(content))
        self._objects, self._name = objects, name

    def sync(self) -> None:
        if self._name is not None:
            self._objects.put(self._name, bytes(self.content))
