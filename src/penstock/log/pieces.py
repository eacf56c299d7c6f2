"""What a checkpoint is made of: encoded pieces, most of which are kept from the one before."""

from __future__ import annotations

Pieces = list[bytes]
"""Encoded values, or the parts of one, in order; together they are msgpack."""
_ARRAY_32 = b"\xdd"


def array_head(length: int) -> bytes:
    """The head of an array whose elements are in the pieces behind it."""
    return _ARRAY_32 + length.to_bytes(4, "big")
