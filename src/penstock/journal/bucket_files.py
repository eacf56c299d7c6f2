"""Files of a shard on a bucket: what is written is in memory; a sync makes it an object, or a piece of the chain."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Sequence

from penstock.journal.chain_layout import Mark, Piece
from penstock.storage.content import ContentFile
from penstock.storage.interface import Buffer
from penstock.storage.object_cache import ObjectCache
from penstock.storage.objects import ObjectStore, Range

_PART_BYTES = 1 << 20
Append = Callable[[int, int, bytes], Mark]
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
        self._bundle: BundleFile | None = None
        self._starts: list[int] = []  # of its pieces in it
        self._marks: list[Mark] = []

    def restore(self, piece: Piece) -> None:
        """Take a piece that is there already."""
        self.first = self.first or piece.mark
        self._note(piece.position, piece.mark)
        self.synced = self.write(piece.position, [piece.body])

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        assert self._bundle is None, "a complete file is not written any more"
        return super().write(position, buffers)

    def sync(self) -> None:
        if len(self.content) > self.synced:
            self.first = self.first or self._end()
            self._note(self.synced, self._append(self._sequence, self.synced, bytes(self.content[self.synced :])))
            self.synced = len(self.content)

    def _note(self, start: int, mark: Mark) -> None:
        self._starts.append(start)
        self._marks.append(mark)

    def piece_at(self, position: int) -> Mark:
        """The piece that a byte is in."""
        return self._marks[bisect_right(self._starts, position) - 1]

    def truncate(self, length: int) -> None:
        if length < self.synced:
            raise OSError(errno.EROFS, "pieces of a chain cannot be cut", f"journal file {self._sequence}")
        super().truncate(length)

    def become(self, bundle: BundleFile) -> None:
        """It is complete, and a bundle: its bytes are read from there, and need no memory here."""
        assert bundle.size() == self.synced
        self._bundle = bundle
        self.content = bytearray()

    def read(self, position: int, length: int) -> bytes:
        content = self.content  # looked at first: it goes when there is a bundle
        if self._bundle is not None:
            return self._bundle.read(position, length)
        return bytes(content[position : position + length])

    def size(self) -> int:
        return len(self.content) if self._bundle is None else self._bundle.size()

    def durable(self) -> bytes:
        """All of it that is in pieces."""
        return bytes(self.content[: self.synced])


class ReadFile:
    """A file that is one object, complete: parts of it are read when they are needed, and it is never written."""

    overwrites = False

    def __init__(self, cache: ObjectCache, objects: ObjectStore, name: str) -> None:
        self._cache, self._objects, self._name = cache, objects, name

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        raise OSError(errno.EROFS, "a complete file is not written any more", self._name)

    def sync(self) -> None:
        """Nothing was written."""

    def truncate(self, length: int) -> None:
        raise OSError(errno.EROFS, "a complete file is not cut", self._name)

    def close(self) -> None:
        """There is no descriptor to close."""

    def _read(self, ranges: Sequence[Range]) -> bytes:
        """The bytes of ranges, one after the other."""
        found = [data for data in self._cache.read(self._objects, ranges) if data is not None]
        if len(found) < len(ranges):
            raise FileNotFoundError(errno.ENOENT, "no such object", self._name)
        return found[0] if len(found) == 1 else b"".join(found)


class BundleFile(ReadFile):
    """A journal file that is one object: read in parts of a megabyte, as blocks are small and lie together."""

    def __init__(self, cache: ObjectCache, objects: ObjectStore, name: str, size_bytes: int) -> None:
        super().__init__(cache, objects, name)
        self._size_bytes = size_bytes
        self._last = (0, b"")  # the part that was read last, and where it begins: blocks are read one after the other

    def read(self, position: int, length: int) -> bytes:
        end = min(position + length, self._size_bytes)
        first, data = self._last
        if not first <= position <= end <= first + len(data):
            first = position - position % _PART_BYTES
            parts = self.parts(first, end)
            data = self._read(parts) if parts else b""
            if len(parts) == 1:
                self._last = first, data
        return data[position - first : end - first]

    def keep(self, content: bytes) -> None:
        """All of it was just written: have what is wanted next in the cache."""
        for part in self.parts():
            self._cache.keep(self._objects, part, content[part.start : part.start + part.length])

    def parts(self, start: int = 0, end: int | None = None) -> list[Range]:
        """The parts that begin from here to there."""
        size_bytes = self._size_bytes
        starts = range(start, size_bytes if end is None else end, _PART_BYTES)
        return [Range(self._name, first, min(_PART_BYTES, size_bytes - first)) for first in starts]

    def size(self) -> int:
        return self._size_bytes


class SegmentFile(ReadFile):
    """A segment: the footer and row groups that are asked for. That it is not there is found out by reading."""

    _content: bytes | None = None

    def read(self, position: int, length: int) -> bytes:
        if self._content is not None:
            return self._content[position : position + length]
        return self._read([Range(self._name, position, length)])

    def size(self) -> int:
        """Who asks wants all of it: it is read, as nothing else says how much that is."""
        if self._content is None:
            self._content = self._objects.get(self._name)
        if self._content is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", self._name)
        return len(self._content)


class WholeFile(ContentFile):
    """A file that is one object, put again by each sync; one that has no name yet is kept until it gets one."""

    overwrites = False

    def __init__(self, objects: ObjectStore, name: str | None, content: bytes = b"") -> None:
        super().__init__(bytearray(content))
        self._objects, self._name = objects, name

    def sync(self) -> None:
        if self._name is not None:
            self._objects.put(self._name, bytes(self.content))
