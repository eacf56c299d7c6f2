"""Scanning a journal file from its first byte: what it holds, where it ends, and whether it is damaged."""

from __future__ import annotations

from typing import NamedTuple

from google_crc32c import value as crc32c

from penstock.journal.layout import (
    FILE_HEADER_BYTES,
    Group,
    bodies,
    claimed_bytes,
    decode_file_header,
    decode_group,
    mark_of,
)


class Damage(NamedTuple):
    """Bytes that were on disk and are not as they were written."""

    position: int
    problem: str


class Scan(NamedTuple):
    """What a journal file holds."""

    groups: list[Group]
    end: int  # after the last valid group
    torn_bytes: int  # after `end`: the start of a write that was never acknowledged
    damage: list[Damage]


def scan_journal(data: bytes, broker: bytes, sequence: int, durable_end: int = 0) -> Scan:
    """Every valid group of a file, in order.

    `durable_end` is what is known from elsewhere (the next file, a checkpoint) to have been on disk.
    If `damage` is not empty, the groups after it are listed too: they are valid, and a repair keeps them.
    """
    mark = mark_of(broker, sequence)
    groups: list[Group] = []
    damage: list[Damage] = []
    position = end = FILE_HEADER_BYTES
    header = decode_file_header(data)
    if header is None or (header.broker, header.sequence) != (broker, sequence):
        later = _find_group(data, 0, mark)
        if later is None and durable_end <= FILE_HEADER_BYTES:
            return Scan([], 0, 0, [])
        damage.append(Damage(0, "the file header does not match its checksum"))
    while True:
        group = decode_group(data, position, mark)
        if group is not None and _bodies_are_whole(data, group):
            groups.append(group)
            position = end = group.end
            continue
        later = _find_group(data, position, mark)
        if position >= durable_end and not _was_synced(data, position, mark, later):
            break
        damage.append(Damage(position, "a group of blocks does not match its checksum"))
        if later is None:
            break
        position = later
    return Scan(groups, end, 0 if damage else _torn_bytes(data, end, mark), damage)


def _bodies_are_whole(data: bytes, group: Group) -> bool:
    if group.end > len(data):
        return False
    return all(crc32c(data[place : place + entry.length]) == entry.crc for entry, place in bodies(group))


def _find_group(data: bytes, position: int, mark: int) -> int | None:
    """Where the next valid group after a position begins."""
    needle = mark.to_bytes(4, "little")
    place = data.find(needle, position + 1)
    while place >= 0:
        group = decode_group(data, place, mark)
        if group is not None and _bodies_are_whole(data, group):
            return place
        place = data.find(needle, place + 1)
    return None


def _was_synced(data: bytes, position: int, mark: int, later: int | None) -> bool:
    """Whether any valid group from `later` on says that the bytes at `position` were on disk."""
    while later is not None:
        group = decode_group(data, later, mark)
        if group is not None and group.synced > position:
            return True
        later = _find_group(data, later, mark)
    return False


def _torn_bytes(data: bytes, position: int, mark: int) -> int:
    """How many bytes of an unfinished group are at a position; the remains of a recycled file do not count."""
    start = data[position : position + 4]
    if not start or not mark.to_bytes(4, "little").startswith(start):
        return 0
    return min(claimed_bytes(data, position), len(data) - position)
