"""Who has which shard: a pure function of who is there and who has what now."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from penstock.model.placement import weight


def assign(shards: int, members: Iterable[str], owners: Mapping[int, str]) -> dict[int, str]:
    """The member that ought to have each shard; empty if there is no member.

    Nobody has two more than anybody else, and no shard moves that need not. Members with the same view agree,
    whatever the order in which they learned it.
    """
    seeds = {member: _seed(member) for member in sorted(set(members))}
    if not seeds:
        return {}
    held: dict[str, list[int]] = {member: [] for member in seeds}
    for shard in range(shards):
        if owners.get(shard) in held:
            held[owners[shard]].append(shard)
    least, larger = divmod(shards, len(seeds))
    room: dict[str, int] = {}
    for place, member in enumerate(sorted(seeds, key=lambda member: (-len(held[member]), member))):
        room[member] = least + (place < larger)  # who has many keeps one more: fewest moves
    found: dict[int, str] = {}
    for member, some in held.items():
        some.sort(key=lambda shard: weight(seeds[member], shard), reverse=True)
        found.update(dict.fromkeys(some[: room[member]], member))
        room[member] -= min(len(some), room[member])
    for shard in range(shards):
        if shard not in found:
            taker = max((m for m in seeds if room[m]), key=lambda member: weight(seeds[member], shard))
            found[shard] = taker
            room[taker] -= 1
    return {shard: found[shard] for shard in range(shards)}


def rank(shard: int, members: Iterable[str]) -> list[str]:
    """The members in the order in which they ought to have a shard, where nothing else speaks for one of them."""
    return sorted(set(members), key=lambda member: (-weight(_seed(member), shard), member))


def _seed(member: str) -> int:
    return int.from_bytes(hashlib.blake2b(member.encode(), digest_size=8).digest())
