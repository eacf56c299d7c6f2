"""Topics with a past: a real broker on which everything happens that can happen to messages, the same for a seed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import penstock
from penstock.model.errors import LeaseLost
from penstock.testing import VirtualClock

REASONS = ("no milk", "the till is closed", "timeout after 30 s")
GROUPS = ("kitchen", "billing", "audit-log")
LEASE_S = 30.0


class Lives:
    """Drives a broker with a clock of its own; whatever is chosen by chance depends on the seed alone."""

    def __init__(self, path: Path, seed: int = 1) -> None:
        self._path, self.clock, self.chance = path, VirtualClock(), random.Random(seed)
        self.broker = self._open()

    def _open(self) -> penstock.Broker:
        return penstock.open(self._path, clock=self.clock, min_free_bytes=0, segment_min_bytes=0)

    def restart(self) -> None:
        """Close the broker and open it again: leases are gone."""
        self.broker.close()
        self.broker = self._open()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and have everything that is due happen."""
        self.clock.advance(seconds)
        self.broker.groups()

    def publish(self, topic: str, count: int, **options: Any) -> None:
        """A batch of messages of all kinds; options are those of all of them."""
        chance = self.chance
        messages = [
            penstock.Message(
                f"value {chance.randrange(10**9)}",
                key=f"key {chance.randrange(20)}" if chance.random() < 0.7 else None,
                headers={"b": "2", "a": str(chance.randrange(9))} if chance.random() < 0.3 else None,
                **{
                    "priority": chance.choice([0, 128, 128, 200]),
                    "delay": chance.choice([None, None, None, None, 20.5, 200]),
                    "expires_in": chance.choice([None, None, None, None, 90]),
                    "dedupe_id": f"id {chance.randrange(10**12)}" if chance.random() < 0.2 else None,
                    **options,
                },
            )
            for _ in range(count)
        ]
        self.broker.publish_many(topic, messages)

    def consume(self, topic: str, group: str, name: str, count: int = 40, care: float = 0.0) -> int:
        """Receive, then settle in every way that there is; with `care` (to 1) more of it is acked at once."""
        chance = self.chance
        with self.broker.consumer(topic, group, name=name) as consumer:
            messages = consumer.receive(count)
            self.clock.advance(chance.choice([0.001, 0.25, 3.0]))
            if chance.random() < care:
                consumer.ack(messages)
                return len(messages)
            mixed = messages[:]
            chance.shuffle(mixed)
            some = iter(mixed)
            with contextlib.suppress(LeaseLost):
                consumer.fail(_next(some, len(mixed) // 8), chance.choice(REASONS), delay=chance.choice([None, 0, 400]))
                consumer.release(_next(some, len(mixed) // 8))
                consumer.kill(_next(some, len(mixed) // 16), "it can never be done")
                consumer.extend(_next(some, 2), 60)
                consumer.ack(_next(some, len(mixed) // 2))
                if chance.random() < 0.3:
                    self.clock.advance(LEASE_S + 1)  # what is left expires
                    consumer.heartbeat()
                    self.broker.groups(topic)
        return len(messages)

    def settle(self) -> None:
        """Write segments of all that there is."""
        self.broker.settle()

    def close(self) -> None:
        """End."""
        self.broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _next(messages: Iterator[Any], count: int) -> list[Any]:
    return [message for message, _ in zip(messages, range(count), strict=False)]


def full_life(lives: Lives, topic: str = "orders", rounds: int = 12, partitions: int = 2) -> None:
    """Everything at once: redeliveries, failures, expiries, deaths, redrives, delays, groups that come, move and go."""
    broker, chance = lives.broker, lives.chance
    broker.create_topic(topic, partitions=partitions, max_deliveries=2, visibility_timeout=LEASE_S)
    broker.create_group(topic, "sleepy")
    for number in range(rounds):
        lives.publish(topic, chance.randrange(20, 60))
        lives.clock.advance(chance.choice([0.5, 60, 2500]))
        for group in GROUPS:
            for consumer in range(chance.randrange(3)):
                lives.consume(topic, group, f"{group}-{consumer}", chance.choice([7, 40, 100]), care=0.3)
        delayed = lives.broker.delayed(topic)
        for message in delayed[:2]:
            lives.broker.cancel_delayed(message.id)
        for message in delayed[2:4]:
            lives.broker.reschedule_delayed(message.id, delay=chance.choice([1, 300]))
        if number == rounds // 3:
            lives.settle()
            lives.broker.redrive(topic, filter=lambda letter: letter.id.offset % 2 == 0)
            lives.broker.create_group(topic, "short-lived")
            lives.consume(topic, "short-lived", "one")
        if number == rounds // 2:
            lives.restart()
            lives.broker.delete_group(topic, "short-lived")
            lives.broker.seek_group(topic, "audit-log", 5, partition=0)
            lives.broker.replay(topic, "once-more", from_offset=3, to_offset=15, filter=lambda m: m.offset % 3 > 0)
            lives.broker.checkpoint_group(topic, "spark", {0: 10})
        if number == rounds - 2:
            lives.settle()
            lives.broker.redrive(topic)
            lives.consume(topic, "once-more", "again", 5)
            lives.broker.purge_dead_letters(topic)
    lives.broker.checkpoint_group(topic, "spark", {0: 12, partitions - 1: 4})
    lives.broker.consumer(topic, "sleepy", name="stuck").receive(6)  # which never settles them
    lives.clock.advance(LEASE_S / 2)
    lives.restart()
    lives.publish(topic, 5)
    lives.clock.advance(1000)
    lives.publish(topic, 5)
    lives.consume(topic, "kitchen", "late", 3, care=1.0)


def many_consumed(path: Path, count: int, groups: int = 2, at_once: int = 1000, failures: int = 3) -> None:
    """A topic of so many messages, published in batches, consumed by some groups with some failures, all settled."""
    batch = [f'{{"order": {number}, "note": "{"x" * 60}"}}' for number in range(1000)]
    chance = random.Random(count)
    with penstock.open(path, min_free_bytes=0, sync="never") as broker:
        broker.create_topic("orders", retry_backoff=0.01)
        for number in range(0, count, 100_000):
            for _ in range(min(count - number, 100_000) // len(batch)):
                broker.publish_many("orders", batch)
            for group in range(groups):
                with broker.consumer("orders", f"group-{group}", name="worker") as consumer:
                    while messages := consumer.receive(at_once):
                        failed = set(chance.sample(range(len(messages)), min(failures, len(messages) - 1)))
                        consumer.ack([message for place, message in enumerate(messages) if place not in failed])
                        consumer.fail([messages[place] for place in sorted(failed)], "no milk", delay=0)
        broker.settle()
