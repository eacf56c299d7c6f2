"""Receiving and acking, durable: in batches, from 64 tasks, over five lanes, by key; what groups cost publishers."""

from __future__ import annotations

import random
from time import perf_counter

import penstock
from benchmarks.bench import SETTLING_OFF, Bench
from benchmarks.consumers import check_drained, drain, drain_by_tasks
from benchmarks.load import BATCH, batch, value_at
from benchmarks.publishers import one_at_a_time, singles_from_tasks
from benchmarks.rows import Row, Target, compare
from benchmarks.verify import check_count
from penstock import Message

TASKS = 64
KEYS = 10_000
LANES = [0, 64, 128, 192, 255]
_PUBLISHING = "publishing the same"
_Pair = tuple[float, float]


def run(bench: Bench) -> list[Row]:
    batches: list[_Pair] = []
    singles: list[_Pair] = []
    groups: list[_Pair] = []
    lanes: list[_Pair] = []
    keys: list[_Pair] = []
    for turn in range(bench.size(7, 1)):
        batches.append(_batches(bench, bench.size(300, 3)))
        singles.append(_singles(bench, bench.size(30_000, 1000)))
        groups.append(_groups(bench, bench.size(300, 3), first=4 * (turn % 2)))
        lanes.append(_lanes(bench, bench.size(200, 3)))
        keys.append(_keys(bench, bench.size(100, 3)))
    return [
        compare(
            f"receive + ack, batches of {BATCH}", "messages/s", batches, _PUBLISHING, Target("measured", ">=", 1e6)
        ),
        compare(
            f"receive + ack, single messages, {TASKS} tasks",
            "messages/s",
            singles,
            _PUBLISHING,
            Target("measured", ">=", 40_000),
        ),
        compare("publishing with 4 groups", "messages/s", groups, "without", Target("ratio", ">=", 0.9)),
        compare(
            "publish + receive + ack, 5 lanes at random",
            "messages/s",
            lanes,
            "with one lane",
            Target("measured", ">=", 400_000),
        ),
        compare(
            f"receive + ack in key order, {KEYS} keys",
            "messages/s",
            keys,
            "without order by key",
            Target("measured", ">=", 150_000),
        ),
    ]


def _batches(bench: Bench, count: int) -> _Pair:
    with penstock.open(bench.place(), **SETTLING_OFF) as broker:
        published = sum(one_at_a_time(broker, "orders", range(count)))
        seconds = drain(broker, "orders", "g", count * BATCH)
    return count * BATCH / seconds, count * BATCH / published


def _singles(bench: Bench, count: int) -> _Pair:
    with penstock.open(bench.place(), **SETTLING_OFF) as broker:
        published = singles_from_tasks(broker, ["orders"], range(count), TASKS)
        seconds = drain_by_tasks(broker, "orders", "g", count, TASKS)
    return count / seconds, count / published


def _groups(bench: Bench, count: int, first: int) -> _Pair:
    rates = {}
    for groups in (first, 4 - first):
        with penstock.open(bench.place(), **SETTLING_OFF) as broker:
            consumers = [broker.consumer("orders", f"g{number}") for number in range(groups)]
            rates[groups] = count * BATCH / sum(one_at_a_time(broker, "orders", range(count)))
            check_count("groups", len(consumers), groups)
            for number in range(groups):
                check_count("messages ready", broker.group("orders", f"g{number}").ready, count * BATCH)
    return rates[4], rates[0]


def _lanes(bench: Bench, count: int) -> _Pair:
    chance = random.Random(7)
    mixed = [
        [Message(value, priority=chance.choice(LANES)) for value in batch(number)] for number in range(min(count, 20))
    ]
    uniform = [[Message(value) for value in batch(number)] for number in range(min(count, 20))]
    return _tail(bench, count, mixed), _tail(bench, count, uniform)


def _tail(bench: Bench, count: int, batches: list[list[Message]]) -> float:
    """Publish a batch, receive it, ack it, and so on."""
    with penstock.open(bench.place(), **SETTLING_OFF) as broker, broker.consumer("orders", "g") as consumer:
        start = perf_counter()
        for number in range(count):
            broker.publish_many("orders", batches[number % len(batches)])
            messages = consumer.receive(BATCH)
            consumer.ack(messages)
        seconds = perf_counter() - start
        check_drained(broker, "orders", "g", count * BATCH)
    return count * BATCH / seconds


def _keys(bench: Bench, count: int) -> _Pair:
    chance = random.Random(7)
    rates = []
    for order in ("key", "lane"):
        with penstock.open(bench.place(), **SETTLING_OFF) as broker:
            broker.create_topic("orders", order=order)
            for number in range(count):
                broker.publish_many(
                    "orders",
                    [
                        Message(value_at(number * BATCH + row), key=b"%d" % chance.randrange(KEYS))
                        for row in range(BATCH)
                    ],
                )
            rates.append(count * BATCH / drain(broker, "orders", "g", count * BATCH))
    return rates[0], rates[1]
