"""Which member of an assigned group owns which partition: at most one owner each, and no more moves than it takes.

A partition that must leave a living member is first revoked: the member keeps it, gets nothing new from it, and
the next owner has it once the last lease there is gone. What need not move is never paused.

>>> group = Assignment(4)
>>> group.join("a", 0.0, 30.0)
>>> group.join("b", 0.0, 30.0)
>>> sorted(group.owned("a")), sorted(group.revoking("a")), sorted(group.owned("b"))
([0, 1], [2, 3], [])
>>> group.revoked("a", 2)
>>> group.owner(2), group.owner(3)
(('b', 2), ('a', 1))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.model.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """What is known of one member, for showing."""

    owned: frozenset[int]
    revoking: frozenset[int]
    last_heartbeat_s: float
    session_timeout_s: float


@dataclass(slots=True, eq=False)
class _Member:
    name: str
    heartbeat_s: float
    timeout_s: float
    owned: set[int] = field(default_factory=set)
    revoking: set[int] = field(default_factory=set)

    @property
    def size(self) -> int:
        return len(self.owned) + len(self.revoking)

    @property
    def expiry_s(self) -> float:
        return self.heartbeat_s + self.timeout_s

    def revoke(self, count: int) -> None:
        """Have exactly `count` partitions on their way out: those that were already, as far as they go."""
        missing = count - len(self.revoking)
        if missing > 0:
            leaving = sorted(self.owned)[-missing:]
            self.owned.difference_update(leaving)
            self.revoking.update(leaving)
        elif missing < 0:
            staying = sorted(self.revoking)[:-missing]
            self.revoking.difference_update(staying)
            self.owned.update(staying)


class Assignment:
    """The members of a group and their partitions; times are monotonic seconds."""

    def __init__(self, partitions: int, epoch: int = 0, own: Sequence[int] | None = None, before: int = 0) -> None:
        """Of all partitions, or of a slice's `own`; the slices before have so many of the others."""
        if partitions < 1:
            raise InvalidArgument(f"{partitions} partitions cannot be assigned: give 1 or more")
        self.epoch = epoch  # grows by one with every change of membership
        self.moves = 0  # how often a partition was given to a member that did not have it
        self.expired = 0  # members whose session has ended
        self._partitions = partitions
        self._members: dict[str, _Member] = {}  # in the order in which they joined
        self._owners: list[tuple[_Member, int] | None] = [None] * partitions
        self._own = range(partitions) if own is None else own
        self._before = before
        self._free = list(self._own)  # nobody's; empty whenever there is a member
        self._waiting: deque[_Member] = deque()  # one entry for each partition being revoked: who gets the next one

    def join(self, member: str, now_s: float, session_timeout_s: float) -> None:
        """Become a member, or, for one that is, renew the session."""
        if not session_timeout_s > 0:
            raise InvalidArgument(f"a session timeout of {session_timeout_s} s ends at once: give more than 0")
        known = self._members.get(member)
        if known is not None:
            known.heartbeat_s = max(known.heartbeat_s, now_s)
            known.timeout_s = session_timeout_s
            return
        self._members[member] = _Member(member, now_s, session_timeout_s)
        self._rebalance()

    def leave(self, member: str) -> set[int]:
        """Stop being a member; the partitions it had, which have their next owners at once."""
        if member not in self._members:
            return set()
        freed = self._remove(member)
        self._rebalance()
        return freed

    def heartbeat(self, member: str, now_s: float) -> bool:
        """Renew the session; False if it is no member (any more) and must join again.

        A late one still counts as long as `expire` has not ended the session: nobody else was given anything.
        """
        known = self._members.get(member)
        if known is None:
            return False
        known.heartbeat_s = max(known.heartbeat_s, now_s)
        return True

    def expire(self, now_s: float) -> list[tuple[str, set[int]]]:
        """Remove the members whose session has ended; who they were and what they had.

        However many they are, it is one change of membership.
        """
        ended = [name for name, member in self._members.items() if now_s > member.expiry_s]
        gone = [(name, self._remove(name)) for name in ended]
        if gone:
            self.expired += len(gone)
            self._rebalance()
        return gone

    def next_expiry_s(self) -> float | None:
        """The time after which the first session ends if nothing is heard; None without members."""
        return min((member.expiry_s for member in self._members.values()), default=None)

    def owned(self, member: str) -> set[int]:
        """The partitions it may fetch from; not those being revoked."""
        known = self._members.get(member)
        return set() if known is None else set(known.owned)

    def revoking(self, member: str) -> set[int]:
        """The partitions it still owns but must finish: nothing new is fetched from them."""
        known = self._members.get(member)
        return set() if known is None else set(known.revoking)

    def revoked(self, member: str, partition: int) -> None:
        """No lease of the member is left there: the partition goes to its next owner.

        Does nothing if the revocation was cancelled meanwhile.
        """
        known = self._members.get(member)
        if known is None or partition not in known.revoking:
            return
        known.revoking.remove(partition)
        self._give(partition, self._waiting.popleft())

    def owner(self, partition: int) -> tuple[str, int] | None:
        """The owner, also while it is being revoked, and the epoch in which it became the owner.

        That epoch is the fencing number of the partition: it grows with every change of owner and only then.
        """
        if not 0 <= partition < self._partitions:
            raise InvalidArgument(f"there is no partition {partition}: the last is {self._partitions - 1}")
        found = self._owners[partition]
        return None if found is None else (found[0].name, found[1])

    def members(self) -> dict[str, MemberInfo]:
        """Everybody, in the order in which they joined."""
        return {
            name: MemberInfo(frozenset(member.owned), frozenset(member.revoking), member.heartbeat_s, member.timeout_s)
            for name, member in self._members.items()
        }

    def _remove(self, name: str) -> set[int]:
        member = self._members.pop(name)
        freed = member.owned | member.revoking
        for partition in freed:
            self._owners[partition] = None
        self._free.extend(freed)
        return freed

    def _give(self, partition: int, member: _Member) -> None:
        self.moves += 1
        member.owned.add(partition)
        self._owners[partition] = (member, self.epoch)

    def _rebalance(self) -> None:
        """Begin a new epoch: decide how many partitions each member shall have, and hand out the free ones."""
        self.epoch += 1
        self._waiting.clear()
        if not self._members:
            return
        base, larger_shares = divmod(len(self._own), len(self._members))
        if len(self._own) == self._partitions:
            # The larger shares go to those that would have to give one up otherwise, then to whoever came first.
            by_claim = sorted(self._members.values(), key=lambda member: member.size <= base)
        else:
            # All slices have the same members: by name, each slice goes on where the one before it has ended.
            by_name = sorted(self._members.values(), key=lambda member: member.name)
            first = self._before % len(by_name)
            by_claim = by_name[first:] + by_name[:first]
        wanted: list[tuple[int, _Member]] = []
        for place, member in enumerate(by_claim):
            share = base + 1 if place < larger_shares else base
            member.revoke(max(0, member.size - share))
            wanted += [(size, member) for size in range(member.size, share)]
        wanted.sort(key=lambda want: want[0])  # whoever has least is served first
        self._waiting.extend(member for _, member in wanted)
        for partition in sorted(self._free):
            self._give(partition, self._waiting.popleft())
        self._free.clear()
