"""Bytes in memory, read and written as a file is: what files of a bucket have of one, and those of a memory disk."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.storage.interface import Buffer


class ContentFile:
    """A file on bytes that others may have open too; it has no sync of its own."""

    def __init__(self, content: bytearray) -> None:
        self.content = content

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)
        if data and position > len(self.content):
            self.content.extend(bytes(position - len(self.content)))
        self.content[position : position + len(data)] = data
        return position + len(data)

    def read(self, position: int, length: int) -> bytes:
        return bytes(self.content[position : position + length])

    def truncate(self, length: int) -> None:
        del self.content[length:]

    def size(self) -> int:
        return len(self.content)

    def close(self) -> None:
        """There is no descriptor to close."""
