"""The command line `python -m benchmarks.check [NAMES…] [--quick]`: what has become slower.

What looks slower is measured once more, and named only if it is slower both times; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.comparison import TOLERANCE, Comparison, Figures, compare_figures, slower_twice
from benchmarks.figures import FIGURES
from benchmarks.measuring import measure

_HERE = Path(__file__).resolve().parent


def main() -> int:
    options = _options()
    console = Console(width=None if Console().is_terminal else 160)
    recorded = json.loads(options.recorded.read_text())["figures"]
    rows = _compared(console, recorded, options.names or list(FIGURES), options)
    suspects = sorted({row.figure for row in rows if row.slower})
    console.print(table_of(rows))
    if options.quick:
        console.print("a quick run: nothing is judged")
        return 0
    slower = slower_twice(rows, _compared(console, recorded, suspects, options)) if suspects else []
    for row in slower:
        console.print(f"slower: {row.figure}: {row.what} ({row.change:+.1%})")
    if not slower:
        console.print(f"nothing is slower than recorded by more than {TOLERANCE:.0%} beyond the spread of its rounds")
    return 1 if slower else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check", description="Find what has become slower.")
    parser.add_argument("names", nargs="*", metavar="NAMES", help=f"which figures: {', '.join(FIGURES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small numbers, nothing judged: only to see that it works")
    parser.add_argument("--dir", type=Path, default=_HERE / ".data", help="where the data goes; removed afterwards")
    parser.add_argument(
        "--recorded", type=Path, default=_HERE / "results" / "latest.json", help="the results to compare with"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(FIGURES):
        parser.error(f"no such figure: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    return options


def _compared(console: Console, recorded: Figures, names: list[str], options: argparse.Namespace) -> list[Comparison]:
    rows: list[Comparison] = []
    for name in names:
        _, figure = measure(name, options.dir, quick=options.quick)
        found = compare_figures(recorded, {name: figure})
        worst = min((row.change for row in found), default=0.0)
        console.print(f"[dim]{name}: measured in {figure['seconds']:.0f} s, at worst {worst:+.1%}[/dim]")
        rows += found
    return rows


def table_of(rows: list[Comparison]) -> Table:
    """One line a row: its ratio to its baseline, recorded and now."""
    table = Table()
    for column in ("figure", "what", "recorded", "worst round", "now", "change", "slower"):
        table.add_column(column, justify="left" if column in ("figure", "what") else "right")
    for row in rows:
        verdict = "[bold red]yes[/bold red]" if row.slower else ""
        figures = (f"{row.recorded:.2f}", f"{row.worst:.2f}", f"{row.now:.2f}", f"{row.change:+.1%}")
        table.add_row(row.figure, row.what, *figures, verdict)
    return table


if __name__ == "__main__":
    sys.exit(main())
