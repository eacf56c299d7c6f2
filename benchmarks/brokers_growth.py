"""How a cluster on a bucket grows with its brokers, on virtual time: `python -m benchmarks.brokers_growth`.

Members, claims and chains are those of production; the bucket is in memory and answers at once. What is counted is how
long they take to agree, how many shards move, and how much they ask.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import moment
from tests.cluster.virtual_members import VirtualCluster

_ROOT = Path(__file__).resolve().parents[1]
_SIZES, _QUICK_SIZES = (8, 16, 32, 64, 100), (4, 8)
_SHARDS_EACH = 2
_SETTLED_S = 10.0
_PAGE = """# Benchmarks: many brokers

Simulated by `python -m benchmarks.brokers_growth` on virtual time, {date}: members, claims and chains are those of
production, the bucket is in memory and answers at once; {each} shards for each broker. Medians of {rounds} seeds, which
are in `benchmarks/results/brokers.json`.

![Time and requests, by the number of brokers](brokers.svg)

| brokers | all start: shared evenly after | moves | one is killed: all served after | one drains: empty after | \
requests/s of each |
| ---: | ---: | ---: | ---: | ---: | ---: |
{rows}

All start within a moment, and claim what ought to be theirs as soon as they have seen the others. One broker that dies,
or leaves, concerns only its own shards. Each broker looks at each other one, so that its requests grow with their
number: see [what a bucket costs](../explanation/bucket-costs.md).
"""


def measure(brokers: int, seed: int) -> dict[str, float]:
    """One cluster, from its start to the end of a broker."""
    shards = _SHARDS_EACH * brokers
    cluster = VirtualCluster(shards, seed, balance_after_s=1.0)
    cluster.start(brokers)
    limit_s = 60.0 + 2.0 * shards
    start_s = cluster.run_until(cluster.is_even, limit_s)
    moves = cluster.moves
    cluster.run(_SETTLED_S)
    before = cluster.requests
    cluster.run(_SETTLED_S)
    requests = (cluster.requests - before) / _SETTLED_S / brokers
    cluster.random.choice(cluster.members).is_dead = True
    kill_s = cluster.run_until(cluster.is_served, limit_s)
    cluster.run_until(cluster.is_even, limit_s)
    cluster.run(_SETTLED_S)
    leaving = cluster.random.choice(cluster.alive)
    leaving.is_draining = True
    drain_s = cluster.run_until(_empty(cluster, leaving.chains), limit_s)
    return {"start_s": start_s, "moves": moves, "kill_s": kill_s, "drain_s": drain_s, "requests": requests}


def _empty(cluster: VirtualCluster, chains: dict[int, Any]) -> Callable[[], bool]:
    return lambda: not chains and cluster.is_served()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.brokers_growth", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="seeds of each size (3)")
    parser.add_argument("--quick", action="store_true", help="small numbers: only to see that it works")
    options = parser.parse_args()
    points: list[dict[str, float]] = []
    for brokers in _QUICK_SIZES if options.quick else _SIZES:
        rounds = [measure(brokers, seed) for seed in range(1 if options.quick else options.rounds)]
        points.append({"brokers": brokers, **{name: median(each[name] for each in rounds) for name in rounds[0]}})
        print(json.dumps(points[-1]), flush=True)
    if not options.quick:
        _keep(points, options.rounds)


def _keep(points: list[dict[str, float]], rounds: int) -> None:
    now = moment()
    results = {"moment": now, "rounds": rounds, "points": points}
    (_ROOT / "benchmarks/results/brokers.json").write_text(json.dumps(results, indent=1) + "\n")
    rows = "\n".join(
        "| {brokers} | {start_s:.1f} s | {moves:.0f} | {kill_s:.1f} s | {drain_s:.1f} s | {requests:.0f} |".format(
            **point
        )
        for point in points
    )
    page = _PAGE.format(date=now["date"][:10], each=_SHARDS_EACH, rounds=rounds, rows=rows)
    (_ROOT / "docs/benchmarks/brokers.md").write_text(page)
    _draw(_ROOT / "docs/benchmarks/brokers.svg", points)


def _draw(path: Path, points: list[dict[str, float]]) -> None:
    try:
        import matplotlib as mpl
    except ImportError:
        return
    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "penstock", "svg.fonttype": "none"})  # the same figures make the same file
    from matplotlib import pyplot as plt

    figure, (times, requests) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    sizes = [point["brokers"] for point in points]
    for name, label in (("start_s", "all start: even"), ("kill_s", "one is killed: served"), ("drain_s", "one drains")):
        times.plot(sizes, [point[name] for point in points], marker="o", label=label)
    times.set(xlabel="brokers", ylabel="seconds", ylim=(0, None))
    times.legend()
    requests.plot(sizes, [point["requests"] for point in points], marker="o")
    requests.set(xlabel="brokers", ylabel="requests a second of each broker", ylim=(0, None))
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
