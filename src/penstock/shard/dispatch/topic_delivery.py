"""The delivery of one topic: its indexes, the groups in use, and those who wait.

The durable state of groups is in the partitions (`Partition.state`); what is here is made from it and from the log when
the topic's first consumer comes. The state lock is held: those whom it tells of events and alarms assert it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from penstock.delivery.assignment import Assignment
from penstock.delivery.claims import Claims
from penstock.delivery.group import Group
from penstock.delivery.index import PartitionIndex
from penstock.delivery.lease_book import LeaseBook
from penstock.delivery.leases import Lease
from penstock.delivery.offsets import Offsets, offsets_of
from penstock.delivery.outcomes import Dying, Logged, Moment, Outcome, Pick
from penstock.model.bounds import shown
from penstock.model.config import TopicConfig
from penstock.model.errors import GroupInUse, GroupNotFound, InvalidArgument, LeaseLost, TopicNotFound
from penstock.model.events import Event, EventKind
from penstock.model.names import DEAD_LETTERS
from penstock.segments.window import Rows
from penstock.shard.dispatch.group_desk import GroupDesk
from penstock.shard.dispatch.waiting import Seat, Waiter

if TYPE_CHECKING:
    from penstock.log.partition_log import Log
    from penstock.log.topics import Topic
    from penstock.model.batch import Batch
    from penstock.shard.reading.contents import Contents

_FOREVER_US = 2**63 - 1
_FOREVER_S = float("inf")
_GONE = (EventKind.REMOVED, EventKind.ARCHIVED)
_WITHDRAWN = (EventKind.CANCELLED, EventKind.PURGED, EventKind.REDRIVEN)


class TopicDelivery:
    """Everything volatile about the delivery of one topic."""

    def __init__(
        self,
        topic: Topic,
        indexes: list[PartitionIndex],
        log: Callable[[Topic, Iterable[Logged]], object],
        bury: Callable[[TopicDelivery, Group, Dying], None],
        arm: Callable[[TopicDelivery], None],
        changed: Callable[[TopicDelivery], None],
        book: LeaseBook,
        contents: Contents,
    ) -> None:
        self.topic = topic
        self._contents = contents
        self.indexes = indexes
        self.desks: dict[str, GroupDesk] = {}
        self.archived = False  # whether the indexes know what is in the archive
        self._log, self._bury, self._arm, self._changed = log, bury, arm, changed
        self._book = book
        self.next_us = _FOREVER_US  # when time changes something here, by the wall clock
        self.next_s = _FOREVER_S  # and by the monotonic one

    # Groups.

    def desk(self, name: str) -> GroupDesk:
        """A group that exists, put to use."""
        desk = self.desks.get(name)
        if desk is None:
            states = [partition.delivery_state() for partition in self.topic.partitions]
            if any(name not in state.groups for state in states):
                raise GroupNotFound(f"{self.topic.name} has no group {shown(name)}")
            progress = [state.groups[name] for state in states]
            settings = progress[0].settings
            claims = [Claims(*facts) for facts in zip(self.indexes, progress, strict=True)]
            mortal = not self.topic.name.endswith(DEAD_LETTERS)
            group = Group(name, self.topic.config, settings, claims, self._book, mortal)
            desk = self.desks[name] = GroupDesk(group)
            self.time_changed()
        return desk

    def configure(self, config: TopicConfig) -> None:
        """The topic's options have changed; groups that are put to use later begin with them."""
        for desk in self.desks.values():
            desk.group.configure(config)

    def join(self, seat: Seat, now: Moment) -> None:
        """A consumer takes its seat."""
        desk = self.desk(seat.group)
        if desk.deleting:
            raise GroupInUse(f"the group {seat.group!r} of {self.topic.name} is being deleted")
        other = next((taken for taken in desk.seats.values() if taken.mode != seat.mode), None)
        if other is not None:
            raise GroupInUse(f"the group {seat.group!r} of {self.topic.name} is in use in {other.mode} mode")
        if seat.consumer in desk.seats:
            raise GroupInUse(f"the group {seat.group!r} of {self.topic.name} has a consumer {seat.consumer!r} already")
        desk.seats[seat.consumer] = seat
        if seat.mode == "shared":
            desk.assignment = None  # of those who were here before
        else:
            if desk.assignment is None:
                desk.assignment = Assignment(len(self.topic.partitions))
            desk.assignment.join(seat.consumer, now.monotonic_s, seat.session_timeout_s)
            self._revoke(desk)
            self.time_changed()

    def leave(self, seat: Seat, now: Moment) -> None:
        """A consumer goes and gives back what it holds."""
        desk = self.desks.get(seat.group)
        if desk is None or desk.seats.pop(seat.consumer, None) is None:
            return
        self._do(desk, desk.group.end_leases(now, seat.consumer, EventKind.RELEASED, "the consumer was closed"))
        if desk.assignment is not None:
            desk.assignment.leave(seat.consumer)
            self._wake_all(desk)
        for waiter in [waiter for waiter in desk.waiters if seat in waiter.seats_in(self)]:
            desk.waiters.remove(waiter)
            waiter.served(self, [])
        self.serve(now)

    def heartbeat(self, seat: Seat, now: Moment) -> None:
        """A consumer is alive; one whose session ended joins again."""
        desk = self._desk_of(seat)
        if desk.assignment is not None and not desk.assignment.heartbeat(seat.consumer, now.monotonic_s):
            desk.assignment.join(seat.consumer, now.monotonic_s, seat.session_timeout_s)
            self._revoke(desk)
            self.time_changed()

    # Handing out and taking back.

    def fetch(
        self, seat: Seat, max_messages: int, visibility_s: float | None, now: Moment, partition: int | None = None
    ) -> list[Pick]:
        """Lease what is ready for a consumer, in all of its partitions or in one."""
        self.tick(now)
        return self._fetch(seat, max_messages, visibility_s, now, partition)

    def _fetch(
        self, seat: Seat, max_messages: int, visibility_s: float | None, now: Moment, partition: int | None = None
    ) -> list[Pick]:
        desk = self._desk_of(seat)
        group = desk.group
        owned = None if partition is None else {partition}
        if desk.assignment is not None:
            self.heartbeat(seat, now)
            mine = desk.assignment.owned(seat.consumer)
            owned = mine if owned is None else mine & owned
        room = min(max_messages, seat.max_in_flight - group.leases.in_flight[seat.consumer])
        if room <= 0:
            return []
        picks, events = group.fetch(now, seat.consumer, room, visibility_s or seat.visibility_s, owned)
        if picks:
            self._log(self.topic, events)
            self.next_s = min(self.next_s, picks[0].lease.deadline_s)
            self._arm(self)
        return picks

    def ack_one(self, seat: Seat, lease: Lease, offset: int, now: Moment) -> bool:
        """Ack one message; whether it was held, or had been acked under this lease."""
        self.tick(now)
        desk = self._desk_of(seat)
        if not desk.group.leases.is_of(lease, seat.consumer):
            return False
        event = desk.group.ack_one(now, lease, offset)
        if event is not None:
            self._log(self.topic, [(lease.partition, event)])
        if desk.assignment is not None:
            self.heartbeat(seat, now)
            self._revoke(desk)
        return event is not None or (lease.settled is not None and offset in lease.settled)

    def find_lease(self, seat: Seat, lease_id: int, partition: int, offsets: Offsets) -> Lease | None:
        """A lease of a consumer's group by its id, as far as it concerns these offsets."""
        desk = self.desks.get(seat.group)
        return None if desk is None else desk.group.find_lease(lease_id, partition, seat.consumer, offsets)

    def settle(
        self,
        seat: Seat,
        leases: Iterable[tuple[Lease, Offsets]],
        now: Moment,
        act: Callable[[Group, Lease, Offsets, Outcome], None],
    ) -> list[tuple[int, Offsets]]:
        """Do something to leased messages; which of them are not leased (any more), by partition."""
        self.tick(now)
        desk = self._desk_of(seat)
        if desk.assignment is not None:
            self.heartbeat(seat, now)
        refused: list[tuple[int, Offsets]] = []
        whole = Outcome()
        for lease, offsets in leases:
            outcome = Outcome()
            if desk.group.leases.is_of(lease, seat.consumer):
                act(desk.group, lease, offsets, outcome)
            else:
                outcome.refused = offsets
            whole.events += outcome.events
            whole.dying += outcome.dying
            if outcome.refused:
                refused.append((lease.partition, outcome.refused))
        self._do(desk, whole)
        return refused

    def _do(self, desk: GroupDesk, outcome: Outcome) -> None:
        if outcome.events:
            self._log(self.topic, outcome.events)
        for dying in outcome.dying:
            self._bury(self, desk.group, dying)
        if desk.assignment is not None:
            self._revoke(desk)

    def check_mortal(self) -> None:
        """Raise if messages of this topic cannot be dead-lettered."""
        if self.topic.name.endswith(DEAD_LETTERS):
            raise InvalidArgument(
                f"{self.topic.name} holds dead letters, which die no further: ack them, or purge or redrive them"
            )

    # Time.

    def tick(self, now: Moment) -> None:
        """Do what has become due since the last time."""
        if now.wall_us < self.next_us and now.monotonic_s < self.next_s:
            return
        for number, index in enumerate(self.indexes):
            due, ended = index.fall_due(now.wall_us), index.lapse(now.wall_us)
            for desk in self.desks.values():
                if due:
                    desk.group.claims[number].show(due)
                    desk.group.wake(number)
                if ended:
                    desk.group.claims[number].lapse(ended)
        for desk in self.desks.values():
            self._do(desk, desk.group.tick(now))
            if desk.assignment is not None:
                self._end_sessions(desk, now)
        self.time_changed()

    def time_changed(self) -> None:
        """Find out anew when time will change something."""
        times = [index.next_time_us() for index in self.indexes]
        times += [desk.group.next_time_us() for desk in self.desks.values()]
        if any(claims.lapsing for desk in self.desks.values() for claims in desk.group.claims):
            times.append(0)
        self.next_us = min((time_us for time_us in times if time_us is not None), default=_FOREVER_US)
        deadlines = [desk.group.leases.next_deadline_s() for desk in self.desks.values()]
        deadlines += [desk.assignment.next_expiry_s() for desk in self.desks.values() if desk.assignment is not None]
        deadlines += [desk.group.allowed_from_s for desk in self.desks.values() if desk.waiters and desk.group.held_up]
        self.next_s = min((time_s for time_s in deadlines if time_s is not None), default=_FOREVER_S)
        self._arm(self)

    def _end_sessions(self, desk: GroupDesk, now: Moment) -> None:
        assert desk.assignment is not None
        for waiter in desk.waiters:
            for seat in waiter.seats_in(self):
                desk.assignment.heartbeat(seat.consumer, now.monotonic_s)  # it is here, and waits
        for consumer, _ in desk.assignment.expire(now.monotonic_s):
            self._do(desk, desk.group.end_leases(now, consumer, EventKind.EXPIRED, "the consumer was not heard of"))
            self._wake_all(desk)
        self._revoke(desk)

    def _revoke(self, desk: GroupDesk) -> None:
        """Move what nobody is working on any more to its new owner."""
        assert desk.assignment is not None
        for consumer in desk.seats:
            for partition in sorted(desk.assignment.revoking(consumer)):
                if not desk.group.leases.held_by(consumer, partition):
                    desk.assignment.revoked(consumer, partition)
                    desk.group.wake(partition)

    def _wake_all(self, desk: GroupDesk) -> None:
        for partition in range(len(self.indexes)):
            desk.group.wake(partition)

    # What became of what was gathered.

    def published(self, log: Log, base: int, batch: Batch, time_us: int, size_bytes: int) -> None:
        """New messages are in the index."""
        for desk in self.desks.values():
            desk.group.wake(log.partition)
            if desk.waiters:
                self._changed(self)
        if batch.deliver_at is not None or batch.expires_at is not None:
            self.next_us = 0
            self._changed(self)
        if any(desk.group.is_near(log.partition, base) for desk in self.desks.values()):
            rows = Rows(range(base, base + len(batch)), [time_us] * len(batch), batch)
            self._contents.keep(log, rows, size_bytes)

    def committed(self, partition: int, event: Event, now_us: int) -> None:
        """An event is on disk, and applied to the durable state."""
        if event.kind == EventKind.DELIVERED or event.kind == EventKind.EXTENDED:
            return
        self._changed(self)
        if event.group is not None:
            desk = self.desks.get(event.group)
            if desk is None:
                return
            if event.kind == EventKind.FORGOTTEN:
                del self.desks[event.group]
                return
            desk.group.committed(partition, event, now_us)
            if event.due_us or desk.group.claims[partition].lapsing:
                self.next_us = 0
            return
        offsets = offsets_of(event)
        index = self.indexes[partition]
        if event.kind == EventKind.RESCHEDULED:
            for offset in offsets:
                index.delay_again(offset, event.due_us)
            self.next_us = 0
        elif event.kind in _WITHDRAWN or event.kind in _GONE:
            index.uncover(offsets)
            for desk in self.desks.values():
                if not (event.kind == EventKind.ARCHIVED and desk.group.settings.archived):
                    desk.group.withdraw(partition, offsets)
        if event.kind in _GONE and not (event.kind == EventKind.ARCHIVED and self.archived):
            index.forget(offsets)  # last: the keys of what goes were still needed

    def refused(self, partition: int, event: Event) -> None:
        """An event was not written: undo what was done for it."""
        self._changed(self)
        if event.group is not None:
            desk = self.desks.get(event.group)
            if desk is not None:
                desk.deleting = desk.deleting and event.kind != EventKind.FORGOTTEN
                desk.group.refused(partition, event)
        elif event.kind in (EventKind.CANCELLED, EventKind.RESCHEDULED):
            for offset in offsets_of(event):
                self.indexes[partition].delay_again(offset, int(event.detail or 0))
        self.next_us = 0

    def wait(self, seat: Seat, waiter: Waiter) -> None:
        """Have a waiter served."""
        desk = self.desks[seat.group]
        desk.waiters.append(waiter)
        if desk.group.settings.rate is not None:
            self.time_changed()

    def stop_waiting(self, seat: Seat, waiter: Waiter) -> None:
        """It waits no longer."""
        desk = self.desks.get(seat.group)
        if desk is not None and waiter in desk.waiters:
            desk.waiters.remove(waiter)

    def serve(self, now: Moment) -> None:
        """Give those who wait what is ready for them."""
        if self.next_us == 0:
            self.tick(now)
        for desk in list(self.desks.values()):
            waiters = desk.waiters
            for _ in range(len(waiters)):
                if desk.group.idle:
                    break
                waiter = waiters.popleft()
                if waiter.done:
                    continue
                try:
                    picks = self._fetch_for(waiter, now)
                except BaseException:
                    waiter.served(self, [])  # it looks for itself, and hears what is wrong
                    raise
                if picks:
                    waiter.served(self, picks)
                else:
                    waiters.append(waiter)

    def _fetch_for(self, waiter: Waiter, now: Moment) -> list[Pick]:
        for seat in waiter.seats_in(self):
            picks = self._fetch(seat, waiter.max_messages, waiter.visibility_s, now)
            if picks:
                return picks
        return []

    def close(self) -> None:
        """The topic is gone, or the broker is being closed: nobody waits any longer."""
        for desk in self.desks.values():
            for waiter in desk.waiters:
                waiter.served(self, [])

    def _desk_of(self, seat: Seat) -> GroupDesk:
        desk = self.desks.get(seat.group)
        if self.topic.deleting:
            raise TopicNotFound(f"the topic {self.topic.name!r} was deleted")
        if desk is None or desk.seats.get(seat.consumer) is not seat:
            raise LeaseLost(f"the consumer {seat.consumer!r} is closed: what it held was given back")
        return desk
