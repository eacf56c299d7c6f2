"""What one member of a cluster does about shards: which it claims, and which it gives away.

Nobody decides for all. Each member knows who lives, and who has said to have which shard, and comes to the same answer
as the others that know the same. Where they do not, two may claim a shard, of which one gets it: the seal in the
shard's chain decides, and the epochs in it. So all of this is about speed, and never about safety.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from penstock.cluster.assigning import assign, rank
from penstock.cluster.members import SILENCE_S, Heartbeat, Members
from penstock.model.cluster_map import ClusterMap, ShardPlace

RANK_S = 0.7
"""How much longer the next in rank waits before it claims a shard that nobody has."""
_AGAIN_S = 1.0  # after a claim that failed
NOBODY = -1


class Claim(NamedTuple):
    """Take a shard, unless somebody has a later epoch of it than this."""

    shard: int
    dead_epoch: int


class Give(NamedTuple):
    """Hand a shard over that is here."""

    shard: int
    to: int


class _Sealed(NamedTuple):
    """For whom an epoch was begun, before they say that they have it; who does not say so in time is passed over."""

    epoch: int
    incarnation: str
    number: int
    """NOBODY: only the incarnation is known."""
    watched_s: float


@dataclass(slots=True)
class _Vacancy:
    """A shard that nobody has."""

    since_s: float
    tried_s: float = -math.inf


class Claiming:
    """The shards of a cluster, as one member knows them."""

    def __init__(self, shards: int, members: Members, balance_after_s: float) -> None:
        """`balance_after_s`: for how long nobody may have come or gone before shards move to be shared evenly."""
        self._count, self._members, self._balance_after_s = shards, members, balance_after_s
        self._sealed: dict[int, _Sealed] = {}
        self._ended: dict[int, int] = dict.fromkeys(range(shards), 0)  # the last epoch that is known to have begun
        self._vacant: dict[int, _Vacancy] = {}
        self._able: frozenset[int] = frozenset()
        self._changed_s = -math.inf
        self._wished_s: float | None = None  # when somebody asked for an even share that not all may have yet
        self.is_steady = False
        """Whether shards stay where somebody wished them, until members come or go."""
        self._wanted: dict[int, int] = {}  # where shards that are here are to go

    # What is known.

    def heard(self, shard: int, epoch: int, incarnation: str) -> None:
        """A seal was met: an epoch began, for a process that may say so soon, or that is not there any more."""
        self._note_seal(shard, _Sealed(epoch, incarnation, NOBODY, self._members.watched_s))

    def failed(self, shard: int, now_s: float) -> None:
        """A shard could not be claimed, or opened: it is tried again, by others too."""
        self._vacant.setdefault(shard, _Vacancy(now_s)).tried_s = now_s

    def _note_seal(self, shard: int, sealed: _Sealed) -> None:
        if 0 <= shard < self._count and sealed.epoch > self._ended[shard]:
            self._ended[shard] = sealed.epoch
            self._sealed[shard] = sealed
            self._vacant.pop(shard, None)

    def _owners(self) -> dict[int, tuple[int, int]]:
        """Epoch and member of each shard that somebody living has, or may be about to open."""
        living = self._members.living
        found: dict[int, tuple[int, int]] = {}
        for number, heartbeat in living.items():
            for shard, epoch in heartbeat.shards.items():
                if 0 <= shard < self._count:
                    found[shard] = max(found.get(shard, (0, NOBODY)), (epoch, number))
            for shard, (epoch, to) in heartbeat.given.items():
                self._note_seal(shard, _Sealed(epoch, "", to, self._members.watched_s))
        for shard, sealed in list(self._sealed.items()):
            if found.get(shard, (0, NOBODY))[0] >= sealed.epoch:
                del self._sealed[shard]
                continue
            found.pop(shard, None)  # whoever had it has it no more
            known = sealed.number if sealed.number != NOBODY else self._members.number_of(sealed.incarnation)
            is_in_time = self._members.watched_s - sealed.watched_s < SILENCE_S
            if is_in_time:  # also of one that seemed dead: whoever seals lives
                found[shard] = (sealed.epoch, NOBODY if known is None else known)
        return found

    def map(self) -> ClusterMap:
        """Where the shards are."""
        owners = self._owners()
        places = [ShardPlace(*owners.get(shard, (self._ended[shard], NOBODY))) for shard in range(self._count)]
        return ClusterMap(places, {n: each.address for n, each in self._members.living.items() if each.address})

    def lost(self) -> list[int]:
        """Shards that this member says to have, and another one has by a later epoch."""
        own = self._members.living.get(self._members.number)
        others = [each for number, each in self._members.living.items() if number != self._members.number]
        held = own.shards if own is not None else {}
        return [s for s, epoch in held.items() if any(other.shards.get(s, 0) > epoch for other in others)]

    # What is wanted.

    def move(self, shard: int, to: int) -> None:
        """Have a shard that is here go to another member."""
        self._wanted[shard], self.is_steady = to, True

    def balance(self) -> None:
        """Share the shards evenly as soon as that can be done, also with members that are just being noticed."""
        self.is_steady, self._wished_s = False, self._members.watched_s

    # What to do.

    def decide(self, now_s: float) -> list[Claim | Give]:
        """What this member does next; what takes time is asked for once, until it is told to have failed."""
        living = self._members.living
        own = living.get(self._members.number)
        self._note_change(living, now_s)
        owners = self._owners()
        for heartbeat in self._members.heard:
            for shard, epoch in heartbeat.shards.items():
                if shard in self._ended:
                    self._ended[shard] = max(self._ended[shard], epoch)
        for shard in owners:
            self._vacant.pop(shard, None)
        found: list[Claim | Give] = []
        able = {f"{number:010}": number for number in sorted(self._able)}
        present = {shard: f"{number:010}" for shard, (_, number) in owners.items()}
        dealt = assign(self._count, able, present)
        for shard in range(self._count):
            is_own = shard in owners and owners[shard][1] == self._members.number
            if is_own and own is not None and shard not in own.shards:
                found.append(Claim(shard, self._ended[shard]))  # it was sealed for this member
            elif shard not in owners and self._members.is_sure and self._is_turn(shard, dealt, able, now_s):
                self._vacant[shard].tried_s = now_s
                found.append(Claim(shard, self._ended[shard]))
        if own is None or len(owners) < self._count:
            return found
        return found + self._gives({s: able[m] for s, m in dealt.items()}, own, owners, now_s)

    def _note_change(self, living: dict[int, Heartbeat], now_s: float) -> None:
        able = frozenset(number for number, each in living.items() if each.is_able)
        if able != self._able:
            self._able, self._changed_s, self.is_steady = able, now_s, False

    def _is_turn(self, shard: int, dealt: dict[int, str], able: dict[str, int], now_s: float) -> bool:
        """Whether it is this member that claims a shard now: the one that ought to have it, or the next in rank."""
        vacancy = self._vacant.setdefault(shard, _Vacancy(now_s))
        own = f"{self._members.number:010}"
        if own not in able or now_s - vacancy.tried_s < _AGAIN_S:
            return False
        order = [dealt[shard], *(name for name in rank(shard, able) if name != dealt[shard])]
        return now_s - vacancy.since_s >= RANK_S * order.index(own)

    def _gives(
        self, dealt: dict[int, int], own: Heartbeat, owners: dict[int, tuple[int, int]], now_s: float
    ) -> list[Claim | Give]:
        """A shard that is here and ought to be elsewhere: all of them where it drains, else one at a time."""
        self._forget_wish(dealt, owners)
        mine = [shard for shard in own.shards if owners[shard][1] == self._members.number]
        for shard, to in list(self._wanted.items()):
            if shard not in mine or to not in self._able:
                del self._wanted[shard]
        if self._wanted:
            return [Give(shard, to) for shard, to in list(self._wanted.items())[:1] if to != self._members.number]
        if own.draining:
            return [Give(shard, dealt[shard]) for shard in mine if shard in dealt]
        is_steady = self.is_steady or any(each.steady for each in self._members.living.values())
        if is_steady or (self._wished_s is None and now_s - self._changed_s < self._balance_after_s):
            return []
        away = [Give(shard, dealt[shard]) for shard in mine if shard in dealt and dealt[shard] != own.number]
        return list(away[:1])

    def _forget_wish(self, dealt: dict[int, int], owners: dict[int, tuple[int, int]]) -> None:
        """Once all have their share, among members that everybody has had the time to notice."""
        is_even = all(dealt.get(shard) == owner for shard, (_, owner) in owners.items())
        if self._wished_s is not None and is_even and self._members.watched_s - self._wished_s >= SILENCE_S:
            self._wished_s = None
