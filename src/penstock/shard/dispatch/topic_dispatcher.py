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
from penstock.shard.dispatch.active_group import ActiveGroup
from penstock.shard.dispatch.waiting import GroupMember, Waiter

if TYPE_CHECKING:
    from penstock.log.partition_log import Log
    from penstock.log.topics import Topic
    from penstock.model.batch import Batch
    from penstock.shard.reading.contents import Contents

_FOREVER_US = 2**63 - 1
_FOREVER_S = float("inf")
_GONE = (EventKind.REMOVED, EventKind.ARCHIVED)
_WITHDRAWN = (EventKind.CANCELLED, EventKind.PURGED, EventKind.REDRIVEN)


class TopicDispatcher:
    """Everything volatile about the delivery of one topic."""

    def __init__(
        self,
        topic: Topic,
        indexes: list[PartitionIndex],
        log: Callable[[Topic, Iterable[Logged]], object],
        bury: Callable[[TopicDispatcher, Group, Dying], None],
        arm: Callable[[TopicDispatcher], None],
        changed: Callable[[TopicDispatcher], None],
        book: LeaseBook,
        contents: Contents,
    ) -> None:
        self.topic = topic
        self._contents = contents
        self.indexes = indexes
        self.active_groups: dict[str, ActiveGroup] = {}
        self.archived = False  # whether the indexes know what is in the archive
        self._log, self._bury, self._arm, self._changed = log, bury, arm, changed
        self._book = book
        self.next_us = _FOREVER_US  # when time changes something here, by the wall clock
        self.next_s = _FOREVER_S  # and by the monotonic one

    # Groups.

    def active(self, name: str) -> ActiveGroup:
        """A group that exists, put to use."""
        active = self.active_groups.get(name)
        if active is None:
            states = [partition.delivery_state() for partition in self.topic.partitions]
            if any(name not in state.groups for state in states):
                raise GroupNotFound(f"{self.topic.name} has no group {shown(name)}")
            progress = [state.groups[name] for state in states]
            claims = [Claims(*facts) for facts in zip(self.indexes, progress, strict=True)]
            dead_letters_allowed = not self.topic.name.endswith(DEAD_LETTERS)
            group = Group(name, self.topic.config, claims, self._book, dead_letters_allowed)
            active = self.active_groups[name] = ActiveGroup(group)
            self.time_changed()
        return active

    def configure(self, config: TopicConfig) -> None:
        """The topic's options have changed; groups that are put to use later begin with them."""
        for active in self.active_groups.values():
            active.group.configure(config)

    def join(self, member: GroupMember, now: Moment) -> None:
        """A consumer joins a group."""
        active = self.active(member.group)
        if active.deleting:
            raise GroupInUse(f"the group {member.group!r} of {self.topic.name} is being deleted")
        other = next((taken for taken in active.members.values() if taken.mode != member.mode), None)
        if other is not None:
            raise GroupInUse(f"the group {member.group!r} of {self.topic.name} is in use in {other.mode} mode")
        if member.consumer in active.members:
            raise GroupInUse(
                f"the group {member.group!r} of {self.topic.name} has a consumer {member.consumer!r} already"
            )
        active.members[member.consumer] = member
        if member.mode == "shared":
            active.assignment = None  # of those who were here before
        else:
            if active.assignment is None:
                own, before = self.topic.own_partitions, self.topic.partitions_before
                active.assignment = Assignment(len(self.topic.partitions), own=own, before=before)
            active.assignment.join(member.consumer, now.monotonic_s, member.session_timeout_s)
            self._revoke(active)
            self.time_changed()

    def leave(self, member: GroupMember, now: Moment) -> None:
        """A consumer goes and gives back what it holds."""
        active = self.active_groups.get(member.group)
        if active is None or active.members.pop(member.consumer, None) is None:
            return
        self._do(active, active.group.end_leases(now, member.consumer, EventKind.RELEASED, "the consumer was closed"))
        if active.assignment is not None:
            active.assignment.leave(member.consumer)
            self._wake_all(active)
        for waiter in [waiter for waiter in active.waiters if member in waiter.members_in(self)]:
            active.waiters.remove(waiter)
            waiter.served(self, [])
        self.serve(now)

    def heartbeat(self, member: GroupMember, now: Moment) -> None:
        """A consumer is alive; one whose session ended joins again."""
        active = self._active_of(member)
        if active.assignment is not None and not active.assignment.heartbeat(member.consumer, now.monotonic_s):
            active.assignment.join(member.consumer, now.monotonic_s, member.session_timeout_s)
            self._revoke(active)
            self.time_changed()

    # Handing out and taking back.

    def fetch(
        self,
        member: GroupMember,
        max_messages: int,
        visibility_s: float | None,
        now: Moment,
        partition: int | None = None,
    ) -> list[Pick]:
        """Lease what is ready for a consumer, in all of its partitions or in one."""
        self.tick(now)
        return self._fetch(member, max_messages, visibility_s, now, partition)

    def _fetch(
        self,
        member: GroupMember,
        max_messages: int,
        visibility_s: float | None,
        now: Moment,
        partition: int | None = None,
    ) -> list[Pick]:
        active = self._active_of(member)
        group = active.group
        owned = None if partition is None else {partition}
        if active.assignment is not None:
            self.heartbeat(member, now)
            mine = active.assignment.owned(member.consumer)
            owned = mine if owned is None else mine & owned
        room = min(max_messages, member.max_in_flight - group.leases.in_flight[member.consumer])
        if room <= 0 or not self._book.may_lease:
            return []
        picks, events = group.fetch(now, member.consumer, room, visibility_s or member.visibility_s, owned)
        if picks:
            self._log(self.topic, events)
            if picks[0].lease.deadline_s < self.next_s:
                self.next_s = picks[0].lease.deadline_s
                self._arm(self)
        return picks

    def ack_run(self, member: GroupMember, lease: Lease, first: int, count: int, now: Moment) -> bool:
        """Ack all that a lease holds, or one message; whether it is held, or one that had been acked under it."""
        self.tick(now)
        active = self._active_of(member)
        if not active.group.leases.is_of(lease, member.consumer):
            return False
        event = active.group.ack_run(now, lease, first, count)
        if event is not None:
            self._log(self.topic, [(lease.partition, event)])
        if active.assignment is not None:
            self.heartbeat(member, now)
            self._revoke(active)
        return event is not None or (count == 1 and lease.acked is not None and first in lease.acked)

    def find_lease(self, member: GroupMember, lease_id: int, partition: int, offsets: Offsets) -> Lease | None:
        """A lease of a consumer's group by its id, as far as it concerns these offsets."""
        active = self.active_groups.get(member.group)
        return None if active is None else active.group.find_lease(lease_id, partition, member.consumer, offsets)

    def finish(
        self,
        member: GroupMember,
        leases: Iterable[tuple[Lease, Offsets]],
        now: Moment,
        act: Callable[[Group, Lease, Offsets, Outcome], None],
    ) -> list[tuple[int, Offsets]]:
        """Do something to leased messages; which of them are not leased (any more), by partition."""
        self.tick(now)
        active = self._active_of(member)
        if active.assignment is not None:
            self.heartbeat(member, now)
        refused: list[tuple[int, Offsets]] = []
        whole = Outcome()
        for lease, offsets in leases:
            outcome = Outcome()
            if active.group.leases.is_of(lease, member.consumer):
                act(active.group, lease, offsets, outcome)
            else:
                outcome.refused = offsets
            whole.events += outcome.events
            whole.dying += outcome.dying
            if outcome.refused:
                refused.append((lease.partition, outcome.refused))
        self._do(active, whole)
        return refused

    def _do(self, active: ActiveGroup, outcome: Outcome) -> None:
        if outcome.events:
            self._log(self.topic, outcome.events)
        for dying in outcome.dying:
            self._bury(self, active.group, dying)
        if active.assignment is not None:
            self._revoke(active)

    def check_dead_letters_allowed(self) -> None:
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
            for active in self.active_groups.values():
                if due:
                    active.group.claims[number].show(due)
                    active.group.wake(number)
                if ended:
                    active.group.claims[number].lapse(ended)
        for active in self.active_groups.values():
            self._do(active, active.group.tick(now))
            if active.assignment is not None:
                self._end_sessions(active, now)
        self.time_changed()

    def time_changed(self) -> None:
        """Recompute the next wake-up times."""
        used = self.active_groups.values()
        times = [index.next_time_us() for index in self.indexes] + [active.group.next_time_us() for active in used]
        if any(claims.lapsing for active in used for claims in active.group.claims):
            times.append(0)
        self.next_us = min((time_us for time_us in times if time_us is not None), default=_FOREVER_US)
        deadlines = [active.group.leases.next_deadline_s() for active in used]
        deadlines += [active.assignment.next_expiry_s() for active in used if active.assignment is not None]
        deadlines += [active.group.allowed_from_s for active in used if active.waiters and active.group.held_up]
        self.next_s = min((time_s for time_s in deadlines if time_s is not None), default=_FOREVER_S)
        self._arm(self)

    def _end_sessions(self, active: ActiveGroup, now: Moment) -> None:
        assert active.assignment is not None
        for waiter in active.waiters:
            for member in waiter.members_in(self):
                active.assignment.heartbeat(member.consumer, now.monotonic_s)  # it is here, and waits
        for consumer, _ in active.assignment.expire(now.monotonic_s):
            self._do(active, active.group.end_leases(now, consumer, EventKind.EXPIRED, "the consumer was not heard of"))
            self._wake_all(active)
        self._revoke(active)

    def _revoke(self, active: ActiveGroup) -> None:
        """Move what nobody is working on any more to its new owner."""
        assert active.assignment is not None
        for consumer in active.members:
            for partition in sorted(active.assignment.revoking(consumer)):
                if not active.group.leases.held_by(consumer, partition):
                    active.assignment.revoked(consumer, partition)
                    active.group.wake(partition)

    def _wake_all(self, active: ActiveGroup) -> None:
        for partition in range(len(self.indexes)):
            active.group.wake(partition)

    # What became of what was gathered.

    def published(self, log: Log, base: int, batch: Batch, time_us: int, size_bytes: int) -> None:
        """New messages are in the index."""
        for active in self.active_groups.values():
            active.group.wake(log.partition)
            if active.waiters:
                self._changed(self)
        if batch.deliver_at is not None or batch.expires_at is not None:
            self.next_us = 0
            self._changed(self)
        if any(active.group.is_near(log.partition, base) for active in self.active_groups.values()):
            rows = Rows(range(base, base + len(batch)), [time_us] * len(batch), batch)
            self._contents.keep(log, rows, size_bytes)

    def committed(self, partition: int, event: Event, now_us: int) -> None:
        """An event is on disk, and applied to the durable state."""
        if event.kind == EventKind.DELIVERED or event.kind == EventKind.EXTENDED:
            return
        if event.group is not None:
            if event.kind == EventKind.FORGOTTEN:
                self.active_groups.pop(event.group, None)
            elif (active := self.active_groups.get(event.group)) is not None:
                active.group.committed(partition, event, now_us)
                if event.due_us or active.group.claims[partition].lapsing:
                    self.next_us = 0
                if active.waiters or self.next_us == 0:
                    self._changed(self)
            return
        self._changed(self)
        offsets = offsets_of(event)
        index = self.indexes[partition]
        if event.kind == EventKind.RESCHEDULED:
            for offset in offsets:
                index.delay_again(offset, event.due_us)
            self.next_us = 0
        elif event.kind in _WITHDRAWN or event.kind in _GONE:
            index.uncover(offsets)
            for active in self.active_groups.values():
                if not (event.kind == EventKind.ARCHIVED and active.group.settings.archived):
                    active.group.withdraw(partition, offsets)
        if event.kind in _GONE and not (event.kind == EventKind.ARCHIVED and self.archived):
            index.forget(offsets)  # last: the keys of what goes were still needed

    def refused(self, partition: int, event: Event) -> None:
        """An event was not written: undo what was done for it."""
        self._changed(self)
        if event.group is not None:
            active = self.active_groups.get(event.group)
            if active is not None:
                active.deleting = active.deleting and event.kind != EventKind.FORGOTTEN
                active.group.refused(partition, event)
        elif event.kind in (EventKind.CANCELLED, EventKind.RESCHEDULED):
            for offset in offsets_of(event):
                self.indexes[partition].delay_again(offset, int(event.detail or 0))
        self.next_us = 0

    def wait(self, member: GroupMember, waiter: Waiter) -> None:
        """Have a waiter served."""
        active = self.active_groups[member.group]
        active.waiters.append(waiter)
        if active.group.settings.rate is not None:
            self.time_changed()

    def stop_waiting(self, member: GroupMember, waiter: Waiter) -> None:
        """It waits no longer."""
        active = self.active_groups.get(member.group)
        if active is not None and waiter in active.waiters:
            active.waiters.remove(waiter)

    def serve(self, now: Moment) -> None:
        """Give those who wait what is ready for them."""
        if self.next_us == 0:
            self.tick(now)
        for active in list(self.active_groups.values()):
            waiters = active.waiters
            for _ in range(len(waiters)):
                if active.group.idle:
                    break
                waiter = waiters.popleft()
                if waiter.done:
                    continue
                try:
                    picks = self._fetch_for(waiter, now)
                except BaseException:
                    waiter.served(self, [])  # it looks for itself, and hears what is wrong
                    raise
                if picks or not waiter.max_messages:
                    waiter.served(self, picks)
                else:
                    waiters.append(waiter)

    def _fetch_for(self, waiter: Waiter, now: Moment) -> list[Pick]:
        for member in waiter.members_in(self):
            picks = self._fetch(member, waiter.max_messages, waiter.visibility_s, now)
            if picks:
                return picks
        return []

    def close(self) -> None:
        """The topic is gone, or the broker is being closed: nobody waits any longer."""
        for active in self.active_groups.values():
            for waiter in active.waiters:
                waiter.served(self, [])

    def _active_of(self, member: GroupMember) -> ActiveGroup:
        active = self.active_groups.get(member.group)
        if self.topic.deleting:
            raise TopicNotFound(f"the topic {self.topic.name!r} was deleted")
        if active is None or active.members.get(member.consumer) is not member:
            raise LeaseLost(f"the consumer {member.consumer!r} is closed: what it held was given back")
        return active
