"""Leases: who holds which messages of a group, and until when. By a monotonic clock; gone with the process."""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable

from penstock.delivery.lease_book import LeaseBook
from penstock.delivery.offsets import Offsets


class Lease:
    """What one fetch took from one partition: it ends message by message, or when its time is over."""

    __slots__ = (
        "acked",
        "again",
        "consumer",
        "deadline_s",
        "extended",
        "home",
        "id",
        "messages",
        "owner",
        "partition",
        "unseen",
        "visibility_s",
    )

    def __init__(self, lease_id: int, partition: int, consumer: str, deadline_s: float, messages: Offsets) -> None:
        self.id = lease_id
        self.home: Leases | None = None  # where it was granted
        self.partition = partition
        self.consumer = consumer
        self.deadline_s = deadline_s
        self.visibility_s = 0.0  # how long it lasts without an extension
        self.messages = messages  # still held
        self.owner: object = None  # whoever handles the messages; nothing here asks
        self.again: dict[int, tuple[int, int]] = {}  # deliveries and failures of what was delivered before
        self.unseen: Offsets | None = None  # held ready, and not handed to anybody yet
        self.acked: Offsets | None = None  # acked under this lease
        self.extended: dict[int, float] | None = None  # deadlines of single messages, where they differ

    def deadline_of(self, offset: int) -> float:
        """When one of its messages becomes free."""
        return self.deadline_s if self.extended is None else self.extended.get(offset, self.deadline_s)


class Leases:
    """All leases of one group."""

    def __init__(self, book: LeaseBook) -> None:
        self._book = book
        self._number = book.new_group()
        self._by_id: dict[int, Lease] = {}
        self._ended: OrderedDict[int, Lease] = OrderedDict()  # what was acked under them may not be on disk yet
        self._deadlines: list[tuple[float, int]] = []
        self.in_flight: Counter[str] = Counter()  # messages by consumer
        self.total = 0

    def grant(self, lease: Lease) -> None:
        """A consumer holds these messages now."""
        lease.home = self
        self._by_id[lease.id] = lease
        self._watch(lease.deadline_s, lease)
        self.in_flight[lease.consumer] += len(lease.messages)
        self.total += len(lease.messages)

    def find(self, lease_id: int) -> Lease | None:
        """A lease that lives, or one of the latest that ended."""
        lease = self._by_id.get(lease_id) or self._ended.get(lease_id)
        if lease is None and (known := self._book.find(lease_id)) is not None and known.group == self._number:
            lease = self._past(lease_id, known.partition, known.consumer)
            lease.acked, lease.unseen = known.acked_offsets(), known.unseen_offsets()
        return lease

    def forgotten(self, lease_id: int, partition: int, consumer: str, offsets: Offsets, done: Offsets) -> Lease | None:
        """What stands for a lease that may have been forgotten: what is done of these was done under it."""
        if not self._book.may_be_forgotten(lease_id):
            return None
        lease = self._past(lease_id, partition, consumer)
        lease.acked, lease.unseen = done, offsets
        return lease

    def _past(self, lease_id: int, partition: int, consumer: str) -> Lease:
        lease = Lease(lease_id, partition, consumer, 0.0, Offsets())
        lease.home = self
        return lease

    def living(self, lease_id: int, partition: int) -> Lease | None:
        """A lease by its id, if it still holds something."""
        lease = self._by_id.get(lease_id)
        return lease if lease is not None and lease.partition == partition else None

    def is_of(self, lease: Lease, consumer: str) -> bool:
        """Whether a consumer got a lease here."""
        return lease.home is self and lease.consumer == consumer

    def take(self, lease: Lease, offsets: Offsets, acked: bool = False) -> Offsets:
        """End the lease of those of the offsets that it still holds; which they were."""
        held = lease.messages & offsets
        if not held:
            return held
        lease.messages -= held
        if acked:
            lease.acked = held if lease.acked is None else lease.acked | held
        self._count_off(lease, len(held))
        return held

    def take_run(self, lease: Lease, first: int, count: int) -> bool:
        """As `take` for messages that are acked: all that a lease holds, or one of them. False if they are neither."""
        messages = lease.messages
        if count == len(messages) and messages.min() == first and messages.max() == first + count - 1:
            lease.messages = Offsets()
            lease.acked = messages if lease.acked is None else lease.acked | messages
        elif count == 1 and first in messages:
            messages.discard(first)
            if lease.acked is None:
                lease.acked = Offsets()
            lease.acked.add(first)
        else:
            return False
        self._count_off(lease, count)
        return True

    def _count_off(self, lease: Lease, count: int) -> None:
        self.total -= count
        self.in_flight[lease.consumer] -= count
        if not lease.messages and self._by_id.pop(lease.id, None) is not None:
            self._ended[lease.id] = lease
            if not self.in_flight[lease.consumer]:
                del self.in_flight[lease.consumer]
            if not self._by_id:
                self._deadlines.clear()

    def write_down(self, is_done: Callable[[int, Offsets], bool]) -> None:
        """Keep but a note of leases that ended, in turn, once all that was acked under them is on disk and done."""
        while self._ended:
            lease = next(iter(self._ended.values()))
            if lease.acked and not is_done(lease.partition, lease.acked):
                return
            self._note(lease)

    def moved(self, partition: int) -> None:
        """The group was moved after these ended: what is done now says nothing of what was acked under them."""
        for lease in [lease for lease in self._ended.values() if lease.partition == partition]:
            self._note(lease)

    def _note(self, lease: Lease) -> None:
        del self._ended[lease.id]
        self._book.end(lease.id, self._number, lease.partition, lease.consumer, lease.acked, lease.unseen)

    def unack(self, partition: int, offsets: Offsets) -> None:
        """They were not acked after all: their ack could not be written."""
        for lease in (*self._by_id.values(), *self._ended.values()):
            if lease.acked is not None and lease.partition == partition:
                lease.acked = lease.acked - offsets

    def extend(self, lease: Lease, offsets: Offsets, deadline_s: float) -> Offsets:
        """Move deadlines, forward only; which messages it still holds."""
        held = lease.messages & offsets
        if held == lease.messages and lease.extended is None:
            if held and deadline_s > lease.deadline_s:
                lease.deadline_s = deadline_s
                self._watch(deadline_s, lease)
            return held
        if lease.extended is None:
            lease.extended = {}
        for offset in held:
            if deadline_s > lease.deadline_of(offset):
                lease.extended[offset] = deadline_s
        self._watch(deadline_s, lease)
        return held

    def expired(self, now_s: float) -> list[tuple[Lease, Offsets]]:
        """Take the messages whose time is over, lease by lease."""
        found: list[tuple[Lease, Offsets]] = []
        while self._deadlines and self._deadlines[0][0] <= now_s:
            lease = self._by_id.get(heapq.heappop(self._deadlines)[1])
            if lease is None:
                continue
            if lease.extended is None:
                over = Offsets(lease.messages) if lease.deadline_s <= now_s else Offsets()
            else:
                over = Offsets(offset for offset in lease.messages if lease.deadline_of(offset) <= now_s)
            if over:
                found.append((lease, self.take(lease, over)))
        return found

    def held_by(self, consumer: str | None = None, partition: int | None = None) -> list[Lease]:
        """The leases that live of a consumer, of a partition, or of both."""
        return [
            lease
            for lease in self._by_id.values()
            if consumer in (None, lease.consumer) and partition in (None, lease.partition)
        ]

    def next_deadline_s(self) -> float | None:
        """When to look again."""
        while self._deadlines and self._deadlines[0][1] not in self._by_id:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _watch(self, deadline_s: float, lease: Lease) -> None:
        heapq.heappush(self._deadlines, (deadline_s, lease.id))
        if len(self._deadlines) > 64 + 4 * len(self._by_id):  # mostly of leases that ended long before
            self._deadlines = [
                (deadline_s, lease.id)
                for lease in self._by_id.values()
                for deadline_s in {lease.deadline_s, *(lease.extended or {}).values()}
            ]
            heapq.heapify(self._deadlines)
