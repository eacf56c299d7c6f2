"""Durable batches of 1000 × 100 B: one at a time (sync face), and with 8 on the way (async face)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from statistics import median

import penstock
from benchmarks.bench import SETTLING_OFF, Bench
from benchmarks.disk import BARE, bare_beside
from benchmarks.load import BATCH, batch
from benchmarks.publishers import WINDOW, Batch, one_at_a_time, pipelined
from benchmarks.rows import Row, Target, compare
from benchmarks.verify import check_topic
from penstock import Message

_RATIO = Target("ratio", ">=", 0.6)
_RATE = Target("measured", ">=", 1_500_000)
_Pair = tuple[float, float]


def run(bench: Bench) -> list[Row]:
    count = bench.size(200, 20)
    rates: list[_Pair] = []
    latencies: list[_Pair] = []
    object_rates: list[_Pair] = []
    window_rates: list[_Pair] = []
    for _ in range(bench.size(15, 1)):
        rate, latency = _one_at_a_time(bench, count, batch)
        rates.append(rate)
        latencies.append(latency)
        object_rates.append(_one_at_a_time(bench, count, _objects)[0])
        window_rates.append(_with_window(bench, count))
    return [
        _rate_row("batches of 1000, one at a time", rates),
        compare("batches of 1000, one at a time: p50", "s", latencies, BARE),
        _rate_row("batches of 1000 `Message`, one at a time", object_rates),
        _rate_row(f"batches of 1000, {WINDOW} on the way", window_rates),
    ]


def _rate_row(what: str, pairs: list[_Pair]) -> Row:
    """The rate is a target only where the bare loop reaches it."""
    if median(baseline for _, baseline in pairs) >= _RATE.bound:
        return compare(what, "messages/s", pairs, BARE, _RATIO, _RATE)
    return compare(what, "messages/s", pairs, BARE, _RATIO, note="the bare loop stays below 1.5 M/s")


@cache
def _objects(number: int) -> list[Message]:
    return [Message(value) for value in batch(number)]


def _one_at_a_time(bench: Bench, count: int, batch_of: Callable[[int], Batch]) -> tuple[_Pair, _Pair]:
    path = bench.place()
    with penstock.open(path / "data", **SETTLING_OFF) as broker:
        broker.create_topic("orders")
        seconds = one_at_a_time(broker, "orders", range(count), batch_of)
        bare = bare_beside(broker, path / "bare")
        check_topic(broker, "orders", count * BATCH)
    messages = count * BATCH
    return (messages / sum(seconds), messages / sum(bare)), (median(seconds), median(bare))


def _with_window(bench: Bench, count: int) -> _Pair:
    path = bench.place()
    with penstock.open(path / "data", **SETTLING_OFF) as broker:
        broker.create_topic("orders")
        seconds = pipelined(broker, ["orders"], range(count))
        bare = bare_beside(broker, path / "bare")
        check_topic(broker, "orders", count * BATCH)
    return count * BATCH / seconds, count * BATCH / sum(bare)
