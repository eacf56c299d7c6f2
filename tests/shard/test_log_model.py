"""The log against a model: any order of operations, on a disk that loses, tears and refuses (L1 to L7, L10 to L14)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.journal import Commit
from penstock.model.errors import DiskFull, StorageFailed
from penstock.model.message import Message, MessageId, StoredMessage
from penstock.model.names import parse_priority
from penstock.segments.window import Window
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
RETENTION_S = 600
TOPICS: dict[str, dict[str, object]] = {
    "plain": {"partitions": 1, "retention_age": None},
    "wide": {"partitions": 3, "retention_age": None},
    "aged": {"partitions": 1, "retention_age": RETENTION_S},
    "kept": {"partitions": 2, "retention_age": RETENTION_S, "archive": "the archive"},
}
topics = st.sampled_from(sorted(TOPICS))
keys = st.sampled_from([None, b"a", b"b", b"c", b"d"])


class Sent(NamedTuple):
    """What was handed in, and where it was said to go."""

    id: MessageId
    value: bytes
    key: bytes | None
    deliver_at_us: int | None
    priority: int
    expires_at_us: int | None


class Unit(NamedTuple):
    """Messages that are committed together or not at all."""

    sent: list[Sent]
    commit: Commit | None


class LogMachine(RuleBasedStateMachine):
    """Publishes, settles, retains, crashes and reads, and knows what must be there."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.clock = VirtualClock()
        self.shards = MemoryShards(seed, self.clock, OPTIONS)
        self.acknowledged: dict[MessageId, Sent] = {}
        self.may_be_gone: set[MessageId] = set()
        self.waiting: list[Unit] = []
        self.sequence = 0
        self.counter = 0
        self.dedupe: dict[tuple[str, str], tuple[MessageId, int]] = {}
        for name, options in TOPICS.items():
            self.shards.of(name).create_topic(name, dict(options)).wait()

    def value(self, size: int) -> bytes:
        self.counter += 1
        return b"%d:" % self.counter + b"v" * size

    def message(self, key: bytes | None, size: int, delay_s: int) -> Message:
        value = self.value(size)
        life_s = self.counter if self.counter % 3 == 0 else None
        return Message(value, key=key, delay=delay_s or None, priority=self.counter % 256, expires_in=life_s)

    def sent(self, identity: MessageId, message: Message) -> Sent:
        now_us = self.clock.wall_us()
        due = now_us + int(message.delay) * 1_000_000 if message.delay else None  # type: ignore[arg-type]
        expiry = now_us + int(message.expires_in) * 1_000_000 if message.expires_in else None  # type: ignore[arg-type]
        return Sent(identity, message.value, message.key, due, parse_priority(message.priority), expiry)  # type: ignore[arg-type]

    def settle_unit(self, unit: Unit) -> None:
        if unit.commit is not None:
            unit.commit.wait()
        for sent in unit.sent:
            assert self.acknowledged.get(sent.id, sent) == sent, "one offset, one value"
            self.acknowledged[sent.id] = sent

    def flush_waiting(self) -> None:
        for unit in self.waiting:
            self.settle_unit(unit)
        self.waiting.clear()

    # Publishing.

    @rule(topic=topics, key=keys, size=st.integers(0, 300), delay_s=st.sampled_from([0, 0, 0, 60, 5000]))
    def publish_one(self, topic: str, key: bytes | None, size: int, delay_s: int) -> None:
        message = self.message(key, size, delay_s)
        identity, commit = self.shards.of(topic).publish(topic, message)
        self.waiting.append(Unit([self.sent(identity, message)], commit))

    @rule(topic=topics, entries=st.lists(st.tuples(keys, st.integers(0, 100)), min_size=1, max_size=12))
    def publish_batch(self, topic: str, entries: list[tuple[bytes | None, int]]) -> None:
        messages = [self.message(key, size, 0) for key, size in entries]
        ids, commit = self.shards.of(topic).publish_many(topic, messages)
        assert len(ids) == len(messages)
        self.waiting.append(Unit([self.sent(*pair) for pair in zip(ids, messages, strict=True)], commit))

    @rule(topic=topics, count=st.integers(1, 5))
    def publish_twice_with_the_same_sequence(self, topic: str, count: int) -> None:
        self.sequence += 1
        messages = [self.message(None, 10, 0) for _ in range(count)]
        ids, commit = self.shards.of(topic).publish_many(topic, messages, "producer", self.sequence)
        self.waiting.append(Unit([self.sent(*pair) for pair in zip(ids, messages, strict=True)], commit))
        assert list(self.shards.of(topic).publish_many(topic, messages, "producer", self.sequence)[0]) == list(ids)

    @rule(topic=st.sampled_from(["plain", "wide"]), name=st.sampled_from("abc"))
    def publish_with_a_dedupe_id(self, topic: str, name: str) -> None:
        self.flush_waiting()
        message = Message(self.value(5), dedupe_id=name)
        identity, commit = self.shards.of(topic).publish(topic, message)
        known = self.dedupe.get((topic, name))
        if known is not None and known[1] + 300_000_000 > self.clock.wall_us():
            assert identity == known[0], "L7: the same id inside the window, the same offset"
            return
        self.dedupe[topic, name] = (identity, self.clock.wall_us())
        self.settle_unit(Unit([self.sent(identity, message)], commit))

    @rule()
    def acknowledge(self) -> None:
        self.flush_waiting()

    @rule(topic=topics, size=st.integers(0, 300), crash_after=st.booleans())
    def publish_to_a_full_disk(self, topic: str, size: int, crash_after: bool) -> None:
        self.flush_waiting()
        self.shards.storage.fail("write", errno.ENOSPC)
        _, commit = self.shards.of(topic).publish(topic, Message(self.value(size)))
        assert commit is not None
        try:
            commit.wait()
        except DiskFull:
            pass
        else:
            raise AssertionError("a publish that the disk refused was acknowledged")
        finally:
            self.shards.storage.heal()
        if crash_after:
            self.crash()

    # Upkeep.

    @rule(everything=st.booleans())
    def settle(self, everything: bool) -> None:
        self.flush_waiting()
        self.shards.settle(everything)

    @rule()
    def retain(self) -> None:
        self.flush_waiting()
        self.note_what_may_go()
        self.shards.retain()

    def note_what_may_go(self) -> None:
        now_us = self.clock.wall_us()
        self.may_be_gone |= {
            message.id
            for message in self.everything()
            if TOPICS[message.topic]["retention_age"] is not None
            and message.timestamp_us < now_us - RETENTION_S * 1_000_000
            and (message.deliver_at_us or 0) <= now_us
        }

    @rule(seconds=st.sampled_from([0.001, 1, 59, 700, 4000]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def the_clock_steps_back(self) -> None:
        self.flush_waiting()
        if not self.dedupe:
            self.clock.step_wall(-200)

    # Ends and beginnings.

    @rule()
    def restart(self) -> None:
        self.flush_waiting()
        self.shards.close()
        self.shards.open()

    @rule()
    def crash(self) -> None:
        self.recover(self.shards.crash, set(TOPICS))

    @rule(topic=topics, operations=st.none() | st.integers(0, 3))
    def crash_one_shard(self, topic: str, operations: int | None) -> None:
        if operations is not None:
            self.shards.cut_power_of(topic, operations)
            self.note_what_is_committed()
        self.recover(lambda: self.shards.crash_shard_of(topic), self.shards.beside(topic, TOPICS))

    def recover(self, crash: Callable[[], None], struck: set[str]) -> None:
        """Crash, so that these topics lose what nobody waited for: others go on."""
        crash()
        first = self.everything()
        found = {message.id for message in first}
        waiting, self.waiting = self.waiting, []
        for unit in waiting:
            if unit.sent[0].id.topic not in struck:
                self.waiting.append(unit)
                continue
            there = [sent.id in found for sent in unit.sent]
            assert all(there) or not any(there), "L5: a batch is all or nothing across a crash"
            if all(there):
                self.settle_unit(Unit(unit.sent, None))
        crash()
        assert self.everything() == first, "L10: recovering twice equals recovering once"
        self.dedupe = {k: v for k, v in self.dedupe.items() if v[0] in self.acknowledged}

    @rule(what=st.sampled_from(["flush", "settle", "retain", "close"]), operations=st.integers(0, 40))
    def crash_in_the_middle(self, what: str, operations: int) -> None:
        if what != "flush":
            self.flush_waiting()
        self.note_what_may_go()
        self.shards.storage.cut_power_after(operations)
        try:
            if what == "flush":
                self.shards.flush()
            elif what == "settle":
                self.shards.settle(everything=True)
            elif what == "retain":
                self.shards.retain()
            else:
                self.shards.close()
        except (OSError, StorageFailed):
            pass  # the power went
        self.note_what_is_committed()
        self.crash()

    def note_what_is_committed(self) -> None:
        for unit in list(self.waiting):
            if unit.commit is not None and unit.commit.done and not unit.commit.failed:
                self.settle_unit(unit)
                self.waiting.remove(unit)

    @precondition(lambda self: not self.waiting)
    @rule()
    def fill_a_journal_file(self) -> None:
        messages = [Message(self.value(400)) for _ in range(9)]
        ids, commit = self.shards.of("plain").publish_many("plain", messages)
        self.settle_unit(Unit([self.sent(*pair) for pair in zip(ids, messages, strict=True)], commit))

    # Reading.

    def everything(self, **window: int) -> list[StoredMessage]:
        return [
            message
            for shard in self.shards
            for topic in shard.catalog.by_name.values()
            for partition in topic.partitions
            for message in LogReader(shard, partition.messages, topic.name == "kept").messages(Window(**window))
        ]

    @invariant()
    def F1_folding_the_disk_anew_makes_the_state_of_the_broker(self) -> None:
        if hasattr(self, "shards"):
            self.shards.check()

    @invariant()
    def everything_acknowledged_is_read_once_and_in_order(self) -> None:
        if not hasattr(self, "shards"):
            return
        stored = self.everything()
        places = [(message.topic, message.partition, message.offset) for message in stored]
        assert len(set(places)) == len(places)
        by_partition: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in places:
            by_partition.setdefault((topic, partition), []).append(offset)
        assert all(offsets == sorted(offsets) for offsets in by_partition.values())
        found = {message.id: message for message in stored}
        committed = {
            sent.id: sent for unit in self.waiting if unit.commit is None or unit.commit.done for sent in unit.sent
        }
        for identity, sent in (self.acknowledged | committed).items():
            message = found.pop(identity, None)
            if message is None:
                assert identity in self.may_be_gone, f"{identity} is missing"
                assert identity.topic == "aged", f"{identity} went although its topic has an archive"
            else:
                assert (message.value, message.key) == (sent.value, sent.key)
                assert message.deliver_at_us == sent.deliver_at_us
                assert (message.priority, message.expires_at_us) == (sent.priority, sent.expires_at_us)
        assert not found, "L4: only what was published can be read"

    @rule(topic=topics, partition=st.integers(0, 2), start=st.integers(0, 60), length=st.integers(0, 40))
    def read_a_window_of_offsets(self, topic: str, partition: int, start: int, length: int) -> None:
        shard = self.shards.of(topic)
        partitions = shard.topic(topic).partitions
        log = partitions[partition % len(partitions)].messages
        reader = LogReader(shard, log)
        whole = list(reader.messages(Window()))
        part = list(reader.messages(Window(start, start + length)))
        assert part == [message for message in whole if start <= message.offset < start + length]

    @rule(topic=topics, partition=st.integers(0, 2), data=st.data())
    def read_a_window_of_time(self, topic: str, partition: int, data: st.DataObject) -> None:
        shard = self.shards.of(topic)
        partitions = shard.topic(topic).partitions
        log = partitions[partition % len(partitions)].messages
        reader = LogReader(shard, log)
        whole = list(reader.messages(Window()))
        moments = sorted({message.timestamp_us for message in whole} | {self.clock.wall_us()})
        start, end = sorted((data.draw(st.sampled_from(moments)), data.draw(st.sampled_from(moments))))
        part = list(reader.messages(Window(from_us=start, to_us=end)))
        assert part == [message for message in whole if start <= message.timestamp_us < end]
        scanned = [message.offset for message in whole if message.timestamp_us >= start]
        assert reader.first_at(start) == (scanned[0] if scanned else log.committed_end), "L12"


LogMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40)
TestLogAgainstTheModel = LogMachine.TestCase
