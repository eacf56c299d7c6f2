"""Settling beside publishing: whether it keeps up at 500,000 messages/s, and what it costs the publisher."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import penstock
from benchmarks.bench import SETTLING_OFF, Bench
from benchmarks.load import BATCH
from benchmarks.publishers import paced, pipelined
from benchmarks.rows import Row, Target, compare
from benchmarks.verify import Wrong, check_topic
from penstock import Broker

RATE = 500_000
_OFF = "settling off"
_EVERY_S = 0.1
_Samples = list[tuple[float, int]]


@dataclass(frozen=True, slots=True)
class _Paced:
    rate: float
    p50_s: float
    backlog: _Samples


def run(bench: Bench) -> list[Row]:
    batches = bench.size(20, 1) * RATE // BATCH
    on_off = [(_paced(bench, batches, {}), _paced(bench, batches, SETTLING_OFF)) for _ in range(bench.size(2, 1))]
    full = bench.size(5000, 200)
    speeds = [(_full_speed(bench, full, {}), _full_speed(bench, full, SETTLING_OFF)) for _ in range(bench.size(3, 1))]
    return [
        compare(
            f"paced at {RATE:,}/s: rate reached (the target)",
            "messages/s",
            [(on.rate, off.rate) for on, off in on_off],
            _OFF,
            Target("measured", ">=", 0.99 * RATE),
            Target("ratio", ">=", 0.7),
        ),
        compare(f"paced at {RATE:,}/s: p50 of a batch", "s", [(on.p50_s, off.p50_s) for on, off in on_off], _OFF),
        _backlog_row(on_off[0][0].backlog),
        compare("full speed (no target)", "messages/s", speeds, _OFF),
    ]


def _backlog_row(samples: _Samples) -> Row:
    """The journal must not grow: the highest of the second half against that of the first."""
    half = len(samples) // 2
    first, second = (max(size for _, size in part) for part in (samples[:half], samples[half:]))
    return Row(
        f"paced at {RATE:,}/s: most journal, second half",
        "bytes",
        second,
        first,
        "first half",
        (Target("ratio", "<=", 1.25),),
        details={"backlog": samples},
    )


def _paced(bench: Bench, batches: int, options: dict[str, Any]) -> _Paced:
    with bench.scratch() as path, penstock.open(path, **options) as broker:
        with _sampled(broker) as samples:
            elapsed, seconds = paced(broker, "orders", range(batches), RATE / BATCH)
        _check(broker, batches, options)
    return _Paced(batches * BATCH / elapsed, median(seconds), samples)


def _full_speed(bench: Bench, batches: int, options: dict[str, Any]) -> float:
    with bench.scratch() as path, penstock.open(path, **options) as broker:
        seconds = pipelined(broker, ["orders"], range(batches))
        _check(broker, batches, options)
    return batches * BATCH / seconds


def _check(broker: Broker, batches: int, options: dict[str, Any]) -> None:
    (topic,) = broker.topics()
    if options and topic.partitions[0].segments:
        raise Wrong("messages were settled although settling is off")
    check_topic(broker, "orders", batches * BATCH)


@contextmanager
def _sampled(broker: Broker) -> Iterator[_Samples]:
    """Note, every tenth of a second, how many bytes of journal wait to be settled."""
    samples: _Samples = []
    over = threading.Event()
    start = perf_counter()

    def sample() -> None:
        while not over.wait(_EVERY_S):
            with broker.shard.lock:
                waiting = sum(file.end for file in broker.shard.journal.files.values())
            samples.append((round(perf_counter() - start, 3), waiting))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
