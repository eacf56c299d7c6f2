"""Single messages of 100 B, durable: from 64 tasks, from 64 threads, and from one publisher alone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import mean, median
from time import perf_counter

import penstock
from benchmarks.bench import SETTLING_OFF, Bench
from benchmarks.disk import BARE, bare_beside
from benchmarks.load import value_at
from benchmarks.publishers import singles_from_tasks
from benchmarks.rows import Row, Target, compare
from benchmarks.verify import check_values
from penstock import Broker

PUBLISHERS = 64
_RATE = Target("measured", ">=", 60_000)
_NEAR = Target("ratio", "<=", 1.5)
_Pair = tuple[float, float]


def run(bench: Bench) -> list[Row]:
    count = bench.size(20_000, 2000)
    tasks: list[_Pair] = []
    threads: list[_Pair] = []
    for _ in range(bench.size(9, 1)):
        tasks.append(_many(bench, count, singles_from_tasks))
        threads.append(_many(bench, count // 2, _from_threads))
    alone = [_alone(bench, bench.size(300, 50)) for _ in range(bench.size(15, 1))]
    return [
        compare(f"single messages, {PUBLISHERS} tasks", "messages/s", tasks, BARE, _RATE),
        compare(f"single messages, {PUBLISHERS} threads", "messages/s", threads, BARE),
        compare("one publisher alone: p50", "s", [p50 for p50, _ in alone], BARE, _NEAR),
        compare("one publisher alone: mean", "s", [average for _, average in alone], BARE, _NEAR),
    ]


def _many(bench: Bench, count: int, publish: Callable[[Broker, list[str], range, int], float]) -> _Pair:
    path = bench.place()
    with penstock.open(path / "data", **SETTLING_OFF) as broker:
        broker.create_topic("orders")
        seconds = publish(broker, ["orders"], range(count), PUBLISHERS)
        bare = bare_beside(broker, path / "bare")
        check_values(broker, "orders", [value_at(number) for number in range(count)])
    return count / seconds, count / sum(bare)


def _from_threads(broker: Broker, topics: list[str], numbers: range, threads: int) -> float:
    def publish(first: int) -> None:
        for number in numbers[first::threads]:
            broker.publish(topics[0], value_at(number))

    with ThreadPoolExecutor(threads) as pool:
        start = perf_counter()
        for _ in pool.map(publish, range(threads)):
            pass
        return perf_counter() - start


def _alone(bench: Bench, count: int) -> tuple[_Pair, _Pair]:
    """The p50 and the mean of one publisher that waits for each message, each beside the bare loop's."""
    path = bench.place()
    with penstock.open(path / "data", **SETTLING_OFF) as broker:
        broker.create_topic("orders")
        seconds = []
        for number in range(count):
            value = value_at(number)
            start = perf_counter()
            broker.publish("orders", value)
            seconds.append(perf_counter() - start)
        bare = bare_beside(broker, path / "bare")
        check_values(broker, "orders", [value_at(number) for number in range(count)])
    return (median(seconds), median(bare)), (mean(seconds), mean(bare))
