"""The command line: `python -m benchmarks.growth [LINES…] [--up-to N] [--quick]`."""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from pathlib import Path
from time import perf_counter

from rich.console import Console

from benchmarks.bench import Bench
from benchmarks.growth import page
from benchmarks.growth.lines import LINES
from benchmarks.growth.points import Point, measure_point
from benchmarks.machine import machine, moment

_BENCHMARKS = Path(__file__).resolve().parents[1]


def main() -> None:
    options = _options()
    console = Console(width=None if Console().is_terminal else 160)
    name = "growth-quick.json" if options.quick else "growth.json"
    path = options.results / name
    options.dir.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=options.dir) as directory:
            for line in options.names or LINES:
                start = moment()
                points = _points(console, Bench(Path(directory).resolve(), options.quick), line, options)
                results = _keep(path, line, {"start": start, "end": moment(), "points": points})
    finally:
        with contextlib.suppress(OSError):
            options.dir.rmdir()
    console.print(page.table_of(results))
    if not options.quick and options.results == _BENCHMARKS / "results":
        docs = _BENCHMARKS.parent / "docs" / "benchmarks"
        page.write(docs, results)
        page.draw(docs, results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description="Measure how costs grow.")
    parser.add_argument("names", nargs="*", metavar="LINES", help=f"which: {', '.join(LINES)} (default: all)")
    parser.add_argument("--up-to", type=int, default=10**7, help="the most messages of that line (default: 10,000,000)")
    parser.add_argument("--limit", type=float, default=300.0, help="no larger size once a point took so many seconds")
    parser.add_argument("--rounds", type=int, default=3, help="of each point; the median counts (default: 3)")
    parser.add_argument("--quick", action="store_true", help="small numbers: only to see that it works")
    parser.add_argument(
        "--dir", type=Path, default=_BENCHMARKS / ".data", help="where the data goes; removed afterwards"
    )
    parser.add_argument("--results", type=Path, default=_BENCHMARKS / "results", help="where the results go")
    options = parser.parse_args()
    if unknown := set(options.names) - set(LINES):
        parser.error(f"no such line: {', '.join(sorted(unknown))}; there are {', '.join(LINES)}")
    return options


def _points(console: Console, bench: Bench, name: str, options: argparse.Namespace) -> list[Point]:
    """The points of a line, up to the size at which one takes too long."""
    line = LINES[name]
    points: list[Point] = []
    for size in line.quick_sizes if options.quick else line.sizes:
        if name == "messages" and size > options.up_to:
            break
        start_s = perf_counter()
        rounds = 1 if options.quick or size > 10**7 else options.rounds
        points.append(measure_point(bench, name, size, rounds))
        seconds = perf_counter() - start_s
        console.print(f"[dim]{size:,} {line.of}: measured in {seconds:.0f} s[/dim]")
        if seconds > options.limit:
            break
    return points


def _keep(path: Path, line: str, found: dict[str, object]) -> page.Results:
    """Write a line to the file; the others that it has stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text())["lines"] if path.exists() else {}
    lines = {name: (known | {line: found})[name] for name in LINES if name in known or name == line}
    results: page.Results = {"machine": machine(), "lines": lines}
    path.write_text(json.dumps(results, indent=1) + "\n")
    return results


if __name__ == "__main__":
    main()
