"""The leases of a whole broker that ended lately, so that a late word about one of them gets the right answer.

What a group has done tells whether a message is acked. What it cannot tell is kept here, in few bytes a lease: whose
it was, and what was acked under it rather than under another one. Two generations under one limit: when the younger is
large or old enough, the older goes as a whole. Of a lease that is forgotten, an ack of what is done counts as repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from penstock.delivery.offsets import Offsets, from_range
from penstock.model.events import EventKind

if TYPE_CHECKING:
    from penstock.delivery.outcomes import Logged

BOOK_BYTES = 16 << 20
"""What all generations may take."""
_GENERATION_S = 300.0
_ENTRY_BYTES = 256  # the entry, its numbers, and its place in the dict


class EndedLease(NamedTuple):
    """What is kept of one lease; nothing in it needs to be looked after by the garbage collector."""

    group: int
    partition: int
    consumer: str
    first: int
    """What was acked: from here to before `end`, or just the ones in `others`."""
    end: int
    others: bytes | None
    unseen: bytes | None
    """What nobody had seen when it ended."""

    def acked_offsets(self) -> Offsets:
        """What was acked under it."""
        return from_range(self.first, self.end) if self.others is None else Offsets.deserialize(self.others)

    def unseen_offsets(self) -> Offsets | None:
        """What was held ready for a client that had not said yet that it handed them out."""
        return None if self.unseen is None else Offsets.deserialize(self.unseen)


class LeaseBook:
    """Numbers the leases of a broker, and remembers those that ended."""

    def __init__(self, last_id: int = 0) -> None:
        self._last_id = last_id
        self.is_open = True
        """Whether messages are leased: not any more by a shard that is about to move."""
        self.tenure: Callable[[], bool] | None = None
        """Whether they may be leased now, where another process might have the shard already; None: always."""
        self.broker = ""
        """Where the broker is reached that leases, where several could."""
        self._groups = 0
        self._young: dict[int, EndedLease] = {}
        self._old: dict[int, EndedLease] = {}
        self._young_bytes = 0
        self._since_s = float("-inf")
        self._forgotten = range(0)  # ids; some of these may have been forgotten

    def signed(self, events: Iterable[Logged]) -> Iterable[Logged]:
        """The same events, where deliveries say which broker made them, if it could have been several."""
        if not self.broker:
            return events
        return [
            (partition, replace(event, detail=self.broker) if event.kind is EventKind.DELIVERED else event)
            for partition, event in events
        ]

    @property
    def may_lease(self) -> bool:
        """Whether a message can be leased now."""
        return self.is_open and (self.tenure is None or self.tenure())

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def new_id(self) -> int:
        """A number that no other lease of this broker has or had."""
        self._last_id += 1
        return self._last_id

    def new_group(self) -> int:
        """A number for the leases of a group."""
        self._groups += 1
        return self._groups

    def end(
        self,
        lease_id: int,
        group: int,
        partition: int,
        consumer: str,
        acked: Offsets | None,
        unseen: Offsets | None = None,
    ) -> None:
        """A lease ended, with this acked, all of which is on disk, and this not seen by anybody."""
        first = end = 0
        others: bytes | None = None
        if acked:
            first, end = acked.min(), acked.max() + 1
            others = None if end - first == len(acked) else acked.serialize()
        waiting = unseen.serialize() if unseen else None
        self._young[lease_id] = EndedLease(group, partition, consumer, first, end, others, waiting)
        self._young_bytes += _ENTRY_BYTES + len(others or b"") + len(waiting or b"")
        if self._young_bytes > BOOK_BYTES // 2:
            self._turn()

    def pass_time(self, now_s: float) -> None:
        """Let go of what ended long ago."""
        if now_s - self._since_s >= _GENERATION_S:
            self._since_s = now_s
            self._turn()

    def find(self, lease_id: int) -> EndedLease | None:
        """A lease that ended lately."""
        return self._young.get(lease_id) or self._old.get(lease_id)

    def may_be_forgotten(self, lease_id: int) -> bool:
        """Whether an unknown lease may have been one of this broker."""
        return lease_id in self._forgotten

    def _turn(self) -> None:
        if self._old:
            first, last = min(self._old), max(self._old)
            known = self._forgotten
            self._forgotten = range(min(first, known.start or first), max(last + 1, known.stop))
        self._old, self._young, self._young_bytes = self._young, {}, 0
