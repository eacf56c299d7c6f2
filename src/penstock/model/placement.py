"""Which shard a topic lives in: by its name alone, so that brokers and clients agree without asking.

Each shard has a weight for each name, and the highest wins (rendezvous hashing). A topic that is spread has *slices*:
the shard with the highest weight has the first one, which makes it the topic's home, that with the next the second, and
so on; partitions are dealt to the slices in turn. All of this is part of the format of a data directory: it never
changes.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument
from penstock.model.names import DEAD_LETTERS

SHARDS_MAX = 1024
_SLICE = "#"  # in no name of a topic
_DIGITS_MAX = 4
_KNOWN_NAMES = 1 << 16  # more than a process works with at a time
_KNOWN_SPREADS = 1 << 12  # each with as many numbers as there are shards
_MASK = (1 << 64) - 1
_HASH_MIX = 0x9E3779B1  # spreads CRC-32 over the high bits, which choose the partition


@functools.lru_cache(_KNOWN_NAMES)
def shard_of(topic: str, shards: int) -> int:
    """The shard of a topic, which is that of its dead letters too, or of a slice of it."""
    if shards == 1:
        return 0
    name, number = parse_slice(topic)
    if number is not None:  # `shards_of` as many as there are, for its number says nothing of how many slices
        return shards_of(name, shards, shards)[number % shards]
    seed = _seed_of(topic)
    return max(range(shards), key=lambda shard: weight(seed, shard))


@functools.lru_cache(_KNOWN_SPREADS)
def shards_of(topic: str, slices: int, shards: int) -> tuple[int, ...]:
    """The shards of the slices of a topic, the first of which is that of `shard_of`."""
    seed = _seed_of(topic)
    return tuple(sorted(range(shards), key=lambda shard: -weight(seed, shard))[:slices])


def _seed_of(topic: str) -> int:
    return int.from_bytes(hashlib.blake2b(living(topic).encode(), digest_size=8).digest())


def living(topic: str) -> str:
    """The topic whose dead letters these are, or theirs; that itself is taken as it is."""
    while topic.endswith(DEAD_LETTERS):
        topic = topic.removesuffix(DEAD_LETTERS)
    return topic


def slice_name(topic: str, number: int) -> str:
    """One slice of a topic, as clients and processes ask for it: `orders#2`."""
    return f"{topic}{_SLICE}{number}"


def part_name(topic: str) -> str:
    """The slices of a topic that a process has, as other processes ask for them: `orders#`."""
    return f"{topic}{_SLICE}"


def is_slice(name: object) -> bool:
    """Whether a name asks for slices, and for no whole topic."""
    return isinstance(name, str) and _SLICE in name


def whole_name(name: str) -> str:
    """The topic whose slice is meant, or that is meant itself; what is no name is judged by others."""
    return name.partition(_SLICE)[0] if is_slice(name) else name


def parse_slice(name: str) -> tuple[str, int | None]:
    """The topic, and which slice of it is meant; None: all of it, or those that are there."""
    topic, _, number = name.partition(_SLICE)
    is_number = 0 < len(number) <= _DIGITS_MAX and number.isascii() and number.isdecimal()
    return topic, int(number) if is_number else None


class Place(NamedTuple):
    """Which shard this is, of how many."""

    number: int = 0
    shards: int = 1

    def slice_of(self, topic: str, slices: int) -> int:
        """Which slice of a topic is here; files that were moved by hand have one too, so that they can be read."""
        return shards_of(topic, self.shards, self.shards).index(self.number) % slices if self.shards > 1 else 0


ALONE = Place()


class Spread(NamedTuple):
    """How a topic is spread: into how many slices, and how many partitions are dealt to them in turn."""

    slices: int
    partitions: int

    def of_partition(self, partition: int) -> int:
        """The slice of a partition."""
        return partition % self.slices

    def of_key(self, key: bytes) -> int:
        """The slice of all messages of a key."""
        return self.of_partition(partition_of_key(key, self.partitions))

    def of_text(self, text: str) -> int:
        """The slice that a text chooses, always the same: a dedupe id, or who publishes what."""
        return self.of_partition(crc32(text.encode(errors="replace")) % self.partitions)

    def of_message(
        self, topic: str, partition: object, key: bytes | None, dedupe_id: str | None, origin: str | None = None
    ) -> int | None:
        """The slice of a message; None: any. `origin` is who publishes it, and its sequence, as text."""
        if partition is not None:
            check_partition(topic, self.partitions, partition)
            return self.of_partition(int(partition))  # type: ignore[call-overload]
        if key is not None:
            return self.of_key(key)
        text = dedupe_id if dedupe_id is not None else origin
        return None if text is None else self.of_text(text)


def rows_of_slices(
    topic: str,
    spread: Spread,
    count: int,
    partitions: Sequence[int | None] | None,
    keys: Sequence[bytes | None] | None,
    dedupe_ids: Sequence[str | None] | None,
    origin: str | None,
    turn: int,
) -> dict[int, Sequence[int]]:
    """Which of so many messages go to each slice; those that may go to any go to one together."""
    shared = turn % spread.slices if origin is None else spread.of_text(origin)
    if partitions is None and keys is None and dedupe_ids is None:
        return {shared: range(count)}
    nothing: list[None] = [None] * count
    rows: dict[int, list[int]] = {}
    for row, (partition, key, dedupe_id) in enumerate(
        zip(partitions or nothing, keys or nothing, dedupe_ids or nothing, strict=True)
    ):
        number = spread.of_message(topic, partition, key, dedupe_id)
        rows.setdefault(shared if number is None else number, []).append(row)
    return {**rows}


def check_partition(topic: str, partitions: int, partition: object) -> None:
    """Raise if the topic has no such partition."""
    if not isinstance(partition, int) or isinstance(partition, bool) or not 0 <= partition < partitions:
        raise InvalidArgument(f"{topic} has no partition {shown(partition)}: it has 0 to {partitions - 1}")


def share(limit: int, number: int, slices: int) -> int:
    """What a limit of a whole topic is for one slice, which has room for one at least."""
    return max(1, limit // slices + (number < limit % slices))


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition that owns a key: ranges of a hash, so that a partition can be split later."""
    mixed: int = crc32(key) * _HASH_MIX & 0xFFFFFFFF
    return mixed * partitions >> 32


def weight(seed: int, number: int) -> int:
    """How strongly something wants a place: a number of 64 bits that looks like chance, always the same."""
    mixed = (seed ^ (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
    return mixed ^ mixed >> 31
