"""Many consumers, hours of virtual time and a broker that crashes, all from one seed (Q1, Q2, Q7, O5).

`PENSTOCK_SEED=123 pytest tests/shard/test_simulation.py` runs what a failure printed once more; with several shards,
give `--shards` too.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from penstock.cluster import gathering, spreading
from penstock.cluster import topics as topics_of_all
from penstock.cluster.publishing import publish_many
from penstock.embedded.consumer import Consumer, Delivery
from penstock.log.topics import Partition
from penstock.model.errors import LeaseLost
from penstock.model.message import Message, MessageId
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.testing import VirtualClock
from tests.shard.memory_shards import MemoryShards

SEED = int(os.environ.get("PENSTOCK_SEED", "20260101"))
OPTIONS = {
    "journal_file_bytes": "64KiB",
    "segment_min_bytes": "8KiB",
    "journal_files_max": 3,
    "min_free_bytes": 0,
}
TOPICS: dict[str, dict[str, object]] = {
    "plain": {"retention_age": None, "max_deliveries": 20},
    "keyed": {"retention_age": None, "max_deliveries": 20, "partitions": 2, "order": "key"},
    "fair": {"retention_age": None, "max_deliveries": 20, "lanes": "weighted", "lane_weights": {1: 3, 5: 2, 9: 1}},
    "mortal": {"retention_age": None, "max_deliveries": 2, "visibility_timeout": 5},
}
GROUPS = ("billing", "shipping", "audit")
CONSUMERS = 20

Work = tuple[str, MessageId]  # group, message


class Worker:
    """One consumer: who it works for, and what it holds."""

    def __init__(self, number: int) -> None:
        self.topics = sorted(TOPICS)[number % 4 : number % 4 + 1 + number % 2]
        self.group = GROUPS[number % 3]
        self.consumer: Consumer | None = None
        self.held: list[Delivery] = []
        self.wakes_s = 0.0


class Simulation:
    """Everything that happens comes from the seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = VirtualClock(seed)
        self.shards = MemoryShards(self.chance.randrange(1 << 60), self.clock, OPTIONS)
        self.published: dict[MessageId, bytes] = {}
        self.acked: set[Work] = set()
        self.unsure: set[Work] = set()
        self.delivered: Counter[Work] = Counter()
        self.paused: set[tuple[str, str]] = set()
        self.workers = [Worker(number) for number in range(CONSUMERS)]
        self.crashes = 0
        spread = {"partitions": 5, "spread": min(3, self.shards.opened.count)}
        for name, options in TOPICS.items():
            topics_of_all.create_topic(self.shards.opened, name, options | spread if name == "keyed" else options)
        for name in TOPICS:
            for group in GROUPS:
                Consumer(self.shards.opened, name, group).close()

    # What can happen.

    def run(self, steps: int) -> None:
        acts = [self.publish] * 8 + [self.work] * 60 + [self.time_passes] * 12 + [self.keep_time] * 6
        acts += [self.settle, self.checkpoint, self.pause_or_resume, self.pause_or_resume]
        for step in range(steps):
            self.chance.choice(acts)()
            self.shards.check()
            if self.chance.random() < 0.003:
                ends = [self.crash, self.crash_one_shard, self.crash_while_committing, self.restart]
                self.chance.choice(ends)()
            if step % 250 == 0:
                self.check_that_it_adds_up()

    def publish(self) -> None:
        topic = self.chance.choice(sorted(TOPICS))
        messages = [
            Message(
                b"%d" % self.chance.randrange(1 << 30),
                key=self.chance.choice([None, b"a", b"b", b"c", b"d", b"e"]),
                priority=self.chance.choice([1, 5, 5, 9]),
                delay=self.chance.choice([None, None, None, 1, 60]),
            )
            for _ in range(self.chance.randrange(1, 12))
        ]
        ids, commit = publish_many(self.shards.opened, topic, messages)
        assert commit is not None
        commit.wait()
        self.published.update((identity, m.value) for identity, m in zip(ids, messages, strict=True))  # type: ignore[misc]

    def work(self) -> None:
        worker = self.chance.choice(self.workers)
        if worker.wakes_s > self.clock.monotonic_s():
            return
        if not worker.held:
            self.receive(worker)
            return
        fate = self.chance.random()
        if fate < 0.06:  # it hangs, perhaps for longer than its lease lasts, and acks late
            worker.wakes_s = self.clock.monotonic_s() + self.chance.uniform(1, 60)
        elif fate < 0.08:  # it dies, and nobody hears of it
            worker.consumer, worker.held = None, []
        elif fate < 0.10:
            assert worker.consumer is not None
            worker.consumer.close()
            worker.consumer, worker.held = None, []
        else:
            self.settle_some(worker, fate)

    def receive(self, worker: Worker) -> None:
        if worker.consumer is None:
            worker.consumer = Consumer(self.shards.opened, worker.topics, worker.group, max_in_flight=50)
        worker.held = worker.consumer.receive(self.chance.randrange(1, 20))
        for message in worker.held:
            work = (worker.group, message.id)
            assert work not in self.acked, f"{work} was acked, and comes again"
            assert self.published[message.id] == message.value
            assert (message.topic, worker.group) not in self.paused, "Q12: it comes to a paused group"
            assert message.failures < message.deliveries
            self.unsure.discard(work)
            self.delivered[work] += 1

    def settle_some(self, worker: Worker, fate: float) -> None:
        assert worker.consumer is not None
        some, worker.held = worker.held[::2], worker.held[1::2]
        try:
            if fate < 0.2:
                worker.consumer.fail(some, "it did not work", self.chance.choice([None, 0, 10]))
            elif fate < 0.25:
                worker.consumer.release(some)
            elif fate < 0.27:
                worker.consumer.kill(some[:1], "it never will")
            elif fate < 0.35:
                worker.consumer.extend(some, self.chance.uniform(1, 60))
                worker.held += some
            else:
                worker.consumer.ack(some)
                self.acked |= {(worker.group, message.id) for message in some}
        except LeaseLost as error:  # it was too slow
            if fate >= 0.35:
                self.acked |= {(worker.group, m.id) for m in some if m.id not in error.ids}

    def pause_or_resume(self) -> None:
        if self.paused and self.chance.random() < 0.9:  # it is paused for a while only
            topic, group = self.chance.choice(sorted(self.paused))
            spreading.resume_group(self.shards.opened, topic, group)
            self.paused.remove((topic, group))
        else:
            topic, group = self.chance.choice(sorted(TOPICS)), self.chance.choice(sorted(GROUPS))
            spreading.pause_group(self.shards.opened, topic, group)
            self.paused.add((topic, group))

    def time_passes(self) -> None:
        self.clock.advance(self.chance.choice([0.01, 0.5, 3]))

    def keep_time(self) -> None:
        self.shards.keep_time()

    def settle(self) -> None:
        self.shards.settle(everything=self.chance.random() < 0.2)

    def checkpoint(self) -> None:
        self.shards.checkpoint()

    def crash(self) -> None:
        self.crashes += 1
        self.shards.crash()
        self.lose_workers(set(TOPICS))

    def crash_one_shard(self) -> None:
        """Workers that have a topic in it lose what they hold there, and elsewhere nobody hears of them any more."""
        self.crashes += 1
        topic = self.chance.choice(sorted(TOPICS))
        self.shards.crash_shard_of(topic)
        self.lose_workers(self.shards.beside(topic, TOPICS))

    def lose_workers(self, struck: set[str]) -> None:
        for worker in self.workers:
            if struck & set(worker.topics):
                worker.consumer, worker.held = None, []

    def crash_while_committing(self) -> None:
        """The power goes while acks that nobody waited for are being written: they may be there or not."""
        worker = next((w for w in self.workers if w.consumer is not None and w.held), None)
        if worker is not None and worker.consumer is not None:
            worker.consumer._consuming.ack(worker.held)
            self.unsure |= {(worker.group, message.id) for message in worker.held}
            self.shards.storage.cut_power_after(self.chance.randrange(3))
            self.shards.flush()
        self.crash()

    def restart(self) -> None:
        self.shards.close()
        self.shards.open()
        self.lose_workers(set(TOPICS))

    # The end.

    def drain(self) -> None:
        """The faults stop: everything is delivered and acked."""
        for topic, group in self.paused:
            assert spreading.resume_group(self.shards.opened, topic, group).settings.paused is False
        self.paused.clear()
        for worker in self.workers:
            if worker.consumer is not None:
                worker.consumer.close()
            worker.consumer, worker.held, worker.topics = None, [], sorted(TOPICS)
        for _ in range(200):
            self.clock.advance(10)
            self.keep_time()
            busy = False
            for worker in self.workers[:3]:
                self.receive(worker)
                if worker.held:
                    assert worker.consumer is not None
                    worker.consumer.ack(worker.held)
                    self.acked |= {(worker.group, message.id) for message in worker.held}
                    busy = True
            if not busy and all(info.lag == 0 for info in gathering.groups(self.shards.opened)):
                return
        raise AssertionError("Q2: it never ends")

    def check_that_it_adds_up(self) -> None:
        found = gathering.groups(self.shards.opened)
        assert [(info.topic, info.name) for info in found] == sorted((t, g) for t in TOPICS for g in GROUPS)
        for info in found:
            parts = (
                info.acked, info.ready, info.leased, info.delayed, info.retrying, info.dead, info.lapsed,
                info.withdrawn, info.skipped, info.lost,
            )  # fmt: skip
            assert min(parts) >= 0
            assert info.settings.paused is ((info.topic, info.name) in self.paused), "Q12: a pause was forgotten"
            assert info.published == sum(parts), f"Q1: {info}"

    def check_the_end(self) -> None:
        self.check_that_it_adds_up()
        dead: dict[str, Counter[MessageId]] = defaultdict(Counter)
        for topic in TOPICS:
            for letter in spreading.list_dead_letters(self.shards.opened, topic):
                dead[letter.group][letter.origin] += 1
        for group in GROUPS:
            assert set(dead[group].values()) <= {1}, "Q7: somebody died twice"
            acked = {identity for name, identity in self.acked if name == group}
            unsure = {identity for name, identity in self.unsure if name == group}
            assert not acked & set(dead[group]), "Q7: somebody is acked and dead"
            missing = set(self.published) - acked - set(dead[group]) - unsure
            assert not missing, f"Q2, O5: {len(missing)} messages never came to {group}, such as {min(missing)}"
            for topic in TOPICS:
                assert spreading.group(self.shards.opened, topic, group).lag == 0

    def partitions(self, topic: str) -> Iterator[tuple[Shard, Partition]]:
        """Those of a topic, each with the shard that has it."""
        for shard in self.shards.opened.slices(topic)[1]:
            known = shard.topic(topic)
            for number in known.own_partitions:
                yield shard, known.partitions[number]

    def log(self) -> Iterator[object]:
        """All messages and all events, as they can be read."""
        for info in gathering.topics(self.shards.opened):
            for shard, partition in self.partitions(info.name):
                for message in LogReader(shard, partition.messages).messages(Window()):
                    yield (info.name, message)
                if partition.events is not None:
                    for event in LogReader(shard, partition.events).events(Window()):
                        yield (info.name, partition.messages.partition, event)


def simulate(seed: int, steps: int) -> Simulation:
    print(f"PENSTOCK_SEED={seed}")  # pytest shows it when the test fails
    simulation = Simulation(seed)
    simulation.run(steps)
    return simulation


@pytest.mark.parametrize("run", range(2))
def test_Q1_Q2_Q7_O5_many_consumers_and_a_broker_that_crash_lose_and_double_nothing(run: int) -> None:
    simulation = simulate(SEED + run, 3000)
    simulation.drain()
    simulation.check_the_end()
    assert simulation.crashes > 1
    assert len(simulation.published) > 1000
    assert any(simulation.delivered[work] > 1 for work in simulation.acked), "nothing went wrong"
    assert sum(1 for topic in TOPICS for _ in spreading.list_dead_letters(simulation.shards.opened, topic)) > 10


def test_the_same_seed_gives_the_same_log_and_another_seed_another_one() -> None:
    first, second, other = (simulate(seed, 800) for seed in (SEED, SEED, SEED + 1))
    log = list(first.log())
    assert len(log) > 1000
    assert list(second.log()) == log
    assert second.shards.contents() == first.shards.contents()
    assert list(other.log()) != log
