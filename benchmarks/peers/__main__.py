"""The command line: `python -m benchmarks.peers [--quick] [--peers …] [--rows …]`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from benchmarks.machine import machine, moment
from benchmarks.peers import rounds
from benchmarks.peers.catalogue import BY_NAME, ROWS, SYSTEMS
from benchmarks.peers.page import page_of
from benchmarks.peers.rounds import Effort, Figure
from benchmarks.peers.summary import cells, table_of_cells
from benchmarks.peers.syncs import syncs_of
from benchmarks.peers.systems.kafka import JARS
from benchmarks.peers.systems.system import OURS, System
from benchmarks.peers.targets import judge
from benchmarks.table import table_of

_HERE = Path(__file__).resolve().parent.parent
_FULL, _QUICK = Effort(3, 1.0, 1.0), Effort(1, 0.15, 0.05)
_GROUPS = tuple(dict.fromkeys(system.group for system in SYSTEMS))
_SYNCED_ROW = "receive-1"  # whoever is measured in it is watched by strace as well
_HELP = """\
Measure Penstock beside its peers: each one real, on loopback, with its data on the same disk, as durable as Penstock
and with its own default. One raw generator drives all of them, and so does the best Python client of each. Rounds are
interleaved, counts are read back, and ratios are shown beside their targets.

`make bench-peers` installs what is missing and runs everything (about half an hour). Results go to
benchmarks/results/peers.json, the page to docs/benchmarks/peers.md. A run of some peers or rows, or a quick one, prints
its figures and writes no page.
"""
_EXAMPLES = """\
examples:
  python -m benchmarks.peers --quick --dir /dev/shm/peers          does everything work? nothing is judged
  python -m benchmarks.peers --peers redis --rows alone,window-256 two rows beside Redis, in a minute
  python -m benchmarks.peers --peers kafka --kafka kafka_2.13-4.3  with an unpacked Kafka
"""


def main() -> None:
    options = _options()
    console = Console(width=None if Console().is_terminal else 180)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all servers are stopped
    if options.kafka is not None:
        os.environ[JARS] = str(options.kafka.resolve())
    usual = _QUICK if options.quick else _FULL
    effort = Effort(options.rounds or usual.rounds, options.seconds or usual.seconds, usual.part)
    systems, left_out = _choose(options.peers)
    for why in left_out:
        console.print(f"[yellow]{why}[/yellow]")
    facts, start = machine(), moment()
    console.print(f"{facts['cores']} cores, Python {facts['python']}, {facts['system']}, {start['date']}")
    figures: list[Figure] = []
    versions: dict[str, str] = {}
    syncs: dict[str, dict[str, float]] = {}
    options.dir.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=options.dir) as directory:
            place = Path(directory).resolve()
            _measure(console, systems, options.rows, effort, place, figures, versions, left_out)
            if not options.rows:
                _look_at_syncs(console, systems, place, syncs)
    finally:
        with contextlib.suppress(OSError):
            options.dir.rmdir()
        _show(console, figures, syncs, judged=not options.quick)
        console.print(f"load average at the start {_load(start)}, at the end {_load(moment())}")
    results = {
        "machine": facts,
        "start": start,
        "end": moment(),
        "rounds": effort.rounds,
        "seconds": effort.seconds,
        "systems": {
            system.name: {
                "title": system.title,
                "version": versions[system.name],
                "settings": system.settings,
                "durable": system.durable,
            }
            for system in systems
        },
        "left_out": left_out,
        "syncs": syncs,
        "figures": [figure.as_json() for figure in figures],
    }
    whole = not (options.quick or options.peers or options.rows)
    kept = _HERE / "results" / ("peers.json" if whole else "peers-some.json")
    kept.write_text(json.dumps(results, indent=1) + "\n")
    if whole:
        _write_page(results)
    else:
        console.print(f"only some of it: no page is written; the results are in {kept.name}")


def _choose(peers: Sequence[str]) -> tuple[list[System], list[str]]:
    """The systems that were asked for and can be started, and why others are left out."""
    systems, left_out = [], []
    for system in SYSTEMS:
        if peers and system.group not in (*peers, OURS):
            continue
        why = system.missing()
        if why is None:
            systems.append(system)
        else:
            left_out.append(f"{system.title} is left out: {why}")
    return systems, left_out


def _measure(
    console: Console,
    systems: Sequence[System],
    names: Sequence[str],
    effort: Effort,
    directory: Path,
    figures: list[Figure],
    versions: dict[str, str],
    left_out: list[str],
) -> None:
    known = len(left_out)
    rows = [row for row in ROWS if not names or row.name in names]
    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting the servers", total=effort.rounds * len(rows))
        for number, row, figure in rounds.run(systems, rows, effort, directory, versions, left_out):
            figures.append(figure)
            if row is not None:
                what = f"round {number + 1} of {effort.rounds}: {row.title}, {figure.system} {figure.way}"
                progress.update(task, description=what, completed=number * len(rows) + rows.index(row))
    for why in left_out[known:]:
        console.print(f"[yellow]{why}[/yellow]")


def _look_at_syncs(
    console: Console, systems: Sequence[System], directory: Path, syncs: dict[str, dict[str, float]]
) -> None:
    if shutil.which("strace") is None:
        console.print("[yellow]syncs are not counted: strace is not installed[/yellow]")
        return
    for system in systems:
        if system.durable and system.takes(_SYNCED_ROW):
            with console.status(f"syncs of {system.title}"):
                syncs[system.name] = syncs_of(system, directory / f"syncs-{system.name}")


def _show(console: Console, figures: Sequence[Figure], syncs: dict[str, dict[str, float]], *, judged: bool) -> None:
    console.print(table_of_cells(cells(figures), ROWS))
    console.print(table_of({"ratios": judge(figures)}, judged=judged))
    for name, found in syncs.items():
        console.print(f"{name}: {found['publish']:.2f} syncs a publish, {found['receive']:.2f} a receive + ack")


def _write_page(results: dict[str, Any]) -> None:
    from benchmarks.peers.pictures import draw

    docs = _HERE.parent / "docs" / "benchmarks"
    (docs / "peers.md").write_text(page_of(results))
    draw(docs / "peers", results)


def _load(when: dict[str, Any]) -> str:
    return " ".join(f"{average:.2f}" for average in when["load"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description=_HELP,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--peers", type=_words, default=[], metavar="A,B", help=f"which: {', '.join(_GROUPS)}")
    parser.add_argument("--rows", type=_words, default=[], metavar="A,B", help=f"which: {', '.join(BY_NAME)}")
    parser.add_argument("--quick", action="store_true", help="small numbers, one round, nothing judged")
    parser.add_argument("--rounds", type=int, help=f"how many (default: {_FULL.rounds})")
    parser.add_argument("--seconds", type=float, help=f"of each figure (default: {_FULL.seconds:g})")
    parser.add_argument("--dir", type=Path, default=_HERE / ".data", help="where the data goes; removed afterwards")
    parser.add_argument("--kafka", type=Path, help=f"the directory of an unpacked Kafka, or of its jars (or {JARS})")
    options = parser.parse_args()
    for given, known in ((options.peers, _GROUPS), (options.rows, BY_NAME)):
        if unknown := set(given) - set(known):
            parser.error(f"no such name: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return options


def _words(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
