"""A topic without a disk: the state machines of delivery, a clock under the test's hand, and a log that can fail.

Commands put events into `log`. They are committed, refused or lost with a crash when the test says so, in the order
in which they were logged, and just as the broker does it (`penstock.shard.dispatch.topic_dispatcher`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from penstock.delivery.claims import Claims
from penstock.delivery.group import Group
from penstock.delivery.index import Columns, PartitionIndex
from penstock.delivery.lease_book import LeaseBook
from penstock.delivery.leases import Lease
from penstock.delivery.offsets import Offsets, offsets_of
from penstock.delivery.outcomes import Dying, Logged, Moment, Outcome, Pick
from penstock.delivery.partition import DeliveryState, PartitionState
from penstock.delivery.progress import Progress
from penstock.delivery.standing import Standing
from penstock.model.config import TopicConfig
from penstock.model.events import Event, EventKind
from penstock.model.group_settings import GroupSettings, encode_settings
from penstock.testing import VirtualClock

SECOND_US = 1_000_000
_WITHDRAWN = (EventKind.CANCELLED, EventKind.PURGED, EventKind.REDRIVEN)


def from_disk(state: PartitionState) -> PartitionState:
    """A state as a restart finds it in a checkpoint."""
    body = msgspec.msgpack.encode(state.state())
    return PartitionState.restore(msgspec.msgpack.decode(body, type=DeliveryState))


def taken(picks: Iterable[Pick]) -> list[int]:
    """The offsets of a fetch, in the order in which they are handed over."""
    return [offset for pick in picks for offset in pick.offsets]


def placed(picks: Iterable[Pick]) -> list[tuple[int, int]]:
    """The same, each with its partition."""
    return [(pick.lease.partition, offset) for pick in picks for offset in pick.offsets]


class PureTopic:
    """Partitions, their indexes, and the groups in use."""

    def __init__(self, partitions: int = 1, **config: object) -> None:
        self.config = TopicConfig.parse({"partitions": partitions, **config})
        self.clock = VirtualClock()
        self.states = [PartitionState() for _ in range(partitions)]
        self.published: list[list[Columns]] = [[] for _ in range(partitions)]
        self.indexes = self._built()
        self.groups: dict[str, Group] = {}
        self.log: list[Logged] = []
        self.dying: list[tuple[Group, Dying]] = []
        self.letters: list[tuple[str, int, int]] = []  # the dead: group, partition, offset
        self.book = LeaseBook()

    @property
    def now(self) -> Moment:
        return Moment(self.clock.wall_us(), self.clock.monotonic_s())

    def in_s(self, seconds: float) -> int:
        """A point in time, as messages carry it."""
        return self.clock.wall_us() + round(seconds * SECOND_US)

    # Messages and groups.

    def publish(
        self,
        number: int = 1,
        priority: int = 5,
        *,
        partition: int = 0,
        priorities: Sequence[int] | None = None,
        deliver_at: Sequence[int] | None = None,
        expires_at: Sequence[int] | None = None,
        keys: Sequence[bytes | None] | None = None,
    ) -> range:
        """Add messages, as many as a column says; their offsets."""
        index = self.indexes[partition]
        known = next((column for column in (priorities, deliver_at, expires_at, keys) if column is not None), None)
        number = number if known is None else len(known)
        lanes = None if priorities is None else bytes(priorities)
        columns = Columns(index.end, number, priority, lanes, deliver_at, expires_at, keys)
        self.published[partition].append(columns)
        index.add(columns)
        for group in self.groups.values():
            group.wake(partition)
        return range(columns.base, columns.base + number)

    def create(self, name: str, settings: GroupSettings | None = None, start: int = 0) -> Group:
        """A new group, in use."""
        detail = encode_settings(settings or GroupSettings())
        for state in self.states:
            state.apply(Event(EventKind.CREATED, self.now.wall_us, start, 0, name, detail=detail))
        return self.open(name)

    def open(self, name: str) -> Group:
        """A group that exists, put to use."""
        if name not in self.groups:
            progress = [state.groups[name] for state in self.states]
            claims = [Claims(*facts) for facts in zip(self.indexes, progress, strict=True)]
            self.groups[name] = Group(name, self.config, claims, self.book)
        return self.groups[name]

    def progress(self, group: str = "g", partition: int = 0) -> Progress:
        return self.states[partition].groups[group]

    # What consumers do.

    def fetch(
        self, group: str = "g", number: int = 100, consumer: str = "c", visibility_s: float | None = None
    ) -> list[Pick]:
        self.open(group)
        self.tick()
        picks, events = self.open(group).fetch(self.now, consumer, number, visibility_s)
        self.log += events
        return picks

    def take(self, group: str = "g", number: int = 100, consumer: str = "c") -> list[int]:
        """Fetch, and ack at once."""
        picks = self.fetch(group, number, consumer)
        for pick in picks:
            self.ack(pick.lease, pick.offsets, group)
        self.commit()
        return taken(picks)

    def ack(self, lease: Lease, offsets: Iterable[int] | None = None, group: str = "g") -> list[int]:
        """What was refused of it; so also the next ones."""
        return self._settle(group, lease, offsets, lambda held, some, out: held.ack(self.now, lease, some, out))

    def extend(self, lease: Lease, seconds: float, offsets: Iterable[int] | None = None, group: str = "g") -> list[int]:
        return self._settle(
            group, lease, offsets, lambda held, some, out: held.extend(self.now, lease, some, seconds, out)
        )

    def release(self, lease: Lease, offsets: Iterable[int] | None = None, group: str = "g") -> list[int]:
        return self._settle(group, lease, offsets, lambda held, some, out: held.release(self.now, lease, some, out))

    def fail(
        self,
        lease: Lease,
        offsets: Iterable[int] | None = None,
        group: str = "g",
        delay_s: float | None = None,
    ) -> list[int]:
        return self._settle(
            group, lease, offsets, lambda held, some, out: held.fail(self.now, lease, some, "broken", delay_s, out)
        )

    def kill(self, lease: Lease, offsets: Iterable[int] | None = None, group: str = "g") -> list[int]:
        return self._settle(group, lease, offsets, lambda held, some, out: held.kill(lease, some, "hopeless", out))

    def leave(self, consumer: str, group: str = "g", kind: EventKind = EventKind.RELEASED) -> None:
        """A consumer goes away."""
        self._do(self.open(group), self.open(group).end_leases(self.now, consumer, kind, "it is gone"))

    def seek(self, offset: int, group: str = "g", partition: int = 0) -> None:
        self.open(group).pause(partition)
        self.log.append((partition, Event(EventKind.SOUGHT, self.now.wall_us, offset, 0, group)))

    def redrive(self, offset: int, group: str = "g", partition: int = 0) -> None:
        self.log.append((partition, Event(EventKind.REDRIVEN, self.now.wall_us, offset, 1, group)))

    def purge(self, offset: int, partition: int = 0) -> None:
        self.log.append((partition, Event(EventKind.PURGED, self.now.wall_us, offset, 1)))

    def cancel(self, offset: int, partition: int = 0) -> bool:
        """Take a delayed message back; whether it was delayed."""
        self.tick()
        due_us = self._due_us(offset, partition)
        if not self.indexes[partition].hold(offset):
            return False
        event = Event(EventKind.CANCELLED, self.now.wall_us, offset, 1, detail=str(due_us))
        self.log.append((partition, event))
        return True

    def reschedule(self, offset: int, due_us: int, partition: int = 0) -> bool:
        """Give a delayed message another time; whether it was delayed."""
        self.tick()
        old_us = self._due_us(offset, partition)
        if not self.indexes[partition].hold(offset):
            return False
        event = Event(EventKind.RESCHEDULED, self.now.wall_us, offset, 1, detail=str(old_us), due_us=due_us)
        self.log.append((partition, event))
        return True

    # Time and the log.

    def advance(self, seconds: float) -> None:
        """Let time pass, and do what becomes due."""
        self.clock.advance(seconds)
        self.tick()

    def tick(self) -> None:
        now = self.now
        for number, index in enumerate(self.indexes):
            due, ended = index.fall_due(now.wall_us), index.lapse(now.wall_us)
            for group in self.groups.values():
                group.claims[number].show(due)
                group.wake(number)
                group.claims[number].lapse(ended)
        for group in self.groups.values():
            self._do(group, group.tick(now))

    def bury(self) -> None:
        """Log the death of everything that is dying."""
        waiting, self.dying = self.dying, []
        for group, dying in waiting:
            self.log += group.bury(dying, self.now.wall_us)

    def commit(self, number: int | None = None) -> None:
        """The first events of the log are on disk: so many, or all, also those of the dead."""
        if number is None:
            self.bury()
        ready, self.log = self.log[:number], self.log[len(self.log) if number is None else number :]
        for partition, event in ready:
            self.states[partition].apply(event)
            self._committed(partition, event)

    def refuse(self, number: int | None = None) -> None:
        """The first events of the log could not be written."""
        if number is None:
            self.bury()
        ready, self.log = self.log[:number], self.log[len(self.log) if number is None else number :]
        for partition, event in ready:
            if event.group is not None:
                self.open(event.group).refused(partition, event)
            elif event.kind in (EventKind.CANCELLED, EventKind.RESCHEDULED):
                self.indexes[partition].delay_again(event.offset, int(event.detail or 0))

    def crash(self, *opened: str) -> None:
        """Lose everything that is not on disk, and start again with some groups in use (else: with all)."""
        self.log, self.dying = [], []
        self.states = [from_disk(state) for state in self.states]
        self.indexes = self._built()
        self.groups = {}
        for name in opened or self.states[0].groups:
            self.open(name)
        self.tick()

    def account(self, group: str = "g", partition: int = 0, twice: int = 0) -> dict[str, int]:
        """What has become of the messages of a partition (Q1), without the nothings.

        So many of them count twice: withdrawn from all groups while this one was about to settle them.
        """
        claims, progress = self.open(group).claims[partition], self.progress(group, partition)
        counts = {
            **msgspec.structs.asdict(progress.tally),
            "ready": claims.ready(),
            "held": claims.held,
            "waiting": claims.waiting(),
            "delayed": claims.delayed(),
            "lapsing": len(claims.lapsing),
        }
        published = max(0, self.indexes[partition].end - progress.start)
        assert sum(claims.ready_by_lane().values()) == counts["ready"]
        assert min(counts.values()) >= 0, f"Q1: {counts}"
        assert sum(counts.values()) - twice == published, f"Q1: {published} messages, and {counts}"
        assert published - progress.tally.total() == progress.backlog(self.indexes[partition].end)
        standing = Standing()
        standing.add(self.indexes[partition].end, progress, claims)
        assert standing.published == published
        assert standing.ready == max(0, counts["ready"] - twice), f"Q1: {standing}, and {counts}"
        return {name: number for name, number in counts.items() if number}

    def _built(self) -> list[PartitionIndex]:
        indexes = [PartitionIndex(0, state, by_key=self.config.order == "key") for state in self.states]
        for index, batches in zip(indexes, self.published, strict=True):
            for columns in batches:
                index.add(columns)
        return indexes

    def _settle(
        self,
        name: str,
        lease: Lease,
        offsets: Iterable[int] | None,
        act: Callable[[Group, Offsets, Outcome], None],
    ) -> list[int]:
        group, outcome = self.open(name), Outcome()
        self.tick()
        some = Offsets(lease.messages if offsets is None else offsets)
        if group.leases.is_of(lease, lease.consumer):
            act(group, some, outcome)
        else:
            outcome.refused = some
        self._do(group, outcome)
        return list(outcome.refused)

    def _do(self, group: Group, outcome: Outcome) -> None:
        self.log += outcome.events
        self.dying += [(group, dying) for dying in outcome.dying]

    def _committed(self, partition: int, event: Event) -> None:
        offsets = offsets_of(event)
        if event.kind == EventKind.DEAD:
            self.letters += [(event.group or "", partition, offset) for offset in offsets]
        if event.group is not None:
            if event.group in self.groups:
                self.groups[event.group].committed(partition, event, self.now.wall_us)
        elif event.kind == EventKind.RESCHEDULED:
            self.indexes[partition].delay_again(event.offset, event.due_us)
        elif event.kind in _WITHDRAWN:
            self.indexes[partition].uncover(offsets)
            for group in self.groups.values():
                group.claims[partition].withdraw(offsets)

    def _due_us(self, offset: int, partition: int) -> int:
        """When a delayed message falls due, by what was written."""
        for columns in self.published[partition]:
            if columns.deliver_at is not None and columns.base <= offset < columns.base + columns.count:
                return self.states[partition].moved.get(offset, columns.deliver_at[offset - columns.base])
        return 0
