"""How much of something fits into a frame."""

from __future__ import annotations

from itertools import accumulate

from penstock.model.batch import Batch

ROW_BYTES = 32  # what a message takes beside its content


def fitting(batch: Batch, room_bytes: int) -> int:
    """How many of the first messages of a batch fit into so many bytes."""
    sizes = list(map(len, batch.values))
    if batch.keys is not None:
        sizes = [size + len(key or b"") for size, key in zip(sizes, batch.keys, strict=True)]
    if batch.headers is not None:
        sizes = [size + _headers_bytes(headers) for size, headers in zip(sizes, batch.headers, strict=True)]
    if sum(sizes) + ROW_BYTES * len(sizes) <= room_bytes:
        return len(sizes)
    return sum(1 for count, total in enumerate(accumulate(sizes), 1) if total + ROW_BYTES * count <= room_bytes)


def _headers_bytes(headers: dict[str, str] | None) -> int:
    return sum(len(name) + len(text) + 6 for name, text in headers.items()) if headers else 0
