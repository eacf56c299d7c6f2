"""A data directory with everything in it, made by chance from a seed; and all that its faces tell of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock import Broker
from penstock.model.config import BrokerConfig
from penstock.model.errors import PenstockError
from penstock.model.message import Message
from penstock.model.schedules import SCHEDULES
from penstock.storage import FileStorage
from penstock.testing import VirtualClock

TOPICS = [f"topic-{number}" for number in range(10)]
GROUPS = ("left", "right")
PRODUCERS = ("ann", "bob")
CONFIG = BrokerConfig.parse({"journal_file_bytes": "16KiB", "segment_min_bytes": "2KiB", "min_free_bytes": 0})


def open_at(path: Path, clock: VirtualClock, shards: int | None = None) -> Broker:
    return Broker(FileStorage(path), CONFIG, clock, shards=shards)


class Workload:
    """Does everything that can be done to a broker, by chance, and remembers what can be repeated."""

    def __init__(self, seed: int, archive: str) -> None:
        self._random = random.Random(seed)
        self._archive = archive
        self.clock = VirtualClock(seed)
        self.deduped: dict[tuple[str, str], Any] = {}
        self.produced: dict[tuple[str, str, int], tuple[list[str], Any]] = {}
        self.floors: dict[str, int] = {}
        self.stages: list[str] = []
        self._number = 0

    def fill(self, broker: Broker, steps: int) -> None:
        """Make topics, and do so many things, some of which are settled."""
        for place, topic in enumerate(TOPICS):
            broker.create_topic(topic, partitions=1 + place % 3, max_deliveries=2, archive=self._archive)
        for group in GROUPS:
            broker.create_group(TOPICS[0], group, visibility_timeout=5.0)
        self._do(broker, steps // 2)
        broker.settle()
        self._do(broker, steps - steps // 2)
        come_to_rest(broker)

    def _do(self, broker: Broker, steps: int) -> None:
        for _ in range(steps):
            self.clock.advance(self._random.random())
            self._random.choice(self._deeds())(broker, self._random.choice(TOPICS))

    def _deeds(self) -> list[Any]:
        publishing = [self._publish, self._batch, self._produce, self._dedupe, self._delay, self._lapse]
        return [*publishing, self._consume, self._consume, self._manage, self._schedule, self._stage, self._keep]

    def _value(self) -> str:
        self._number += 1
        return f"value {self._number} " + "x" * self._random.randrange(60)

    def _publish(self, broker: Broker, topic: str) -> None:
        key = self._random.choice([None, "k1", "k2"])
        broker.publish(topic, self._value(), key=key, priority=self._random.choice((0, 64, 128, 200)))

    def _batch(self, broker: Broker, topic: str) -> None:
        values = [Message(self._value(), headers={"n": str(row)}) for row in range(self._random.randrange(1, 30))]
        broker.publish_many(topic, values)

    def _produce(self, broker: Broker, topic: str) -> None:
        producer, values = self._random.choice(PRODUCERS), [self._value() for _ in range(self._random.randrange(1, 4))]
        sequence = 1 + max((known[2] for known in self.produced if known[:2] == (topic, producer)), default=0)
        ids = broker.publish_many(topic, values, producer=producer, sequence=sequence)
        self.produced[topic, producer, sequence] = (values, list(ids))

    def _dedupe(self, broker: Broker, topic: str) -> None:
        identity = f"id-{self._random.randrange(40)}"
        self.deduped[topic, identity] = broker.publish(topic, self._value(), dedupe_id=identity)

    def _delay(self, broker: Broker, topic: str) -> None:
        identity = broker.publish(topic, self._value(), delay=self._random.randrange(1, 10_000))
        chance = self._random.random()
        if chance < 0.3:
            broker.cancel_delayed(identity)
        elif chance < 0.6:
            broker.reschedule_delayed(identity, delay=self._random.randrange(1, 20_000))

    def _lapse(self, broker: Broker, topic: str) -> None:
        broker.publish(topic, self._value(), expires_in=self._random.randrange(1, 100))

    def _consume(self, broker: Broker, topic: str) -> None:
        with broker.consumer(topic, self._random.choice(GROUPS), name="worker") as consumer:
            for message in consumer.receive(self._random.randrange(1, 60)):
                deed = self._random.choice([message.ack] * 6 + [message.release, lambda: None])
                chance = self._random.random()
                if chance < 0.1:
                    message.kill("it is broken")
                elif chance < 0.25:
                    message.fail("not now", delay=self._random.choice([None, 50]))
                else:
                    deed()

    def _manage(self, broker: Broker, topic: str) -> None:
        known = [group.name for group in broker.groups(topic)]
        chance = self._random.random()
        if chance < 0.2:
            broker.checkpoint_group(topic, "reader", {0: broker.topics()[0].partitions[0].first_offset})
        elif chance < 0.35 and broker.dead_letters(topic):
            letter = broker.dead_letters(topic)[0]
            broker.redrive(topic, filter=lambda other: other.id == letter.id)
        elif chance < 0.45:
            broker.purge_dead_letters(topic, filter=lambda letter: self._random.random() < 0.3)
        elif chance < 0.6 and "left" in known:
            broker.pause_group(topic, "left")
        elif chance < 0.7 and "right" in known:
            broker.seek_group(topic, "right", "earliest")
        elif chance < 0.8:
            self._number += 1
            broker.replay(topic, f"replay-{self._number}", filter=lambda message: b"1" in message.value)
        else:
            broker.configure_topic(topic, retention_age=self._random.randrange(10_000, 99_999))

    def _schedule(self, broker: Broker, topic: str) -> None:
        name = f"schedule-{self._random.randrange(12)}"
        chance = self._random.random()
        if chance < 0.6 or name not in {known.name for known in broker.schedules()}:
            cron = self._random.choice(["0 5 * * *", "30 * * * *", "* * * * *"])
            broker.schedule(name, cron, topic, self._value(), key="k", expires_in=self._random.choice([None, 60]))
        elif chance < 0.8:
            broker.pause_schedule(name)
        else:
            broker.remove_schedule(name)

    def _stage(self, broker: Broker, topic: str) -> None:
        self._number += 1
        stage = f"stage-{self._number}"
        self.stages.append(stage)
        for other in (topic, self._random.choice(TOPICS)):
            broker.stage_many(stage, other, [self._value(), Message(self._value(), key="k")])
        if self._random.random() < 0.8:
            broker.seal_stage(stage)
            if self._random.random() < 0.7:
                broker.publish_staged([stage], producer="query", sequence=self._number)  # it only grows

    def _keep(self, broker: Broker, topic: str) -> None:
        chance = self._random.random()
        if chance < 0.4:
            broker.settle()
        elif chance < 0.7:
            broker.configure_topic(topic, retention_age=1)
            broker.retain()
            broker.configure_topic(topic, retention_age=86_400)
        elif chance < 0.85:
            brief = f"brief-{self._number}"
            self.floors[brief] = 5
            broker.publish_many(brief, [self._value()] * 5)
            broker.delete_topic(brief)


def come_to_rest(broker: Broker) -> None:
    """Have everything done that is due, also what groups do when they are looked at: then looking changes nothing."""
    broker.groups()
    for shard in broker.shards:
        with shard.lock:
            shard.keep_time()
        shard.flush()


def portrait(broker: Broker) -> dict[str, Any]:
    """What the faces of a broker tell, as far as it does not depend on how many shards there are."""
    topics = [topic for topic in broker.topics() if topic.name != SCHEDULES]
    messages = {topic.name: list(broker.read(topic.name, include_deleted=True)) for topic in topics}
    return {
        "topics": topics,
        "messages": messages,
        "events": {topic.name: list(broker.events(topic.name)) for topic in topics},
        "traces": [broker.trace(message.id) for found in messages.values() for message in found[::7]],
        "groups": broker.groups(),
        "delayed": {topic.name: broker.delayed(topic.name) for topic in topics},
        "letters": {topic: broker.dead_letters(topic) for topic in TOPICS},
        "schedules": broker.schedules(),
        "staged": broker.staged_sequence("query"),
        "broker": broker.status().broker_id,
    }


def go_on(broker: Broker, workload: Workload) -> Iterator[Any]:
    """Use a broker further; what it answers, as far as it does not depend on how many shards there are."""
    for (topic, identity), known in sorted(workload.deduped.items()):
        found = broker.publish(topic, "again", dedupe_id=identity)
        yield found, found == known
    for (topic, producer, sequence), (values, ids) in sorted(workload.produced.items()):
        assert list(broker.publish_many(topic, values, producer=producer, sequence=sequence)) == ids
    for topic, floor in workload.floors.items():
        assert broker.publish(topic, "once more").offset >= floor
    for number, stage in enumerate(
        workload.stages, broker.staged_sequence("late") or 1
    ):  # most were published, or never sealed
        yield _published(broker, stage, number)
    for topic in TOPICS:
        for group in sorted({group.name for group in broker.groups(topic) if group.kind == "consumers"}):
            with broker.consumer(topic, group, name="later") as consumer:
                received = consumer.receive(10_000)
                yield [(message.id, message.value, message.deliveries) for message in received]
                consumer.ack(received)
        yield [message.value for message in broker.read(topic)]


def _published(broker: Broker, stage: str, sequence: int) -> object:
    try:
        return broker.publish_staged([stage], producer="late", sequence=sequence)
    except PenstockError as error:
        return type(error)
