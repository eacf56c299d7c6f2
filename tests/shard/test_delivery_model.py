"""Delivery against a model: any order of commands, on a disk that loses, tears and refuses (Q1 to Q8, T1, T3, T4)."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.cluster import spreading
from penstock.delivery.progress import Progress
from penstock.embedded.consumer import Consumer, Delivery
from penstock.journal import Commit
from penstock.log.partition_log import first_offset
from penstock.model.errors import DiskFull, LeaseLost, StorageFailed
from penstock.model.events import EventKind
from penstock.model.info import GroupInfo
from penstock.model.message import Message, MessageId
from penstock.segments.window import Window
from penstock.shard.operations.dead_letters import list_dead_letters, purge_dead_letters
from penstock.shard.operations.delays import cancel_delayed, reschedule_delayed
from penstock.shard.operations.groups import group_info, pause_group, resume_group, seek_group, show_group, standing_of
from penstock.shard.reading.log_reader import LogReader
from penstock.testing import VirtualClock
from tests.shard.memory_shards import MemoryShards

OPTIONS = {
    "journal_file_bytes": 4096,
    "segment_min_bytes": 700,
    "segment_max_bytes": 3000,
    "journal_files_max": 2,
    "settle_after": "1h",
    "min_free_bytes": 0,
}
RETENTION_S = 900
TOPICS: dict[str, dict[str, object]] = {
    "plain": {"partitions": 1, "retention_age": None, "max_deliveries": 2},
    "wide": {"partitions": 2, "retention_age": None, "order": "key", "dead_letter_lapsed": True},
    "aged": {"partitions": 1, "retention_age": RETENTION_S, "lanes": "weighted"},
}
GROUPS = ("a", "b")
ALL = "all topics"
SECOND_US = 1_000_000
topics = st.sampled_from(sorted(TOPICS))
groups = st.sampled_from(GROUPS)
numbers = st.integers(0, 1000)
faults = st.sampled_from([*[None] * 14, *["full"] * 4, 0, 1, 2])
"""What goes wrong during a command: nothing, the disk is full, or the power is cut after so many changes."""

consumer_numbers = st.integers(0, 2)
"""Two consumers of a topic in each group, and one of all topics."""

Owner = tuple[str, str]  # topic, group
Place = tuple[str, str, int, int]  # topic, group, partition, offset


@dataclass
class Sent:
    """A message that is in the log."""

    dues_us: set[int]  # when it falls due; several where a crash left it open
    expires_us: int | None
    cancelled: bool | None = False  # None: a crash left it open


@dataclass
class Fate:
    """What a group did with a message, as far as it was told."""

    acked: bool = False
    open: bool = False  # something was under way when the power went
    killed: bool = False
    lease: int | None = None
    deadline_s: float = 0.0
    settled_by: set[int] = field(default_factory=set)
    seen: int = 0  # the most deliveries there can have been
    durable: int = 0  # how many of them are surely written down
    refused: bool = False  # whether the last one may not have been written down
    failures: int = 0
    retry_us: int = 0


def set_killed(fate: Fate) -> None:
    fate.killed = True


class DeliveryMachine(RuleBasedStateMachine):
    """Publishes, consumes, looks after things and crashes, and knows what may come and what must not."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.clock = VirtualClock()
        self.shards = MemoryShards(seed, self.clock, OPTIONS)
        self.sent: dict[MessageId, Sent] = {}
        self.unsure: set[MessageId] = set()
        self.fates: dict[Place, Fate] = {}
        self.starts: dict[tuple[str, str, int], int] = {}
        self.orphans: set[MessageId] = set()  # letters of messages that a seek made live again
        self.purged: set[Place] = set()
        self.paused: set[Owner] = set()
        self.unwaited: list[tuple[Commit, list[Delivery]]] = []
        self.hands: list[Delivery] = []
        self.consumers: dict[tuple[str, str, int], Consumer] = {}
        for name, options in TOPICS.items():
            self.shards.of(name).create_topic(name, dict(options)).wait()
            for group in GROUPS:
                self.consumer(name, group, 0)
                for partition in range(int(str(options["partitions"]))):
                    self.starts[name, group, partition] = 0

    def consumer(self, topic: str, group: str, number: int) -> Consumer:
        key = (ALL if number == 2 else topic, group, number)
        if key not in self.consumers:
            names, visibility_s = sorted(TOPICS) if number == 2 else topic, 20 if number == 1 else None
            self.consumers[key] = Consumer(
                self.shards.opened, names, group, visibility_timeout=visibility_s, max_in_flight=6
            )
        return self.consumers[key]

    def fate(self, message: Delivery) -> Fate:
        return self.fates[self.place(message)]

    def place(self, message: Delivery) -> Place:
        assert isinstance(message.lease.owner, Consumer)
        return (message.topic, message.lease.owner.group, message.partition, message.offset)

    def progress(self, topic: str, group: str, partition: int) -> Progress:
        return self.shards.of(topic).topic(topic).partitions[partition].delivery_state().groups[group]

    def is_done(self, place: Place) -> bool:
        progress = self.progress(*place[:3])
        return place[3] < progress.floor or place[3] in progress.done

    # What can go wrong.

    def attempt(self, fault: str | int | None, command: Callable[[], object]) -> tuple[str, set[object]]:
        """Do something on a disk that may fail: how it ended, and for which messages no lease was held."""
        if fault == "full":
            self.shards.storage.fail("write", errno.ENOSPC)
        elif isinstance(fault, int):
            self.shards.storage.cut_power_after(fault)
        lost: set[object] = set()
        try:
            command()
            end = "done"
        except LeaseLost as error:
            end, lost = "done", set(error.ids)
        except DiskFull:
            assert fault == "full"
            end = "refused"
        except (OSError, StorageFailed):
            assert isinstance(fault, int)
            end = "cut"
        finally:
            self.shards.storage.heal()
        if fault == "full":
            for fate in self.fates.values():
                fate.refused = fate.refused or fate.durable < fate.seen
        return end, lost

    def after(self, fault: str | int | None) -> None:
        """The rest of a command on a disk that failed: commits are told apart, and a cut is followed by a crash."""
        if isinstance(fault, int):
            self.crash()
        else:
            self.look_at_commits()

    def look_at_commits(self) -> None:
        """Learn what became of acks that nobody waited for."""
        for commit, messages in self.unwaited[:]:
            if commit.done:
                self.unwaited.remove((commit, messages))
                for message in messages:
                    if commit.failed:
                        self.fate(message).settled_by.discard(message.lease.id)
                        self.fate(message).open = self.shards.of(message.topic).frozen is not None
                    else:
                        self.fate(message).acked = True
        shards = {name: self.shards.of(name) for name in TOPICS}
        written = {name for name, s in shards.items() if s.journal.latest_commit() is None and s.frozen is None}
        for place, fate in self.fates.items():
            if place[0] in written and not fate.refused:
                fate.durable = fate.seen

    # Publishing.

    @rule(
        topic=topics,
        entries=st.lists(
            st.tuples(
                st.sampled_from([None, None, b"a", b"b", b"c"]),
                st.sampled_from([1, 5, 5, 9]),
                st.sampled_from([0, 0, 0, 0.5, 40, 2000]),
                st.sampled_from([None, None, None, 10, 300]),
            ),
            min_size=1,
            max_size=6,
        ),
        fault=faults,
    )
    def publish(
        self, topic: str, entries: list[tuple[bytes | None, int, float, int | None]], fault: str | int | None
    ) -> None:
        now_us = self.clock.wall_us()
        messages = [
            Message(b"v", key=key, priority=lane, delay=delay or None, expires_in=life)
            for key, lane, delay, life in entries
        ]
        ids, commit = self.shards.of(topic).publish_many(topic, messages)
        assert commit is not None
        end, _ = self.attempt(fault, commit.wait)
        if end != "refused":
            for identity, (_, _, delay, life) in zip(ids, entries, strict=True):
                self.sent[identity] = Sent(
                    {now_us + round(delay * SECOND_US)}, None if life is None else now_us + life * SECOND_US
                )
                if end == "cut":
                    self.unsure.add(identity)
        self.after(fault)

    def publish_some(self, topic: str) -> None:
        messages = [Message(b"v", key=key) for key in (None, b"a", b"b", b"a")]
        ids, commit = self.shards.of(topic).publish_many(topic, messages)
        assert commit is not None
        commit.wait()
        for identity in ids:
            self.sent[identity] = Sent({self.clock.wall_us()}, None)

    # Receiving.

    @rule(topic=topics, group=groups, number=consumer_numbers, count=st.integers(1, 5))
    def receive(self, topic: str, group: str, number: int, count: int) -> None:
        self.take(self.consumer(topic, group, number), count)

    def take(self, consumer: Consumer, count: int) -> list[Delivery]:
        received = consumer.receive(count)
        for message in received:
            self.check_delivery(message)
        self.hands += received
        return received

    def check_delivery(self, message: Delivery) -> None:
        now_us, now_s = self.clock.wall_us(), self.clock.monotonic_s()
        place = self.place(message)
        fate = self.fates.setdefault(place, Fate())
        sent = self.sent[message.id]
        self.look_at_commits()
        assert not fate.acked, f"{place} was acked, and comes again"
        assert not fate.killed, f"{place} is dead, and comes again (Q7)"
        assert sent.cancelled is not True, f"{place} was cancelled, and comes (T4)"
        assert min(sent.dues_us) <= now_us, f"{place} comes early (T1)"
        assert sent.expires_us is None or sent.expires_us > now_us, f"{place} has lapsed, and comes"
        assert fate.retry_us <= now_us, f"{place} comes again too early (T1)"
        assert fate.lease is None or fate.deadline_s <= now_s, f"{place} is leased to two (Q3)"
        assert message.offset >= self.starts[(*place[:3],)], f"{place} is before the start of the group"
        assert place[:2] not in self.paused, f"{place} comes to a paused group (Q12)"
        assert fate.durable < message.deliveries <= fate.seen + 1, f"the deliveries of {place} are counted wrong (Q6)"
        assert fate.failures <= message.failures < message.deliveries, f"the failures of {place} are counted wrong (Q6)"
        sent.cancelled = False
        fate.open = False
        fate.lease, fate.deadline_s = message.lease.id, message.lease.deadline_of(message.offset)
        fate.seen, fate.failures, fate.retry_us, fate.refused = message.deliveries, message.failures, 0, False

    # Settling; of messages that are held, that are not any more, that never were by this consumer.

    def chosen(self, first: int, count: int) -> tuple[Consumer | None, list[Delivery]]:
        if first % 4:  # of those that are held, if there is anything to be had
            now_s = self.clock.monotonic_s()
            held = [m for m in self.hands if self.fate(m).lease == m.lease.id and self.fate(m).deadline_s > now_s]
            self.hands = [message for message in self.hands if message not in held] + held
            if not held:
                topic = sorted(TOPICS)[first % len(TOPICS)]
                self.publish_some(topic)
                self.take(self.consumer(topic, GROUPS[first % 2], 0), 4)
            first = -1 - first % max(1, len(held))
        if not self.hands:
            return None, []
        start = first % len(self.hands)
        topic, owner = self.hands[start].topic, self.hands[start].lease.owner
        assert isinstance(owner, Consumer)
        some = [m for m in self.hands[start : start + count] if m.topic == topic or m.lease.owner is owner]
        live = [c for (name, group, _), c in self.consumers.items() if name in (topic, ALL) and group == owner.group]
        consumer = owner if owner in live else next(iter(live), None)
        return consumer, list({message.id: message for message in some}.values())

    def is_held(self, consumer: Consumer, message: Delivery) -> bool:
        fate = self.fate(message)
        return (
            message.lease.owner is consumer
            and fate.lease == message.lease.id
            and fate.deadline_s > self.clock.monotonic_s()
        )

    def settle_some(
        self,
        fault: str | int | None,
        some: tuple[Consumer | None, list[Delivery]],
        act: Callable[[Consumer, list[Delivery]], None],
        told: Callable[[Fate], None],
        again: bool = False,
    ) -> None:
        consumer, messages = some
        if consumer is None:
            return
        held = [message for message in messages if self.is_held(consumer, message)]
        settled = [m for m in messages if again and m.lease.owner is consumer and m.lease.id in self.fate(m).settled_by]
        end, lost = self.attempt(fault, lambda: act(consumer, messages))
        for message in held:
            fate = self.fate(message)
            fate.lease = None
            if end == "done" or (end == "refused" and self.is_done(self.place(message))):  # by another shard
                told(fate)
                if again:
                    fate.settled_by.add(message.lease.id)
            elif end == "cut":
                fate.open = True
        if end == "done":
            others = {message.id for message in messages} - {message.id for message in (*held, *settled)}
            assert lost == others, "Q4: just those are refused that are not leased by this receipt"
        self.after(fault)
        if not isinstance(fault, int):
            self.take(consumer, 2)

    @rule(first=numbers, count=st.integers(1, 4), fault=faults)
    def ack(self, first: int, count: int, fault: str | int | None) -> None:
        def told(fate: Fate) -> None:
            fate.acked = True

        self.settle_some(fault, self.chosen(first, count), lambda c, ms: c.ack(ms), told, again=True)

    @rule(first=numbers, count=st.integers(1, 4))
    def ack_without_waiting(self, first: int, count: int) -> None:
        consumer, messages = self.chosen(first, count)
        if consumer is None:
            return
        held = [message for message in messages if self.is_held(consumer, message)]
        held = [message for message in held if self.shards.of(message.topic) is self.shards.of(held[0].topic)]
        if held:
            commit, lost = consumer._consuming.ack(held)
            assert lost is None
            assert commit is not None
            for message in held:
                self.fate(message).lease = None
                self.fate(message).settled_by.add(message.lease.id)
            self.unwaited.append((commit, held))
            self.look_at_commits()

    @rule(first=numbers, count=st.integers(1, 4), fault=faults)
    def release(self, first: int, count: int, fault: str | int | None) -> None:
        self.settle_some(fault, self.chosen(first, count), lambda c, ms: c.release(ms), lambda _: None)

    @rule(first=numbers, count=st.integers(1, 3), delay=st.sampled_from([None, None, 0, 5, 50]), fault=faults)
    def fail(self, first: int, count: int, delay: float | None, fault: str | int | None) -> None:
        now_us = self.clock.wall_us()

        def told(fate: Fate) -> None:
            fate.failures += 1
            fate.durable = max(fate.durable, fate.failures) if fate.refused else fate.seen
            fate.retry_us = now_us + round((0.8 if delay is None else delay) * SECOND_US)

        self.settle_some(fault, self.chosen(first, count), lambda c, ms: c.fail(ms, "no", delay), told)

    @rule(first=numbers, count=st.integers(1, 2), fault=faults)
    def kill(self, first: int, count: int, fault: str | int | None) -> None:
        self.settle_some(fault, self.chosen(first, count), lambda c, ms: c.kill(ms, "never"), set_killed)

    @rule(first=numbers, count=st.integers(1, 4), seconds=st.sampled_from([0.1, 15, 60]))
    def extend(self, first: int, count: int, seconds: float) -> None:
        consumer, messages = self.chosen(first, count)
        if consumer is None:
            return
        held = [message for message in messages if self.is_held(consumer, message)]
        _, lost = self.attempt(None, lambda: consumer.extend(messages, seconds))
        assert lost == {m.id for m in messages} - {m.id for m in held}, "Q5: what is over is not revived"
        for message in held:
            fate = self.fate(message)
            fate.deadline_s = max(fate.deadline_s, self.clock.monotonic_s() + seconds)

    @rule(topic=topics, group=groups, number=consumer_numbers)
    def close_a_consumer(self, topic: str, group: str, number: int) -> None:
        consumer = self.consumers.pop((ALL if number == 2 else topic, group, number), None)
        if consumer is not None:
            consumer.close()
            for message in self.hands:
                fate = self.fate(message)
                if message.lease.owner is consumer and fate.lease == message.lease.id:
                    fate.lease = None
            self.look_at_commits()

    # Delays.

    @rule(number=numbers, fault=faults)
    def cancel(self, number: int, fault: str | int | None) -> None:
        delayed = [identity for identity, sent in self.sent.items() if max(sent.dues_us) > self.clock.wall_us()]
        some = delayed if delayed and number % 4 else list(self.sent)
        if not some:
            return
        identity = some[number % len(some)]
        sent = self.sent[identity]
        answers: list[bool] = []
        now_us = self.clock.wall_us()
        lapsed = sent.expires_us is not None and sent.expires_us <= now_us
        never_comes = bool(sent.cancelled) or (min(sent.dues_us) > now_us and not lapsed)
        end, _ = self.attempt(fault, lambda: answers.append(cancel_delayed(self.shards.of(identity.topic), identity)))
        if end == "done":
            if sent.cancelled is not None and len(sent.dues_us) == 1:
                assert answers == [never_comes], f"T4: {identity}"
            if answers[0]:
                sent.cancelled = True
        elif end == "cut" and not sent.cancelled:
            sent.cancelled = None
        self.after(fault)

    @rule(number=numbers, delay=st.sampled_from([0, 0.5, 60, 3000]), fault=faults)
    def reschedule(self, number: int, delay: float, fault: str | int | None) -> None:
        some = [identity for identity, sent in self.sent.items() if max(sent.dues_us) > self.clock.wall_us()]
        if not some:
            return
        identity = some[number % len(some)]
        sent, shard = self.sent[identity], self.shards.of(identity.topic)
        due_us = self.clock.wall_us() + round(delay * SECOND_US)
        answers: list[object] = []
        end, _ = self.attempt(fault, lambda: answers.append(reschedule_delayed(shard, identity, delay=delay)))
        if end == "done" and answers[0] is not None:
            sent.dues_us = {due_us}
        elif end == "cut":
            sent.dues_us = sent.dues_us | {due_us}
        self.after(fault)

    # Groups and dead letters.

    @rule(topic=topics, group=groups, fault=faults)
    def pause_or_resume(self, topic: str, group: str, fault: str | int | None) -> None:
        was = (topic, group) in self.paused
        change = resume_group if was else pause_group
        end, _ = self.attempt(fault, lambda: change(self.shards.of(topic), topic, group))
        self.after(fault)
        is_now = show_group(self.shards.of(topic), topic, group).settings.paused
        assert end == "cut" or is_now is (was if end == "refused" else not was)
        self.paused ^= {(topic, group)} if is_now is not was else set()

    @rule(
        topic=topics, group=groups, to=st.sampled_from(["earliest", "latest", 3, 7]), dying=st.booleans(), fault=faults
    )
    def seek(self, topic: str, group: str, to: str | int, dying: bool, fault: str | int | None) -> None:
        shard = self.shards.of(topic)
        if dying:  # leases run out, and what dies of it is not buried yet
            self.clock.advance(31)
            with shard.lock:
                shard.keep_time()
        logs = [partition.messages for partition in shard.topic(topic).partitions]
        bounds = [(first_offset(log), log.committed_end) for log in logs]
        if isinstance(to, int):
            to = min([max([to, *(first for first, _ in bounds)]), *(end for _, end in bounds)])
            if any(not first <= to <= end for first, end in bounds):
                return
        targets = [first if to == "earliest" else end if to == "latest" else int(to) for first, end in bounds]
        moves = self.moves(topic, group)
        end, _ = self.attempt(fault, lambda: seek_group(shard, topic, group, to))
        self.look_at_commits()  # of acks from before it
        for place, fate in self.fates.items():
            if place[:2] == (topic, group):
                fate.lease = None
        if isinstance(fault, int):
            self.reopen_after_crash()
        moved = self.moves(topic, group) > moves
        assert moved or end != "done"
        assert not moved or end != "refused"
        if moved:
            for partition, target in enumerate(targets):
                self.starts[topic, group, partition] = target
            for place in [place for place in self.fates if place[:2] == (topic, group)]:
                stale = self.fates.pop(place)
                self.fates[place] = Fate(settled_by=stale.settled_by)
            self.purged = {place for place in self.purged if place[:2] != (topic, group)}
            self.orphans |= {
                letter.id
                for letter in list_dead_letters(self.shards.of(topic), topic)
                if (letter.origin.topic, letter.group) == (topic, group)
            }
        if isinstance(fault, int):
            self.check_after_crash()
        self.look_at_commits()

    def moves(self, topic: str, group: str) -> int:
        shard = self.shards.of(topic)
        return sum(
            event.kind == EventKind.SOUGHT and event.group == group
            for partition in shard.topic(topic).partitions
            if partition.events is not None
            for event in LogReader(shard, partition.events).events(Window())
        )

    def letters_to_redrive(self, topic: str, group: str, fault: str | int | None) -> dict[MessageId, Place]:
        if fault is not None:  # there is something to be lost
            self.publish_some(topic)
            consumer = self.consumer(topic, group, 1)
            some = self.take(consumer, 2)
            self.settle_some(None, (consumer, some), lambda c, ms: c.kill(ms, "never"), set_killed)
        return {
            letter.id: (topic, group, letter.origin.partition, letter.origin.offset)
            for letter in list_dead_letters(self.shards.of(topic), topic)
            if letter.group == group and letter.id not in self.orphans and letter.origin in self.sent
        }

    @rule(topic=topics, group=groups, fault=faults)
    def redrive(self, topic: str, group: str, fault: str | int | None) -> None:
        chosen = self.letters_to_redrive(topic, group, fault)

        def run() -> None:
            report = spreading.redrive(self.shards.opened, topic, filter=lambda letter: letter.id in chosen)
            assert (report.selected, report.redriven, report.copied, report.skipped) == (len(chosen),) * 2 + (0, 0)

        end, _ = self.attempt(fault, run)
        for place in chosen.values():
            fate = self.fates.setdefault(place, Fate())
            if end == "done":
                assert place[3] not in self.progress(*place[:3]).dead, "Q8"
                fate.killed, fate.failures, fate.retry_us = False, 0, 0
            elif end == "cut":
                fate.killed, fate.failures, fate.open = False, 0, True
        self.after(fault)

    @rule(topic=topics, group=groups, to=topics, fault=faults)
    def redrive_to_another_topic(self, topic: str, group: str, to: str, fault: str | int | None) -> None:
        chosen = self.letters_to_redrive(topic, group, fault)
        known = self.stored()

        def run() -> None:
            report = spreading.redrive(self.shards.opened, topic, to=to, filter=lambda letter: letter.id in chosen)
            assert (report.redriven, report.skipped) == (0, 0)

        end, _ = self.attempt(fault, run)
        if isinstance(fault, int):
            self.reopen_after_crash()
        if end != "done":
            run()  # what was left of it
        assert not chosen.keys() & {letter.id for letter in list_dead_letters(self.shards.of(topic), topic)}, "Q8"
        copies = self.stored() - known
        assert len(copies) == len(chosen), "Q8: each is copied once"
        assert all(identity.topic == to for identity in copies)
        self.purged |= set(chosen.values())
        for identity in copies:
            self.sent[identity] = Sent({self.clock.wall_us()}, None)
        if isinstance(fault, int):
            self.check_after_crash()
        self.look_at_commits()

    @rule(topic=topics, fault=faults)
    def purge(self, topic: str, fault: str | int | None) -> None:
        letters = list(list_dead_letters(self.shards.of(topic), topic))
        places = {(topic, o.group, o.origin.partition, o.origin.offset) for o in letters if o.id not in self.orphans}
        end, _ = self.attempt(fault, lambda: purge_dead_letters(self.shards.of(topic), topic))
        if isinstance(fault, int):
            self.reopen_after_crash()
        known = {letter.id for letter in letters}  # others may have come meanwhile
        left = [letter for letter in list_dead_letters(self.shards.of(topic), topic) if letter.id in known]
        assert not left if end == "done" else len(left) in (0, len(letters))
        if letters and not left:
            self.purged |= places
        if isinstance(fault, int):
            self.check_after_crash()
        self.look_at_commits()

    # Time and upkeep.

    @rule(seconds=st.sampled_from([0.5, 1, 5, 19, 31, 31, 100, 1000]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(fault=faults)
    def keep_time(self, fault: str | int | None) -> None:
        self.attempt(fault, self.shards.keep_time)
        self.after(fault)

    @rule(fault=faults)
    def flush(self, fault: str | int | None) -> None:
        self.attempt(fault, self.shards.flush)
        self.after(fault)

    @rule(everything=st.booleans(), cut=st.sampled_from([*[None] * 20, *range(0, 40, 3)]))
    def settle(self, everything: bool, cut: int | None) -> None:
        self.attempt(cut, lambda: self.shards.settle(everything))
        self.after(cut)

    @rule(cut=st.sampled_from([*[None] * 12, *range(0, 12, 2)]))
    def checkpoint(self, cut: int | None) -> None:
        self.attempt(cut, self.shards.checkpoint)
        self.after(cut)

    @rule(cut=st.sampled_from([*[None] * 12, *range(0, 12, 2)]))
    def retain(self, cut: int | None) -> None:
        now_us, now_s = self.clock.wall_us(), self.clock.monotonic_s()
        leased = {place for place, fate in self.fates.items() if fate.lease is not None and fate.deadline_s > now_s}
        self.attempt(cut, self.shards.retain)
        if cut is not None:
            self.reopen_after_crash()
        there = self.stored()
        for identity in [identity for identity in self.sent if identity not in there]:
            sent = self.sent.pop(identity)
            if identity not in self.unsure:
                assert identity.topic == "aged"
                assert sent.cancelled is not False or min(sent.dues_us) <= now_us, "L11: it was not due"
                place = (identity.partition, identity.offset)
                assert all((identity.topic, group, *place) not in leased for group in GROUPS), "L11: it was leased"
        if cut is not None:
            self.check_after_crash()
        self.look_at_commits()

    # Ends and beginnings.

    @rule(cut=st.sampled_from([None, None, None, 0, 2, 5, 8]))
    def restart(self, cut: int | None) -> None:
        end, _ = self.attempt(cut, self.shards.close)
        self.look_at_commits()
        if cut is not None:
            self.crash()
            return
        assert end == "done"
        self.shards.open()
        self.begin_again(set(TOPICS))

    @rule()
    def crash(self) -> None:
        self.reopen_after_crash()
        self.check_after_crash()

    @rule(topic=topics, cut=st.sampled_from([None, 0, 1, 2]))
    def crash_one_shard(self, topic: str, cut: int | None) -> None:
        if cut is not None:
            self.shards.cut_power_of(topic, cut)
        self.reopen_after_crash(topic)
        self.check_after_crash(topic)

    def reopen_after_crash(self, only: str | None = None) -> None:
        """The power goes, or the process that has the shard of a topic is killed."""
        self.look_at_commits()
        struck = set(TOPICS) if only is None else self.shards.beside(only, TOPICS)
        for commit, messages in self.unwaited[:]:
            if messages[0].topic in struck:
                self.unwaited.remove((commit, messages))
                for message in messages:
                    self.fate(message).open = True
        self.crash_shards(only)
        self.begin_again(struck)

    def crash_shards(self, only: str | None) -> None:
        if only is None:
            self.shards.crash()
        else:
            self.shards.crash_shard_of(only)

    def begin_again(self, struck: set[str]) -> None:
        for place, fate in self.fates.items():
            if place[0] in struck:
                fate.lease = None
                fate.settled_by.clear()
                fate.refused = fate.refused or fate.durable < fate.seen
        self.hands = self.hands[-8:]
        self.consumers = {key: consumer for key, consumer in self.consumers.items() if key[0] not in {ALL, *struck}}
        self.restore_consumers(struck)

    def restore_consumers(self, topics: Iterable[str]) -> None:
        for topic in sorted(topics):
            for group in GROUPS:
                self.consumer(topic, group, 0)
            shard = self.shards.of(topic)
            with shard.lock:  # what fell due meanwhile does so now, as it does before anybody is told numbers
                delivery = shard.dispatcher.in_use.of(shard.topic(topic))
                assert delivery is not None
                delivery.tick(shard.dispatcher.now())

    def check_after_crash(self, only: str | None = None) -> None:
        there = self.stored()
        for identity in self.unsure:
            if identity not in there:
                self.sent.pop(identity, None)
        self.unsure.clear()
        for place, fate in self.fates.items():
            if fate.acked and MessageId(place[0], *place[2:]) in self.sent:
                assert self.is_done(place), f"the ack of {place} is lost"
        first = self.durable_state()
        struck = set(TOPICS) if only is None else self.shards.beside(only, TOPICS)
        self.crash_shards(only)
        self.begin_again(struck)
        assert self.durable_state() == first, "L10: recovering twice equals recovering once"

    def durable_state(self) -> dict[tuple[str, int], bytes]:
        return {
            (topic.name, number): msgspec.msgpack.encode(partition.state.state())
            for shard in self.shards
            for topic in shard.catalog.by_name.values()
            for number, partition in enumerate(topic.partitions)
            if partition.state is not None
        }

    def stored(self) -> set[MessageId]:
        return {
            message.id
            for name in TOPICS
            for partition in self.shards.of(name).topic(name).partitions
            for message in LogReader(self.shards.of(name), partition.messages).messages(Window())
        }

    # What must hold.

    def infos(self) -> list[GroupInfo]:
        found: list[GroupInfo] = []
        for shard in self.shards:
            with shard.lock:
                for topic in shard.catalog.by_name.values():
                    for name, active in shard.dispatcher.in_use.groups(topic).items():
                        info = group_info(topic, name, standing_of(topic, name, active), active)
                        ready = sum(claims.ready() for claims in active.group.claims)
                        assert info.ready == ready, f"Q1: {ready} can be taken: {info}"
                        found.append(info)
        return found

    @invariant()
    def F1_folding_the_disk_anew_makes_the_state_of_the_broker(self) -> None:
        if hasattr(self, "shards"):
            self.shards.check()

    @invariant()
    def Q1_nothing_is_lost_or_counted_twice(self) -> None:
        if not hasattr(self, "shards"):
            return
        for info in self.infos():
            parts = (
                info.acked, info.ready, info.leased, info.delayed, info.retrying, info.dead, info.lapsed,
                info.withdrawn, info.skipped, info.lost,
            )  # fmt: skip
            assert min(parts) >= 0, f"Q1: {info}"
            assert info.published == sum(parts), f"Q1: {info}"
            shard = self.shards.of(info.topic)
            logs = [partition.messages for partition in shard.topic(info.topic).partitions]
            if shard.journal.latest_commit() is None and not shard.dispatcher.dying:
                owner = (info.topic, info.name)
                held = sum(fate.lease is not None for place, fate in self.fates.items() if place[:2] == owner)
                assert info.leased <= held, f"Q1: {info.leased - held} are held by nobody"
            starts = [self.starts[info.topic, info.name, number] for number in range(len(logs))]
            assert info.published == sum(log.committed_end - at for log, at in zip(logs, starts, strict=True)), "Q1"

    @invariant()
    def Q7_a_dead_message_is_in_the_dead_letters_once_and_nowhere_else(self) -> None:
        if not hasattr(self, "shards"):
            return
        for topic in TOPICS:
            letters = Counter(
                (topic, letter.group, letter.origin.partition, letter.origin.offset)
                for letter in list_dead_letters(self.shards.of(topic), topic)
                if letter.id not in self.orphans and letter.origin in self.sent
            )
            dead = {
                (topic, group, number, offset)
                for group in GROUPS
                for number in range(len(self.shards.of(topic).topic(topic).partitions))
                for offset in self.progress(topic, group, number).dead
            }
            assert set(letters.values()) <= {1}, "Q7: somebody is dead twice"
            assert set(letters) | (self.purged & dead) == dead, "Q7: dead means: in the dead letters"

    @invariant()
    def what_was_confirmed_is_so(self) -> None:
        if not hasattr(self, "shards"):
            return
        for place, fate in self.fates.items():
            if MessageId(place[0], *place[2:]) in self.sent:
                assert self.is_done(place) or not fate.acked, f"{place} was acked, and is not done"
                dead = self.progress(*place[:3]).dead
                assert place[3] in dead or not fate.killed, f"{place} was killed, and is not dead"

    def teardown(self) -> None:
        """When the faults stop, everything that is not done comes again, and then nothing is left (Q2)."""
        if not hasattr(self, "shards") or any(shard.frozen for shard in self.shards):
            return
        for topic, group in self.paused:
            resume_group(self.shards.of(topic), topic, group)
        self.paused.clear()
        self.restore_consumers(TOPICS)
        for _ in range(40):
            self.clock.advance(100)
            self.shards.keep_time()
            for consumer in list(self.consumers.values()):
                while received := self.take(consumer, 6):
                    consumer.ack(received)
                    for message in received:
                        self.fate(message).acked = True
                        self.fate(message).lease = None
        now_us = self.clock.wall_us()
        self.shards.keep_time()
        for topic in TOPICS:
            for group in GROUPS:
                info = show_group(self.shards.of(topic), topic, group)
                assert info.lag == 0, f"Q2: {info}"
                for identity, sent in self.sent.items():
                    place = (topic, group, identity.partition, identity.offset)
                    fate = self.fates.get(place, Fate())
                    if identity.topic == topic and identity.offset >= self.starts[(*place[:3],)]:
                        dead = identity.offset in self.progress(*place[:3]).dead
                        lapsed = sent.expires_us is not None and sent.expires_us <= now_us
                        accounted = fate.acked or fate.open or dead or lapsed or sent.cancelled is not False
                        assert accounted, f"Q2: {place} never came"
        self.Q1_nothing_is_lost_or_counted_twice()
        self.Q7_a_dead_message_is_in_the_dead_letters_once_and_nowhere_else()


DeliveryMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestDeliveryAgainstTheModel = DeliveryMachine.TestCase
