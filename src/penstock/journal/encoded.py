"""A group on its way to the disk."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from google_crc32c import value as crc32c

from penstock.journal.commit import Block
from penstock.journal.layout import body_crc, encode_entry
from penstock.model.stored import Place


class Encoded:
    """The blocks of a group as bytes: their lines in its directory, and their bodies."""

    __slots__ = ("_crcs", "_lengths", "buffers", "lines", "size_bytes")

    def __init__(self, blocks: Iterable[Block]) -> None:
        self.buffers: list[bytes] = []
        self.lines: list[bytes] = []
        self._lengths: list[int] = []
        self._crcs: list[int] = []
        for block in blocks:
            body = block.encode()
            if len(body) == 1:
                length, crc = len(body[0]), crc32c(body[0])
            else:
                length, crc = sum(map(len, body)), body_crc(body)
            self.buffers += body
            self._lengths.append(length)
            self._crcs.append(crc)
            self.lines.append(
                encode_entry(
                    block.kind,
                    block.flags,
                    block.partition,
                    block.topic,
                    block.base,
                    block.timestamp_us,
                    block.count,
                    length,
                    crc,
                )
            )
        self.size_bytes = sum(self._lengths)

    def places(self, sequence: int, end: int) -> Iterator[Place]:
        """Where the bodies are, if the last one ends there in this file."""
        positions = itertools.accumulate(self._lengths, initial=end - self.size_bytes)
        return zip(itertools.repeat(sequence), positions, self._lengths, self._crcs, strict=False)
