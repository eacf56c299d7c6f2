"""In a task: a stretch of a partition written to a file, and a file looked at again."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import google_crc32c
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.files.encoding import Form, columns_of, writer_of
from penstock.spark.files.whole import written_whole
from penstock.spark.filters import Wanted
from penstock.spark.options import ReadOptions
from penstock.spark.paths import path_of
from penstock.spark.slices import Span, read_span

_LOOK_BYTES = 4 << 20


class Written(msgspec.Struct, frozen=True):
    """The contents of a file; a file without messages is not written."""

    messages: int
    bytes: int = 0
    crc32c: int = 0


@dataclass(frozen=True)
class Chunk:
    """What goes into one file."""

    path: str
    span: Span
    chosen: pa.Array | None = None
    """The offsets that are wanted; None for all."""


def write_chunk(options: ReadOptions, form: Form, chunk: Chunk) -> Written:
    """Write a file; it is there when it is complete."""
    path = path_of(chunk.path)
    if chunk.chosen is not None and not len(chunk.chosen):
        path.unlink(missing_ok=True)
        return Written(0)
    messages = 0
    with written_whole(path) as file:
        counted = _Counted(file)
        writer = writer_of(form, counted)  # type: ignore[arg-type]
        for batch in _batches(options, form, chunk):
            messages += len(batch)
            writer.write(columns_of(batch, form, chunk.span.topic, chunk.span.partition))
        writer.close()
    return Written(messages, counted.size, counted.checksum)


def is_right(work: tuple[str, Written]) -> bool:
    """Whether a file is as it was written."""
    path, written = path_of(work[0]), work[1]
    if not written.messages:
        return not path.exists()
    checksum = size = 0
    if not isinstance(path, Path):
        with contextlib.suppress(FileNotFoundError):
            data = path.read_bytes()
            return (len(data), google_crc32c.value(data)) == (written.bytes, written.crc32c)
        return False
    try:
        with path.open("rb") as file:
            while data := file.read(_LOOK_BYTES):
                checksum, size = google_crc32c.extend(checksum, data), size + len(data)
    except OSError:
        return False
    return (size, checksum) == (written.bytes, written.crc32c)


def _batches(options: ReadOptions, form: Form, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    wanted = None
    if chunk.chosen is not None:
        places = pa.array(range(chunk.span.start, chunk.span.end), pa.int64())
        wanted = pc.is_in(places, value_set=chunk.chosen)
    for batch in read_span(options, chunk.span, form.read, Wanted()):
        kept = batch
        if wanted is not None:
            kept = batch.filter(wanted.take(pc.subtract(batch.column("offset"), chunk.span.start)))
        if len(kept):
            yield kept


class _Counted(io.RawIOBase):
    """A file that knows what went into it; whoever opened the file below closes that."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = self.checksum = 0

    def write(self, data: Any) -> int:
        plain = bytes(data)
        self._file.write(plain)
        self.size += len(plain)
        self.checksum = google_crc32c.extend(self.checksum, plain)
        return len(plain)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size
