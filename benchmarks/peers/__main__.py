"""The command line: `python -m benchmarks.peers [--quick] [--peers …] [--rows …]`."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.machine import machine, moment
from benchmarks.peers import rounds
from benchmarks.peers.catalogue import BY_NAME, ROWS, SYSTEMS
from benchmarks.peers.rounds import Effort, Figure
from benchmarks.peers.summary import table_of_figures
from benchmarks.peers.targets import judge
from benchmarks.table import table_of

_HERE = Path(__file__).resolve().parent.parent
_FULL, _QUICK = Effort(5, 1.0, 1.0), Effort(1, 0.15, 0.05)


def main() -> None:
    options = _options()
    console = Console(width=None if Console().is_terminal else 180)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all servers are stopped
    effort = Effort(
        options.rounds or (_QUICK if options.quick else _FULL).rounds,
        options.seconds or (_QUICK if options.quick else _FULL).seconds,
        (_QUICK if options.quick else _FULL).part,
    )
    rows = [row for row in ROWS if not options.rows or row.name in options.rows]
    systems = []
    for system in SYSTEMS:
        if options.peers and system.group not in (*options.peers, "penstock"):
            continue
        why = system.missing()
        if why is None:
            systems.append(system)
        else:
            console.print(f"[yellow]{system.title} is left out: {why}[/yellow]")
    facts, start = machine(), moment()
    console.print(f"{facts['cores']} cores, Python {facts['python']}, {facts['system']}, {start['date']}")
    figures: list[Figure] = []
    options.dir.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=options.dir) as directory, console.status("starting") as status:
            for number, row, figure in rounds.run(systems, rows, effort, Path(directory).resolve()):
                figures.append(figure)
                name = "bare" if row is None else row.title
                status.update(f"round {number + 1} of {effort.rounds}: {name}, {figure.system} {figure.way}")
    finally:
        with contextlib.suppress(OSError):
            options.dir.rmdir()
        console.print(table_of_figures(figures, rows, systems))
        console.print(table_of({"ratios": judge(figures)}, judged=not options.quick))
        console.print(f"load average at the start {start['load']}, at the end {moment()['load']}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="Measure Penstock beside its peers."
    )
    parser.add_argument(
        "--peers", type=_words, help="which, with a comma between them (default: all that are installed)"
    )
    parser.add_argument("--rows", type=_words, help=f"which: {','.join(BY_NAME)}")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--dir", type=Path, default=_HERE / ".data")
    options = parser.parse_args()
    if options.rows and (unknown := set(options.rows) - set(BY_NAME)):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return options


def _words(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
