"""The page of the growth figures, `docs/benchmarks/growth.md`: a plot, a table, and why a line is not flat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.growth.lines import LINES
from benchmarks.table import show

Results = dict[str, Any]
_HEAD = """# Benchmarks: growth

Measured by `python -m benchmarks.growth` on {cores} shared virtual cores, inside one process, messages of 100 bytes,
every publish synced before it is acknowledged, settling on. {date}; the load average was {load:.2f} at the start.
Each point is the median of its rounds, which are in `benchmarks/results/growth.json`; each round is a new process on a
new directory. *Memory* is what the process had more of after the work than before, divided by the messages published.

![Time and memory of a message, by the number of messages, topics, groups, producers and delayed messages](growth.svg)

*Time* is by the clock; *processor* is that of all threads, some of which settle meanwhile. A line is *flat* if its
dearest point from the second on takes at most {flat:g} times as much processor time as its cheapest.
"""
_FLAT = 1.5
_WHY = {
    ("messages", "publish"): (
        "the first 64 MiB of journal are full after about 500,000 messages; from then on, what was published before is "
        "settled to Parquet in the same process, which costs about 0.5 µs a message, however many there are. Up to 2 "
        "GiB, about 16 million messages, may wait for that, so that only larger numbers pay for all of it meanwhile"
    ),
    ("messages", "receive + ack"): (
        "up to some hundred thousand messages are still in memory as they were written; more are read from Parquet and "
        "decoded again, and what is left of settling goes on beside it"
    ),
    ("topics", "publish, in turn"): (
        "few topics cost more than many: each of up to ten has a mebibyte in the journal and is settled; others wait"
    ),
    ("producers", "publish"): (
        "most of the difference is Python's garbage collector, which looks at three objects of each producer in every "
        "full collection; with the collector switched off, 100,000 took a third more than 1,000"
    ),
    ("delays", "publish"): "the last point is the only one that fills a journal file, which is settled",
}
"""Why a line is not flat, by the line and by what was done."""
_UNEXPLAINED = "nobody has said why"
_MEMORY = {
    "messages": (
        "bounded: a cache of what consumers are about to receive (64 MiB), and what settling has in hand; so it falls "
        "with their number"
    ),
    "topics": "what settling has in hand, and 2 to 4 kB for each used topic, some of it encoded for the checkpoint",
    "groups": "the cache, which all groups share, and about 90 kB for each group in use",
    "producers": "about 800 B for each producer: its name, its newest sequences, and these encoded for the checkpoint",
    "delays": "about 20 B for each, and what settling has in hand once a journal file is full",
}
"""What takes the memory, by the line."""


def table_of(results: Results) -> Table:
    """All points, to be printed."""
    table = Table()
    for column in ("line", "size", "what", "time of each", "processor of each", "memory of each", "memory in all"):
        table.add_column(column, justify="left" if column in ("line", "what") else "right")
    for name, point, what in _entries(results):
        table.add_row(name, f"{point['size']:,}", what, *_figures(point, what))
    return table


def write(directory: Path, results: Results) -> None:
    """Write the page."""
    first = next(iter(results["lines"].values()))
    date, load = first["start"]["date"][:10], first["start"]["load"][0]
    text = _HEAD.format(cores=results["machine"]["cores"], date=date, load=load, flat=_FLAT)
    for name, line in results["lines"].items():
        whats = list(line["points"][0]["times"])
        text += f"\n## {LINES[name].of.capitalize()}\n\n"
        text += "| | " + "".join(f"{what}: time | processor | " for what in whats) + "memory | memory in all |\n"
        text += "| ---: |" + " ---: |" * (2 * len(whats) + 2) + "\n"
        for point in line["points"]:
            times = [figure for what in whats for figure in _figures(point, what)[:2]]
            text += f"| {point['size']:,} | {' | '.join([*times, *_figures(point, whats[0])[2:]])} |\n"
        text += "\n" + "".join(f"- *{what}*: {_verdict(name, line, what)}\n" for what in whats)
        if name in _MEMORY:
            text += f"- *memory*: {_MEMORY[name]}.\n"
    (directory / "growth.md").write_text(text)


def growth_of(line: dict[str, Any], what: str) -> float:
    """How many times as much the dearest point takes as the cheapest; the first point is mostly start-up."""
    times = [point["processor"][what] for point in line["points"]]
    counted = times[1:] or times
    return float(max(counted) / min(counted))


def _verdict(name: str, line: dict[str, Any], what: str) -> str:
    growth = growth_of(line, what)
    why = _WHY.get((name, what))
    if growth <= _FLAT:
        return "flat" + (f"; {why}." if why is not None else ".")
    return f"not flat ({growth:.1f} ×): {why or _UNEXPLAINED}."


def _entries(results: Results) -> Iterator[tuple[str, dict[str, Any], str]]:
    for name, line in results["lines"].items():
        for point in line["points"]:
            for what in point["times"]:
                yield name, point, what


def _figures(point: dict[str, Any], what: str) -> tuple[str, str, str, str]:
    times = show(point["times"][what], "s"), show(point["processor"][what], "s")
    memory = point["memory_bytes"]
    return *times, f"{memory / point['messages']:,.1f} B", f"{memory / (1 << 20):,.1f} MiB"


def draw(directory: Path, results: Results) -> None:
    """Draw all lines on logarithmic axes: the times above, the memory below."""
    try:
        import matplotlib as mpl
    except ImportError:
        return
    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "penstock", "svg.fonttype": "none"})  # the same figures make the same file
    from matplotlib import pyplot as plt

    lines = results["lines"]
    figure, axes = plt.subplots(2, len(lines), figsize=(4 * len(lines), 7), layout="constrained", squeeze=False)
    for column, (name, line) in enumerate(lines.items()):
        sizes = [point["size"] for point in line["points"]]
        above, below = axes[0][column], axes[1][column]
        for what in line["points"][0]["times"]:
            times = [point["times"][what] * 1e6 for point in line["points"]]
            (drawn,) = above.plot(sizes, times, marker="o", label=what)
            processor = [point["processor"][what] * 1e6 for point in line["points"]]
            above.plot(sizes, processor, linestyle="--", color=drawn.get_color())
        memory = [max(0.1, point["memory_bytes"] / point["messages"]) for point in line["points"]]
        below.plot(sizes, memory, marker="o", color="#457b9d")
        above.set_ylim(0.05, 50)
        below.set_ylim(0.1, 100_000)
        above.legend(fontsize=8)
        below.set_xlabel(LINES[name].of)
        for axis in (above, below):
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.minorticks_off()
            axis.grid(visible=True, which="major", alpha=0.3)
    axes[0][0].set_ylabel("µs for each message (dashed: processor)")
    axes[1][0].set_ylabel("bytes of memory for each message")
    figure.savefig(directory / "growth.png", dpi=110)
    figure.savefig(directory / "growth.svg", metadata={"Date": None})
    plt.close(figure)
