"""What a consumer does, without waiting: both faces of it stand on this."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.delivery.group import Group
from penstock.delivery.leases import Lease
from penstock.delivery.offsets import Offsets
from penstock.delivery.outcomes import Outcome, Pick
from penstock.journal import Commit
from penstock.model.batch import select
from penstock.model.bounds import shown
from penstock.model.errors import BrokerClosed, InvalidArgument, LeaseLost, PenstockError
from penstock.model.message import MessageId
from penstock.model.names import check_group_name
from penstock.model.options import duration, whole
from penstock.model.schedules import check_open_topic
from penstock.model.units import Duration, Time, due_time_us, parse_duration
from penstock.segments.window import Rows
from penstock.shard.dispatch.topic_dispatcher import TopicDispatcher
from penstock.shard.dispatch.waiting import Fetched, GroupMember, Members, Waiter
from penstock.shard.operations.burying import bury
from penstock.shard.operations.leased_messages import Leased, LeasedMessage, hold_unseen, leased_of, offsets_by_lease
from penstock.shard.reading.contents import Unreadable

if TYPE_CHECKING:
    from penstock.log.partition_log import Log
    from penstock.shard.shard import Shard

Act = Callable[[Group, Lease, Offsets, Outcome], None]

Message = TypeVar("Message", bound=LeasedMessage)


class Consuming(Generic[Message]):
    """One consumer: a member of a group in each of its topics, and what it may do there."""

    def __init__(
        self,
        shard: Shard,
        message_class: type[Message],
        topics: str | Sequence[str],
        group: str,
        *,
        mode: str,
        max_in_flight: int,
        visibility_timeout: Duration | None,
        session_timeout: Duration,
        start: str | Time,
        name: str | None,
    ) -> None:
        self._shard = shard
        self._dispatcher = shard.dispatcher
        self._class = message_class
        names = [topics] if isinstance(topics, str) else list(topics) if isinstance(topics, Iterable) else []
        if not names or len({check_open_topic(name) for name in names}) < len(names):
            raise InvalidArgument(f"{shown(topics)} is not a topic or a list of different topics")
        if mode not in ("shared", "assigned"):
            raise InvalidArgument(f"{shown(mode)} is not a mode: give 'shared' or 'assigned'")
        check_group_name(group)
        self.group = group
        self.name = self._dispatcher.new_consumer_name() if name is None else check_group_name(name, "consumer")
        self.max_in_flight = whole(1, 1_000_000)(max_in_flight)
        visibility_s = None if visibility_timeout is None else duration(0.001)(visibility_timeout)
        session_s = duration(0.001)(session_timeout)
        self.members: Members = []
        self._by_topic: dict[str, tuple[TopicDispatcher, GroupMember]] = {}
        self.closed = False
        try:
            for topic in names:
                delivery = self._dispatcher.open_group(topic, group, start)
                member = GroupMember(self.name, group, mode, self.max_in_flight, visibility_s, session_s)
                with shard.lock:
                    delivery.join(member, self._dispatcher.now())
                self.members.append((delivery, member))
                self._by_topic[topic] = (delivery, member)
        except BaseException:
            self.close()
            raise

    # Receiving.

    def fetch(self, max_messages: int, visibility_s: float | None, partition: int | None = None) -> Fetched:
        """Lease what is ready, in all partitions or in one, of as many topics as it takes."""
        if self.closed:
            raise BrokerClosed(f"the consumer {self.name!r} is closed")
        return self._dispatcher.fetch(self.members, max_messages, visibility_s, partition)

    def fetch_now(self, max_messages: int, visibility_s: float | None, partition: int | None = None) -> Fetched:
        """As `fetch`, for whoever does not hold the state lock: most find something, and need no waiter."""
        with self._shard.lock:
            return self.fetch(max_messages, visibility_s, partition)

    def waiter(self, max_messages: int, visibility_s: float | None, wake: Callable[[], None]) -> Waiter:
        """A request for messages, which takes what is ready or waits for it."""
        return Waiter(self, self._shard.lock, max_messages, visibility_s, wake)

    def must_read_segments(self, found: Fetched) -> bool:
        """Whether getting the content may take milliseconds."""
        are_far = self._dispatcher.contents.are_far
        return any(are_far(_log_of(delivery, pick.lease), pick.offsets) for delivery, picks in found for pick in picks)

    def messages(self, fetched: Fetched, owner: object = None) -> list[Message]:
        """The messages that were leased; what cannot be read fails, and does not stand in the way of the rest.

        `owner` is the face of the consumer, through which they are finished.
        """
        found: list[Message] = []
        for delivery, picks in fetched:
            found += self._messages_of(delivery, picks, owner)
        return found

    def _messages_of(self, delivery: TopicDispatcher, picks: list[Pick], owner: object) -> list[Message]:
        """What one lease took from several lanes is read once, and then put in the order of the picks."""
        whole: dict[Lease, Offsets] = {}
        for pick in picks:
            pick.lease.owner = owner
            known = whole.get(pick.lease)
            whole[pick.lease] = pick.offsets if known is None else known | pick.offsets
        read = {lease: self._read(delivery, lease, offsets) for lease, offsets in whole.items()}
        found: list[Message] = []
        for pick in picks:
            messages = read[pick.lease]
            if len(pick.offsets) == len(whole[pick.lease]):
                found += messages
            elif messages and messages[-1].offset - messages[0].offset + 1 == len(messages):
                first, last = messages[0].offset, messages[-1].offset
                places = [offset - first for offset in pick.offsets.to_array() if first <= offset <= last]
                found += select(messages, places)
            else:
                found += [message for message in messages if message.offset in pick.offsets]
        return found

    def _read(self, delivery: TopicDispatcher, lease: Lease, wanted: Offsets) -> list[Message]:
        """The messages at these offsets; those that cannot be read fail."""
        found: list[Message] = []
        for offsets, timestamps_us, batch in self.rows(delivery, lease, wanted):
            count = len(offsets)
            nothing = [None] * count
            found += map(
                self._class,
                [delivery.topic.name] * count,
                [lease.partition] * count,
                offsets,
                timestamps_us,
                batch.values,
                batch.keys or nothing,
                batch.headers or nothing,
                batch.priorities or [batch.priority] * count,
                nothing if batch.deliver_at is None else [time_us or None for time_us in batch.deliver_at],
                batch.dedupe_ids or nothing,
                nothing if batch.expires_at is None else [time_us or None for time_us in batch.expires_at],
                [lease] * count,
            )
        return found

    def rows(self, delivery: TopicDispatcher, lease: Lease, wanted: Offsets) -> list[Rows]:
        """The content at these offsets as columns; what cannot be read fails."""
        unreadable: Unreadable = []
        found = list(self._dispatcher.contents.rows(_log_of(delivery, lease), wanted, unreadable))
        self._fail_unreadable(delivery, lease, unreadable)
        return found

    def rows_to_send(self, delivery: TopicDispatcher, lease: Lease, wanted: Offsets, bytes_max: int) -> list[Rows]:
        """The same for whoever sends them on: of what is encoded already, up to so many bytes, there are no values."""
        unreadable: Unreadable = []
        log = _log_of(delivery, lease)
        found = list(self._dispatcher.contents.rows_to_send(log, wanted, bytes_max, unreadable))
        self._fail_unreadable(delivery, lease, unreadable)
        return found

    def _fail_unreadable(self, delivery: TopicDispatcher, lease: Lease, unreadable: Unreadable) -> None:
        for lost, error in unreadable:
            self._fail_lost(delivery, lease, lost, f"it cannot be read: {error}")

    def _fail_lost(self, delivery: TopicDispatcher, lease: Lease, offsets: Offsets, reason: str) -> None:
        now = self._dispatcher.now()
        self.finish_leases(
            delivery,
            self._by_topic[delivery.topic.name][1],
            [(lease, offsets)],
            lambda group, lease, offsets, outcome: group.fail(now, lease, offsets, reason, None, outcome),
        )
        if self._dispatcher.dying and not self._shard.journal.is_slow:  # or the thread that keeps time does it
            bury(self._shard)

    def give_back(self, found: Fetched) -> None:
        """Whoever they were taken for has gone."""
        now = self._dispatcher.now()
        for delivery, picks in found:
            with contextlib.suppress(PenstockError):  # they are not held any more
                self.finish_leases(
                    delivery,
                    self._by_topic[delivery.topic.name][1],
                    [(pick.lease, pick.offsets) for pick in picks],
                    lambda group, lease, offsets, outcome: group.release(now, lease, offsets, outcome, "not received"),
                )

    def ahead(self, window: int) -> int:
        """How many of `window` messages to hold ready: one while there are lanes, which must not be overtaken."""
        lanes = max((len(index.lanes) for delivery, _ in self.members for index in delivery.indexes), default=1)
        return min(self.max_in_flight, window if lanes <= 1 else min(window, 1))

    def hold_unseen(self, messages: list[Message]) -> None:
        """Nobody has seen these yet: if their leases run out, it was no fault of theirs."""
        for lease, offsets in offsets_by_lease(messages):
            hold_unseen(lease, offsets)

    def take(self, leased: Leased) -> None:
        """Somebody sees messages that were held ready: their time begins anew."""
        now_s = self._shard.clock.monotonic_s()
        with self._shard.lock:
            for topic, leases in leased.by_topic.items():
                delivery, member = self._by_topic[topic]
                active = delivery.active_groups.get(member.group)
                for lease, offsets in leases:
                    if lease.unseen is not None:
                        lease.unseen -= offsets
                    if active is not None and lease.deadline_s - now_s < 0.9 * lease.visibility_s:
                        active.group.leases.extend(lease, offsets, now_s + lease.visibility_s)

    # Settling.

    def ack(self, messages: Iterable[Message] | Leased) -> tuple[Commit | None, LeaseLost | None]:
        """They are done."""
        now = self._dispatcher.now()
        return self._finish(messages, lambda group, lease, offsets, outcome: group.ack(now, lease, offsets, outcome))

    def extend(self, messages: Iterable[Message] | Leased, seconds: Duration) -> tuple[Commit | None, LeaseLost | None]:
        """They are needed for longer."""
        now, wanted_s = self._dispatcher.now(), parse_duration(seconds)
        return self._finish(
            messages, lambda group, lease, offsets, outcome: group.extend(now, lease, offsets, wanted_s, outcome)
        )

    def release(self, messages: Iterable[Message] | Leased) -> tuple[Commit | None, LeaseLost | None]:
        """They are given back."""
        now = self._dispatcher.now()
        return self._finish(
            messages, lambda group, lease, offsets, outcome: group.release(now, lease, offsets, outcome)
        )

    def fail(
        self, messages: Iterable[Message] | Leased, reason: str, delay: Duration | None
    ) -> tuple[Commit | None, LeaseLost | None]:
        """They could not be processed."""
        now = self._dispatcher.now()
        delay_s = None if delay is None else (due_time_us(delay, None, now.wall_us) - now.wall_us) / 1_000_000
        text = _check_reason(reason)
        return self._finish(
            messages,
            lambda group, lease, offsets, outcome: group.fail(now, lease, offsets, text, delay_s, outcome),
            buries=True,
        )

    def kill(self, messages: Iterable[Message] | Leased, reason: str) -> tuple[Commit | None, LeaseLost | None]:
        """They can never be processed."""
        text = _check_reason(reason)
        leased = leased_of(messages)
        for topic in leased.by_topic:
            if topic in self._by_topic:
                self._by_topic[topic][0].check_dead_letters_allowed()
        return self._finish(
            leased, lambda group, lease, offsets, outcome: group.kill(lease, offsets, text, outcome), buries=True
        )

    def find_leased(self, held: Iterable[tuple[str, int, int, Offsets]]) -> Leased:
        """The leases of messages that are named by topic, partition, lease id and offsets."""
        leased = Leased()
        with self._shard.lock:
            for topic, partition, lease_id, offsets in held:
                known = self._by_topic.get(topic)
                lease = None if known is None else known[0].find_lease(known[1], lease_id, partition, offsets)
                leased.count += len(offsets)
                if lease is None:
                    leased.unknown += [MessageId(topic, partition, offset) for offset in offsets]
                else:
                    leased.by_topic.setdefault(topic, []).append((lease, offsets))
        return leased

    @property
    def in_flight(self) -> int:
        """How many messages it holds."""
        with self._shard.lock:
            active_groups = (
                (delivery.active_groups.get(member.group), member.consumer) for delivery, member in self.members
            )
            return sum(
                active.group.leases.in_flight[consumer] for active, consumer in active_groups if active is not None
            )

    def assignment(self) -> dict[str, list[int]]:
        """The partitions of each topic that it gets messages from: all, where consumers share the work."""
        found: dict[str, list[int]] = {}
        with self._shard.lock:
            for delivery, member in self.members:
                active = delivery.active_groups.get(member.group)
                assigned = None if active is None else active.assignment
                owned = delivery.topic.own_partitions if assigned is None else assigned.owned(member.consumer)
                found[delivery.topic.name] = sorted(owned)
        return found

    def heartbeat(self) -> None:
        """It is alive."""
        with self._shard.lock:
            for delivery, member in self.members:
                delivery.heartbeat(member, self._dispatcher.now())

    def ack_one(self, message: LeasedMessage) -> tuple[Commit | None, LeaseLost | None]:
        """It is done: as `ack`, with nothing made that one message does not need."""
        known = self._by_topic.get(message.topic)
        with self._shard.lock:
            self._dispatcher.check_open()
            acked = known is not None and known[0].ack_run(
                known[1], message.lease, message.offset, 1, self._dispatcher.now()
            )
            commit = self._shard.journal.latest_commit()
        return commit, None if acked else LeaseLost.of([message.id], 1)

    def ack_held(self, topic: str, partition: int, lease_id: int, first: int, count: int) -> Commit | None:
        """As `ack` for all that a lease holds, or for one message; None, and nothing done, if they are neither."""
        known = self._by_topic.get(topic)
        if known is None:
            return None
        delivery, member = known
        with self._shard.lock:
            active = delivery.active_groups.get(member.group)
            lease = None if active is None else active.group.leases.living(lease_id, partition)
            if lease is None:
                return None
            self._dispatcher.check_open()
            acked = delivery.ack_run(member, lease, first, count, self._dispatcher.now())
            return self._shard.journal.latest_commit() if acked else None

    def _finish(
        self, messages: Iterable[Message] | Leased, act: Act, buries: bool = False
    ) -> tuple[Commit | None, LeaseLost | None]:
        leased = leased_of(messages)
        lost = leased.unknown
        with self._shard.lock:
            self._dispatcher.check_open()
            for topic, leases in leased.by_topic.items():
                known = self._by_topic.get(topic)
                if known is None:
                    refused = [(lease.partition, offsets) for lease, offsets in leases]
                else:
                    refused = known[0].finish(known[1], leases, self._dispatcher.now(), act)
                lost += [MessageId(topic, partition, offset) for partition, offsets in refused for offset in offsets]
            commit = self._shard.journal.latest_commit()  # of these, and not of what others gather after them
        if buries and self._dispatcher.dying:
            bury(self._shard)
            if commit is not None and commit.failed:
                commit.result()  # burying commits what was gathered before, or hears that it is refused
            with self._shard.lock:
                commit = self._shard.journal.latest_commit()
        return commit, LeaseLost.of(lost, leased.count) if lost else None

    def finish_leases(
        self, delivery: TopicDispatcher, member: GroupMember, leases: list[tuple[Lease, Offsets]], act: Act
    ) -> list[tuple[int, Offsets]]:
        """Do something to leased messages of a topic; those that are not leased by this consumer."""
        with self._shard.lock:
            self._dispatcher.check_open()
            return delivery.finish(member, leases, self._dispatcher.now(), act)

    @property
    def is_void(self) -> bool:
        """Whether it cannot get messages any more, for a topic of it was deleted."""
        return not all(self._dispatcher.in_use.is_current(delivery) for delivery, _ in self.members)

    def close(self) -> Commit | None:
        """Give back what is held, and leave."""
        self.closed = True
        if self._shard.closed:
            return None
        with self._shard.lock:
            if self._shard.journal.frozen is None and not self._shard.closed:
                for delivery, member in self.members:
                    if self._dispatcher.in_use.is_current(delivery):
                        delivery.leave(member, self._dispatcher.now())
            return self._shard.journal.latest_commit()


def _log_of(delivery: TopicDispatcher, lease: Lease) -> Log:
    return delivery.topic.partitions[lease.partition].messages


def _check_reason(reason: object) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidArgument(f"{shown(reason)} is not a reason: say in a few words what went wrong")
    return reason[:1000].encode(errors="replace").decode()
