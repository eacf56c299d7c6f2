"""Counting the elements of msgpack before it is decoded (see `bounds`)."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.model.bounds import MEMORY_BYTES, MEMORY_FACTOR, check_memory

Packed = bytes | memoryview

_POINTER = 8  # to each object, in whatever holds it
_CONTAINER, _ENTRY, _TEXT, _NUMBER = 80, 160, 72, 32


def array_length(packed: Packed) -> int | None:
    """How many elements an array has according to its header; None for anything else."""
    return _length(packed, 0x90, 0xDC, 0xDD)


def map_length(packed: Packed) -> int:
    """How many entries a map has according to its header; 0 for anything else."""
    return _length(packed, 0x80, 0xDE, 0xDF) or 0


def _length(packed: Packed, fixed: int, short: int, long: int) -> int | None:
    first = packed[0] if packed else 0xC0
    if fixed <= first < fixed + 16:
        return first - fixed
    if first == short:
        return int.from_bytes(packed[1:3])
    return int.from_bytes(packed[1:5]) if first == long else None


def map_memory_bytes(entries: int) -> int:
    """The most memory that a map of texts takes, without the bytes of its texts."""
    return _CONTAINER + _POINTER + _ENTRY * entries


def check_parts(what: str, packed: Packed) -> None:
    """Raise LimitExceeded if decoding this would take more memory than the rule allows, whatever it contains.

    The elements of an array or a map directly follow its header, so that no recursion is needed.
    """
    place, end, memory = 0, len(packed), 0
    limit = MEMORY_FACTOR * end + MEMORY_BYTES
    while place < end and memory <= limit:
        kind = _KINDS[packed[place]]
        memory += kind.memory
        if kind.length_bytes:
            length = int.from_bytes(packed[place + 1 : place + 1 + kind.length_bytes])
            memory += kind.memory_each * length
            place += length if kind.has_content else 0
        place += kind.head_bytes
    check_memory(what, end, memory)


class _Kind(NamedTuple):
    """The type of an element, by its first byte."""

    memory: int = _POINTER
    head_bytes: int = 1
    length_bytes: int = 0
    has_content: bool = False
    memory_each: int = 0
    """For each byte of the content, or each entry."""


def _text(head_bytes: int, length_bytes: int = 0) -> _Kind:
    return _Kind(_TEXT + _POINTER, head_bytes, length_bytes, has_content=True, memory_each=1)


def _array(length_bytes: int = 0) -> _Kind:
    return _Kind(_CONTAINER + _POINTER, 1 + length_bytes, length_bytes)


def _map(length_bytes: int = 0, entries: int = 0) -> _Kind:
    return _Kind(map_memory_bytes(entries), 1 + length_bytes, length_bytes, memory_each=_ENTRY)


def _number(size_bytes: int) -> _Kind:
    return _Kind(_NUMBER + _POINTER, 1 + size_bytes)


_KINDS: Final = (
    *(_Kind(),) * 0x80,  # small numbers
    *(_map(entries=entries) for entries in range(16)),
    *(_array(),) * 16,
    *(_text(1 + length) for length in range(32)),
    *(_Kind(),) * 4,  # nil, what is never used, false, true
    *(_text(1 + width, width) for width in (1, 2, 4)),  # bytes
    *(_text(2 + width, width) for width in (1, 2, 4)),  # extensions
    *map(_number, (4, 8)),
    *map(_number, (1, 2, 4, 8)),
    *map(_number, (1, 2, 4, 8)),
    *(_text(2 + length) for length in (1, 2, 4, 8, 16)),  # extensions
    *(_text(1 + width, width) for width in (1, 2, 4)),
    *map(_array, (2, 4)),
    *map(_map, (2, 4)),
    *(_Kind(),) * 32,  # small numbers below 0
)
