"""Ten thousand topics: what publishing to all of them costs, what they take when idle, and opening them again."""

from __future__ import annotations

from pathlib import Path

import penstock
from benchmarks.bench import SETTLING_OFF, Bench
from benchmarks.children import Child
from benchmarks.publishers import pipelined
from benchmarks.rows import Row, Target, alone, compare
from benchmarks.verify import check_count, count_of

SIZE = 100
_WARM = 100
_SOON = Target("measured", "<", 3.0)


def run(bench: Bench) -> list[Row]:
    count = bench.size(10_000, 200)
    rates = [_rates(bench, count) for _ in range(bench.size(3, 1))]
    return [
        compare(
            f"batches of {SIZE} to {count:,} topics in turn",
            "messages/s",
            rates,
            "the same to one topic",
            Target("ratio", ">=", 0.5),
        ),
        *_in_children(bench, count),
    ]


def _rates(bench: Bench, count: int) -> tuple[float, float]:
    """All topics, then one topic, each with the same batches; topics exist before the clock starts."""
    many = _rate(bench, [f"topic-{number}" for number in range(count)], count)
    return many, _rate(bench, ["one"], count)


def _rate(bench: Bench, names: list[str], batches: int) -> float:
    with bench.scratch() as path, penstock.open(path, **SETTLING_OFF) as broker:
        for name in names:
            commit = broker.shard.create_topic(name, {})
        broker.shard.journal.wait(commit)
        seconds = pipelined(broker, names, range(batches), SIZE)
        check_count("messages in all topics", count_of(broker), batches * SIZE)
    return batches * SIZE / seconds


def _in_children(bench: Bench, count: int) -> list[Row]:
    with bench.scratch() as path:
        with Child("topics", path=path, count=count, size=SIZE) as child:
            taken = child.answer()
            child.kill()
        expected = {"topics": count + _WARM, "messages": (count + _WARM) * SIZE}
        check_count("messages before the kill", taken["messages"], expected["messages"])
        with Child("reopen", path=path) as child:
            recovered_s = _opened(child, expected)
        rounds = [_close_and_open(path, expected) for _ in range(bench.size(3, 1))]
    per_topic = {
        name: (taken[name]["resident"] - taken["before"]["resident"]) / count for name in ("made", "published")
    }
    descriptors = [taken[name]["descriptors"] for name in ("made", "published", "before")]
    return [
        Row("memory of an idle topic", "bytes", per_topic["made"], targets=(Target("measured", "<", 1500),)),
        Row(f"the same with {SIZE} messages in the journal", "bytes", per_topic["published"]),
        Row(
            f"descriptors beside the journal's, {count:,} topics",
            "count",
            max(descriptors[:2]),
            descriptors[2],
            f"with {_WARM} topics",
            (Target("ratio", "<=", 1.0),),
        ),
        alone(f"close and open again, {count:,} topics", "s", rounds, _SOON),
        Row(f"open after kill -9, {count:,} topics", "s", recovered_s, targets=(_SOON,)),
    ]


def _close_and_open(path: Path, expected: dict[str, int]) -> float:
    with Child("reopen", path=path) as child:
        _opened(child, expected)
        closing_s: float = child.close()["seconds"]
    with Child("reopen", path=path) as child:
        return closing_s + _opened(child, expected)


def _opened(child: Child, expected: dict[str, int]) -> float:
    """How long the child took to open; raises unless it found everything."""
    answer = child.answer()
    for name, number in expected.items():
        check_count(f"{name} after opening again", answer[name], number)
    seconds: float = answer["seconds"]
    return seconds
