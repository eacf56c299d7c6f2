"""A divided directory in one process: what several shards cost beside one, and many topics over eight of them."""

from __future__ import annotations

from time import perf_counter

import penstock
from benchmarks.bench import SETTLING_OFF, Bench
from benchmarks.children import Child
from benchmarks.load import BATCH
from benchmarks.publishers import pipelined, singles_from_tasks
from benchmarks.rows import Row, Target, alone, compare
from benchmarks.verify import check_count, count_of
from penstock import Broker

TOPICS = [f"topic-{number}" for number in range(16)]
SHARDS, MANY_SHARDS = 4, 8
TASKS = 64
_WARM = 100  # topics that are made before those that count
_BESIDE = "one shard"
_NEARLY = Target("ratio", ">=", 0.85)


def run(bench: Bench) -> list[Row]:
    batches: list[tuple[float, float]] = []
    singles: list[tuple[float, float]] = []
    received: list[tuple[float, float]] = []
    for turn in range(bench.size(5, 1)):
        rates = {shards: _rates(bench, shards) for shards in ((1, SHARDS) if turn % 2 else (SHARDS, 1))}
        for found, divided, whole in zip((batches, singles, received), rates[SHARDS], rates[1], strict=True):
            found.append((divided, whole))
    to = f"to {len(TOPICS)} topics, {SHARDS} shards"
    return [
        compare(f"batches of {BATCH} {to}", "messages/s", batches, _BESIDE, _NEARLY),
        compare(f"single messages, {TASKS} tasks, {to}", "messages/s", singles, _BESIDE, _NEARLY),
        compare(f"receive + ack of {len(TOPICS)} topics, {SHARDS} shards", "messages/s", received, _BESIDE, _NEARLY),
        *_many_topics(bench),
    ]


def _rates(bench: Bench, shards: int) -> tuple[float, float, float]:
    """Publishing in batches and one by one, and receiving all of it, with one consumer."""
    count, alone_count = bench.size(500, 3), bench.size(30_000, 500)
    with bench.scratch() as path, penstock.open(path, shards=shards, **SETTLING_OFF) as broker:
        for name in TOPICS:
            broker.create_topic(name)
        pipelined(broker, TOPICS, range(bench.size(50, 1)))
        batches_s = pipelined(broker, TOPICS, range(count))
        singles_s = singles_from_tasks(broker, TOPICS, range(alone_count), TASKS)
        published = count_of(broker)
        received_s = _drain(broker, published)
    return count * BATCH / batches_s, alone_count / singles_s, published / received_s


def _drain(broker: Broker, count: int) -> float:
    with broker.consumer(TOPICS, "g") as consumer:
        start = perf_counter()
        while messages := consumer.receive(BATCH):
            consumer.ack(messages)
        seconds = perf_counter() - start
    check_count("messages acked", sum(group.acked for group in broker.groups()), count)
    return seconds


def _many_topics(bench: Bench) -> list[Row]:
    count = bench.size(10_000, 200)
    taken: dict[int, dict[str, list[float]]] = {}
    for shards in (MANY_SHARDS, 1):
        taken[shards] = {"seconds": [], "resident": []}
        with bench.scratch() as path:
            with Child("topics", path=path, count=count, size=1, shards=shards) as child:
                child.answer()
                child.close()
            for _ in range(bench.size(3, 1)):
                with Child("reopen", path=path) as child:
                    answer = child.answer()
                    check_count("topics after opening again", answer["topics"], count + _WARM)
                    for name, found in taken[shards].items():
                        found.append(answer[name])
    divided, whole = taken[MANY_SHARDS], taken[1]
    return [
        alone(f"opening {count:,} topics, {MANY_SHARDS} shards", "s", divided["seconds"], Target("measured", "<", 4.0)),
        compare(
            f"memory with {count:,} topics open, {MANY_SHARDS} shards",
            "bytes",
            list(zip(divided["resident"], whole["resident"], strict=True)),
            _BESIDE,
            Target("ratio", "<=", 1.3),
        ),
    ]
