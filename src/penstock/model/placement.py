"""Which shard a topic lives in: by its name alone, so that brokers and clients agree without asking.

Each shard has a weight for each name, and the highest wins (rendezvous hashing). The weights are part of the format of
a data directory: they never change.
"""

from __future__ import annotations

import functools
import hashlib

from penstock.model.names import DEAD_LETTERS

SHARDS_MAX = 1024
_KNOWN_NAMES = 1 << 16  # more than a process works with at a time
_MASK = (1 << 64) - 1


@functools.lru_cache(_KNOWN_NAMES)
def shard_of(topic: str, shards: int) -> int:
    """The shard of a topic, which is that of its dead letters too."""
    if shards == 1:
        return 0
    name = topic
    while name.endswith(DEAD_LETTERS):
        name = name.removesuffix(DEAD_LETTERS)
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())
    return max(range(shards), key=lambda shard: weight(seed, shard))


def weight(seed: int, number: int) -> int:
    """How strongly something wants a place: a number of 64 bits that looks like chance, always the same."""
    mixed = (seed ^ (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
    return mixed ^ mixed >> 31
