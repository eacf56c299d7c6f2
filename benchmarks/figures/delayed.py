"""A million delayed messages: what they cost in memory and to publish, a restart with them, and how late they come."""

from __future__ import annotations

import random
from time import perf_counter, time

import penstock
from benchmarks.bench import SETTLING_OFF, Bench
from benchmarks.children import Child
from benchmarks.rows import Row, Target, alone, compare
from benchmarks.verify import check_count
from penstock import Message

BATCH = 1000
DUE_PER_S = 10_000


def run(bench: Bench) -> list[Row]:
    count = bench.size(1_000_000, 5000)
    inserts: list[tuple[float, float]] = []
    bytes_each: list[float] = []
    restarts: list[float] = []
    for _ in range(bench.size(3, 1)):
        with bench.scratch() as place:
            inserts.append(_publish(place, count))
            with Child("open_delayed", path=place, count=count) as child:
                answer = child.answer()
            check_count("delayed messages after the restart", answer["delayed"], count)
            restarts.append(answer["seconds"])
            bytes_each.append(answer["bytes"] / count)
    late = [_lateness(bench, bench.size(10, 1)) for _ in range(bench.size(3, 1))]
    return [
        compare(
            "publishing delayed messages, each",
            "s",
            inserts,
            "the same without delay",
            note="in batches of 1000, random delays over 6 days; the insertion is the difference",
        ),
        alone(
            "inserting a delayed message, each",
            "s",
            [delayed - plain for delayed, plain in inserts],
            Target("measured", "<", 1e-6),
        ),
        alone(f"memory of each of {count:,} delayed messages", "B", bytes_each, Target("measured", "<", 40)),
        alone(f"restart with {count:,} delayed messages", "s", restarts, Target("measured", "<", 3)),
        alone(
            f"lateness with {DUE_PER_S:,} due a second: p99",
            "s",
            [p99 for p99, _ in late],
            Target("measured", "<", 0.020),
        ),
        alone(f"lateness with {DUE_PER_S:,} due a second: p50", "s", [p50 for _, p50 in late]),
    ]


def _publish(place: object, count: int) -> tuple[float, float]:
    """The seconds that each message took with a delay, and without."""
    chance = random.Random(3)
    delayed = [[Message(b"x" * 20, delay=chance.uniform(3600, 6 * 86400)) for _ in range(BATCH)] for _ in range(20)]
    plain = [[Message(b"x" * 20) for _ in range(BATCH)] for _ in range(20)]
    with penstock.open(str(place), **SETTLING_OFF) as broker:
        consumers = [broker.consumer(topic, "g") for topic in ("delayed", "plain")]
        seconds = {"delayed": 0.0, "plain": 0.0}
        for number in range(count // BATCH):
            for topic, batches in (("delayed", delayed), ("plain", plain)):
                messages = batches[number % len(batches)]
                start = perf_counter()
                broker.publish_many(topic, messages)
                seconds[topic] += perf_counter() - start
        for consumer in consumers:
            consumer.close()
        check_count("delayed messages", broker.group("delayed", "g").delayed, count)
    return seconds["delayed"] / count, seconds["plain"] / count


def _lateness(bench: Bench, seconds: int) -> tuple[float, float]:
    """The p99 and the p50 of how late messages come of which ten thousand fall due a second."""
    count = seconds * DUE_PER_S
    with penstock.open(bench.place(), **SETTLING_OFF) as broker, broker.consumer("orders", "g") as consumer:
        first = time() + 2
        for start in range(0, count, BATCH):
            broker.publish_many(
                "orders",
                [Message(b"x", deliver_at=first + row / DUE_PER_S) for row in range(start, start + BATCH)],
            )
        late: list[float] = []
        while len(late) < count:
            messages = consumer.receive(BATCH, wait=10)
            now_us = time() * 1e6
            late += [(now_us - (message.deliver_at_us or 0)) / 1e6 for message in messages]
            consumer.ack(messages)
        check_count("messages that came", len(late), count)
        if min(late) < 0:
            raise AssertionError(f"a message came {-min(late)} s early")
    late.sort()
    return late[int(len(late) * 0.99)], late[len(late) // 2]
