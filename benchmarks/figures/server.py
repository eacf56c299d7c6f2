"""A server over loopback, with the load in a process of its own: the figures of `penstock bench all`."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.rows import Row, Target, alone, compare
from penstock.bench.figures import Beside, Figure
from penstock.bench.place import Place
from penstock.bench.standard import STANDARD, Effort, warm

_TARGETS = {
    "batches-1000": Target("measured", ">=", 1_500_000),
    "batches-100": Target("measured", ">=", 1_000_000),
    "connections-64": Target("measured", ">=", 40_000),
    "window-256": Target("measured", ">=", 80_000),
    "alone": Target("ratio", "<=", 1.6),
    "consume": Target("measured", ">=", 1_000_000),
    "latency": Target("measured", "<", 0.010),
}
_FULL, _QUICK = Effort(1.5, 500_000), Effort(0.1, 5000)


def run(bench: Bench) -> list[Row]:
    figures: dict[str, list[Figure]] = {standard.name: [] for standard in STANDARD}
    effort = _QUICK if bench.quick else _FULL
    for _ in range(bench.size(7, 1)):
        with bench.scratch() as directory, Place(None, directory=directory) as place:
            for standard in STANDARD:
                figures[standard.name].append(place.measure(warm(standard.measure(effort))))
    return [_row(standard.name, f"server: {standard.what}", figures[standard.name]) for standard in STANDARD]


def _row(name: str, what: str, rounds: list[Figure]) -> Row:
    """What a figure is about: a rate, the p50 beside the bare one, or the p99 from end to end."""
    target = _TARGETS[name]
    if name == "latency":
        p50 = sorted(figure.latency.p50_s for figure in rounds)[len(rounds) // 2]
        return alone(
            f"{what}: p99", "s", [figure.latency.p99_s for figure in rounds], target, note=f"p50 {p50 * 1e3:.2f} ms"
        )
    besides = [_beside(figure) for figure in rounds]
    baseline = besides[0].what.partition(":")[0]
    if name == "alone":
        pairs = [
            (figure.latency.p50_s, beside.latency.p50_s)
            for figure, beside in zip(rounds, besides, strict=True)
            if beside.latency is not None
        ]
        return compare(f"{what}: p50", "s", pairs, f"{baseline} round trip + fdatasync", target)
    rates = [(figure.messages_per_s, beside.messages_per_s) for figure, beside in zip(rounds, besides, strict=True)]
    if name != "consume":
        baseline += " round trip + fdatasync, one at a time"
    return compare(what, "messages/s", rates, baseline, target)


def _beside(figure: Figure) -> Beside:
    assert figure.beside is not None
    return figure.beside
