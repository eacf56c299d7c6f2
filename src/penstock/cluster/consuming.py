"""A consumer whose topics live in several shards: it is a member in each of them, and merges what they have.

Shards take turns at being asked first. All that it holds counts against one window, wherever it came from. The best
lanes are first within a shard; between shards there is no such order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic

from penstock.cluster.shards import Shards
from penstock.cluster.slices import find
from penstock.delivery.leases import Lease
from penstock.delivery.offsets import Offsets
from penstock.journal import Commit, together
from penstock.model.errors import LeaseLost, PenstockError
from penstock.model.names import check_topic_names
from penstock.model.placement import is_slice, whole_name
from penstock.model.schedules import check_open_topic
from penstock.model.units import Duration
from penstock.segments.window import Rows
from penstock.shard.dispatch.topic_dispatcher import TopicDispatcher
from penstock.shard.dispatch.waiting import Fetched, Waiter
from penstock.shard.operations.consuming import Consuming, Message
from penstock.shard.operations.leased_messages import Leased, LeasedMessage, leased_of
from penstock.shard.shard import Shard

Outcome = tuple[Commit | None, LeaseLost | None]
"""What to wait for, and what was not held."""


def consume(
    shards: Shards, message_class: type[Message], topics: str | Sequence[str], group: str, **options: Any
) -> AnyConsuming[Message]:
    """A new consumer, of one shard or of several; the options are those of `Consuming`."""
    if shards.count == 1:
        return Consuming(shards.only, message_class, topics, group, **options)
    by_shard: dict[Shard, list[str]] = {}
    slices: dict[str, Sequence[Shard]] = {}
    for topic in _names_of(topics):
        name, slices[name] = find(shards, topic)
        for shard in slices[name]:
            by_shard.setdefault(shard, []).append(check_open_topic(name))
    if options["name"] is None:
        options["name"] = _new_name(shards, next(iter(by_shard)))
    parts: list[Consuming[Message]] = []
    try:
        for shard, names in by_shard.items():
            parts.append(Consuming(shard, message_class, names, group, **options))
    except BaseException:
        for part in parts:
            part.close()
        raise
    return parts[0] if len(parts) == 1 else MergedConsuming(dict(zip(by_shard, parts, strict=True)), slices)


def _names_of(topics: str | Sequence[str]) -> list[str]:
    """The topics, or slices of different topics, of a consumer."""
    names = [topics] if isinstance(topics, str) else topics
    if isinstance(names, list) and any(map(is_slice, names)):
        check_topic_names([whole_name(name) if is_slice(name) else name for name in names])
        return names
    return check_topic_names(topics)


def _by_slice(
    topic: str, parts: Mapping[Shard, Consuming[Message]], shards: Sequence[Shard]
) -> tuple[int, dict[int, Consuming[Message]]]:
    """How many slices a topic has, and the parts that have some of them."""
    known = {shard: shard.topic(topic) for shard in shards}
    return known[shards[0]].config.spread, {known[shard].slice: parts[shard] for shard in shards}


def _new_name(shards: Shards, shard: Shard) -> str:
    """A name that no other consumer of the broker has: each shard counts for itself, so its number is in it."""
    number = next(number for number, held in shards.items() if held is shard)
    return shard.dispatcher.new_consumer_name().replace("-", f"-{number}.", 1)


class MergedConsuming(Generic[Message]):
    """As `Consuming`, for topics of several shards."""

    def __init__(self, parts: Mapping[Shard, Consuming[Message]], slices: Mapping[str, Sequence[Shard]]) -> None:
        """`parts` by shard, and where the slices of each topic are that it is about: mostly one."""
        self._parts = list(parts.values())
        self._shards = {part: shard for shard, part in parts.items()}
        self._by_topic = {topic: _by_slice(topic, parts, some) for topic, some in slices.items()}
        self._by_delivery = {delivery: part for part in self._parts for delivery, _ in part.members}
        self._fetching = threading.Lock()
        self._waiters: list[MergedWaiter[Message]] = []
        first = self._parts[0]
        self.name, self.group, self.max_in_flight = first.name, first.group, first.max_in_flight

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._parts[0].closed

    @property
    def is_void(self) -> bool:
        """Whether it cannot get messages any more, for a topic of it was deleted."""
        return any(part.is_void for part in self._parts)

    @property
    def in_flight(self) -> int:
        """How many messages it holds."""
        return sum(part.in_flight for part in self._parts)

    # Receiving.

    def fetch_now(self, max_messages: int, visibility_s: float | None, partition: int | None = None) -> Fetched:
        """Lease what is ready, shard after shard until there is enough."""
        found: Fetched = []
        visited = 0
        with self._fetching:
            wanted = min(max_messages, self.max_in_flight - self.in_flight)
            try:
                while wanted > 0 and visited < len(self._parts):
                    some = self._parts[visited].fetch_now(wanted, visibility_s, partition)
                    visited += 1
                    found += some
                    wanted -= sum(len(pick.offsets) for _, picks in some for pick in picks)
            except PenstockError:
                if not found:
                    raise  # else what was leased is handed out, and the next call hears what is wrong
            self._parts = self._parts[visited:] + self._parts[:visited]
        return found

    def waiter(self, max_messages: int, visibility_s: float | None, wake: Callable[[], None]) -> MergedWaiter[Message]:
        """A request for messages, which takes what is ready or waits for it."""
        return MergedWaiter(self, max_messages, visibility_s, wake)

    def watch(self, waiter: MergedWaiter[Message], wake: Callable[[], None]) -> list[Waiter]:
        """Have a waiter woken when there may be something for it: in a shard, or because room was made."""
        watchers = [part.waiter(0, None, wake) for part in self._parts]
        self._waiters.append(waiter)
        for watcher in watchers:
            watcher.watch()
        return watchers

    def unwatch(self, waiter: MergedWaiter[Message], watchers: list[Waiter]) -> None:
        """It waits no longer."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        for watcher in watchers:
            watcher.give_up()

    def must_read_segments(self, found: Fetched) -> bool:
        """Whether getting the content may take milliseconds."""
        return any(self._part_of(delivery).must_read_segments([(delivery, picks)]) for delivery, picks in found)

    def messages(self, fetched: Fetched, owner: object = None) -> list[Message]:
        """The messages that were leased."""
        found: list[Message] = []
        for delivery, picks in fetched:
            found += self._part_of(delivery).messages([(delivery, picks)], owner)
        return found

    def give_back(self, found: Fetched) -> None:
        """Whoever they were taken for has gone; once it is durable, they can be taken again."""
        for delivery, picks in found:
            self._part_of(delivery).give_back([(delivery, picks)])
        for part in {self._part_of(delivery) for delivery, _ in found}:
            journal = self._shards[part].journal
            commit = journal.wake_flusher if journal.is_slow else journal.flush
            commit()  # what else is waited for now may be in other shards
        self._made_room()

    def ahead(self, window: int) -> int:
        """How many of `window` messages to hold ready."""
        return min(part.ahead(window) for part in self._parts)

    def rows_to_send(self, delivery: TopicDispatcher, lease: Lease, wanted: Offsets, bytes_max: int) -> list[Rows]:
        """The content of what was leased, for whoever sends it on."""
        return self._part_of(delivery).rows_to_send(delivery, lease, wanted, bytes_max)

    def hold_unseen(self, messages: list[Message]) -> None:
        """Nobody has seen these yet."""
        self._parts[0].hold_unseen(messages)

    def take(self, leased: Leased) -> None:
        """Somebody sees messages that were held ready."""
        for part, some in self._by_part(leased):
            part.take(some)

    # Finishing.

    def ack(self, messages: Iterable[Message] | Leased) -> Outcome:
        """They are done."""
        return self._finish(messages, lambda part, leased: part.ack(leased))

    def ack_one(self, message: LeasedMessage) -> Outcome:
        """It is done."""
        part = self._part_with(message.topic, message.partition)
        if part is None:
            return None, LeaseLost.of([message.id], 1)
        outcome = part.ack_one(message)
        self._made_room()
        return outcome

    def ack_held(self, topic: str, partition: int, lease_id: int, first: int, count: int) -> Commit | None:
        """As `ack` for all that a lease holds, or for one message; None, and nothing done, if they are neither."""
        part = self._part_with(topic, partition)
        commit = None if part is None else part.ack_held(topic, partition, lease_id, first, count)
        if commit is not None:
            self._made_room()
        return commit

    def extend(self, messages: Iterable[Message] | Leased, seconds: Duration) -> Outcome:
        """They are needed for longer."""
        return self._finish(messages, lambda part, leased: part.extend(leased, seconds))

    def release(self, messages: Iterable[Message] | Leased) -> Outcome:
        """They are given back."""
        return self._finish(messages, lambda part, leased: part.release(leased))

    def fail(self, messages: Iterable[Message] | Leased, reason: str, delay: Duration | None) -> Outcome:
        """They could not be processed."""
        return self._finish(messages, lambda part, leased: part.fail(leased, reason, delay))

    def kill(self, messages: Iterable[Message] | Leased, reason: str) -> Outcome:
        """They can never be processed."""
        return self._finish(messages, lambda part, leased: part.kill(leased, reason))

    def find_leased(self, held: Iterable[tuple[str, int, int, Offsets]]) -> Leased:
        """The leases of messages that are named by topic, partition, lease id and offsets."""
        by_part: dict[Consuming[Message], list[tuple[str, int, int, Offsets]]] = {}
        for named in held:
            by_part.setdefault(self._part_with(named[0], named[1]) or self._parts[0], []).append(named)
        leased = Leased()
        for part, some in by_part.items():
            found = part.find_leased(some)
            for topic, leases in found.by_topic.items():
                leased.by_topic.setdefault(topic, []).extend(leases)
            leased.unknown += found.unknown
            leased.count += found.count
        return leased

    def assignment(self) -> dict[str, list[int]]:
        """The partitions of each topic that it gets messages from."""
        found: dict[str, list[int]] = {}
        for part in self._parts:
            for topic, owned in part.assignment().items():
                found.setdefault(topic, []).extend(owned)
        return {topic: sorted(owned) for topic, owned in found.items()}

    def heartbeat(self) -> None:
        """It is alive."""
        for part in self._parts:
            part.heartbeat()

    def close(self) -> Commit | None:
        """Give back what is held, and leave."""
        return together([part.close() for part in self._parts])

    def _finish(
        self, messages: Iterable[Message] | Leased, act: Callable[[Consuming[Message], Leased], Outcome]
    ) -> Outcome:
        leased = leased_of(messages)
        outcomes = [act(part, some) for part, some in self._by_part(leased)]
        self._made_room()
        lost = [identity for _, error in outcomes if error is not None for identity in error.ids]
        commit = together([commit for commit, _ in outcomes])
        return commit, LeaseLost.of(lost, leased.count) if lost else None

    def _by_part(self, leased: Leased) -> list[tuple[Consuming[Message], Leased]]:
        """What is leased, by the part that leased it; the first part has what nobody knows."""
        found: dict[Consuming[Message], Leased] = {}
        for topic, leases in leased.by_topic.items():
            for lease, offsets in leases:
                part = self._part_with(topic, lease.partition) or self._parts[0]
                some = found.setdefault(part, Leased())
                some.by_topic.setdefault(topic, []).append((lease, offsets))
                some.count += len(offsets)
        if leased.unknown or not found:
            first = found.setdefault(self._parts[0], Leased())
            first.unknown += leased.unknown
            first.count += len(leased.unknown)
        return list(found.items())

    def _part_of(self, delivery: TopicDispatcher) -> Consuming[Message]:
        return self._by_delivery[delivery]

    def _part_with(self, topic: str, partition: int) -> Consuming[Message] | None:
        """The part that has a partition: they are dealt to the slices of a topic in turn."""
        count, slices = self._by_topic.get(topic, (1, {}))
        return slices.get(partition % count)

    def _made_room(self) -> None:
        """Something was finished: those who wait may find that the window has room again."""
        for waiter in list(self._waiters):
            waiter.wake()


class MergedWaiter(Generic[Message]):
    """As `Waiter`, for topics of several shards: woken by any of them, it looks into all."""

    def __init__(
        self,
        consumer: MergedConsuming[Message],
        max_messages: int,
        visibility_s: float | None,
        wake: Callable[[], None],
    ) -> None:
        self._consumer, self._on_wake = consumer, wake
        self.max_messages, self.visibility_s = max_messages, visibility_s
        self._lock = threading.Lock()
        self._watchers: list[Waiter] | None = None
        self._woken = True

    def take(self, *, waits: bool) -> Fetched | None:
        """What is ready; an empty list if nothing is, and None if it `waits` for that."""
        if waits and not self._woken:
            return None
        was_waiting = self._watchers is not None
        self.give_up()
        if was_waiting and self._consumer.closed:
            return []
        found = self._consumer.fetch_now(self.max_messages, self.visibility_s)
        if found or not waits:
            return found
        with self._lock:
            self._woken = False
        self._watchers = self._consumer.watch(self, self.wake)
        found = self._consumer.fetch_now(self.max_messages, self.visibility_s)  # what came before it was watched for
        if not found:
            return None
        self.give_up()
        return found

    def give_up(self) -> None:
        """Wait no longer."""
        watchers, self._watchers = self._watchers, None
        with self._lock:
            self._woken = True
        if watchers is not None:
            self._consumer.unwatch(self, watchers)

    def wake(self) -> None:
        """There may be something: whoever waits is told, once."""
        with self._lock:
            was_woken, self._woken = self._woken, True
        if not was_woken:
            self._on_wake()


AnyConsuming = Consuming[Message] | MergedConsuming[Message]
"""A consumer of one shard or of several."""
AnyWaiter = Waiter | MergedWaiter[Message]
