"""The command line: `python -m benchmarks [NAMES…] [--quick]`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import pages
from benchmarks.figures import FIGURES
from benchmarks.headlines import with_figures
from benchmarks.machine import machine, moment
from benchmarks.measuring import measure
from benchmarks.results import keep
from benchmarks.rows import Row
from benchmarks.table import table_of

_HERE = Path(__file__).resolve().parent


def main() -> None:
    options = _options()
    console = Console(width=None if Console().is_terminal else 160)
    facts, start = machine(), moment()
    console.print(f"{facts['cores']} cores, Python {facts['python']}, {facts['system']}, {start['date']}")
    kept = options.results / ("quick.json" if options.quick else "latest.json")
    rows: dict[str, list[Row]] = {}
    try:
        for name in options.names or FIGURES:
            rows[name], figure = measure(name, options.dir, quick=options.quick)
            console.print(f"[dim]{name}: measured in {figure['seconds']:.0f} s[/dim]")
            results = keep(kept, {name: figure})
    finally:
        console.print(table_of(rows, judged=not options.quick))
        console.print(f"load average at the start {_load(start)}, at the end {_load(moment())}")
    _conclude(console, rows, quick=options.quick)
    _draw(console, options.results / ("quick.png" if options.quick else "figures.png"), results)
    if not options.quick and options.results == _HERE / "results":
        pages.write(_HERE.parent / "docs" / "benchmarks", results)
        readme = _HERE.parent / "README.md"
        readme.write_text(with_figures(readme.read_text(), results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Penstock.")
    parser.add_argument("names", nargs="*", metavar="NAMES", help=f"which figures: {', '.join(FIGURES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small numbers, nothing judged: only to see that it works")
    parser.add_argument("--dir", type=Path, default=_HERE / ".data", help="where the data goes; removed afterwards")
    parser.add_argument("--results", type=Path, default=_HERE / "results", help="where the results go")
    options = parser.parse_args()
    if unknown := set(options.names) - set(FIGURES):
        parser.error(f"no such figure: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    return options


def _conclude(console: Console, figures: dict[str, list[Row]], *, quick: bool) -> None:
    if quick:
        console.print("a quick run: nothing is judged")
        return
    judged = [row for rows in figures.values() for row in rows if row.holds is not None]
    missed = [row.what for row in judged if not row.holds]
    console.print(f"{len(judged) - len(missed)} of {len(judged)} targets hold")
    for what in missed:
        console.print(f"  missed: {what}")


def _draw(console: Console, path: Path, results: dict[str, Any]) -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        console.print("no picture: matplotlib is not installed (`make bench` installs it)")
        return
    from benchmarks.plot import draw

    draw(path, results)


def _load(when: dict[str, Any]) -> str:
    return " ".join(f"{average:.2f}" for average in when["load"])


if __name__ == "__main__":
    main()
