"""The picture of the page, as PNG and as SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import ROWS
from benchmarks.peers.rounds import Figure
from benchmarks.peers.summary import cells
from benchmarks.peers.systems.system import RAW
from benchmarks.peers.targets import judge

_COLOURS = ("#1d3557", "#8ecae6", "#d1495b", "#edae49", "#2a9d8f", "#6d597a", "#e76f51")
_GOOD, _BAD = "#2a9d8f", "#d1495b"


def draw(path: Path, results: dict[str, Any]) -> None:
    """Rates of the durable systems, row by row, and the distance of each ratio from its target."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "penstock"  # the same results make the same file
    from matplotlib import pyplot as plt

    figures = [Figure(**figure) for figure in results["figures"]]
    picture, (rates, targets) = plt.subplots(2, 1, figsize=(11, 16), height_ratios=(3, 2), layout="constrained")
    _rates(rates, figures, results["systems"])
    _targets(targets, figures)
    picture.savefig(path.with_suffix(".png"), dpi=110, metadata={"Software": None})
    picture.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(picture)


def _rates(axes: Any, figures: list[Figure], systems: dict[str, Any]) -> None:
    rows = [row for row in ROWS if not row.by_client and row.figure != "latency"]
    found = {(cell.row, cell.system): cell for cell in cells(figures) if cell.way == RAW}
    driven = {name for _, name in found}
    names = [name for name, system in systems.items() if system["durable"] and name in driven]
    height = 0.8 / max(1, len(names))
    for place, name in enumerate(names):
        shown = [(number, found[row.name, name]) for number, row in enumerate(rows) if (row.name, name) in found]
        axes.barh(
            [number - 0.4 + (place + 0.5) * height for number, _ in shown],
            [cell.rate for _, cell in shown],
            height,
            color=_COLOURS[place % len(_COLOURS)],
            label=systems[name]["title"],
            xerr=[[cell.rate - cell.least for _, cell in shown], [cell.most - cell.rate for _, cell in shown]],
            error_kw={"linewidth": 0.7},
        )
    axes.set_yticks(range(len(rows)), [row.title for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("messages/s (log scale), on disk before they are acknowledged; the lines are least and most")
    axes.legend(fontsize=8)


def _targets(axes: Any, figures: list[Figure]) -> None:
    """1 is the target; further right is better, whichever way the target points."""
    rows = judge(figures)
    margins = []
    for row in rows:
        (target,) = row.targets
        value = (row.measured if target.of == "measured" else row.ratio) or 0.0
        margins.append(value / target.bound if target.sign == ">=" else target.bound / max(value, 1e-9))
    colours = [_GOOD if row.holds else _BAD for row in rows]
    axes.barh(range(len(rows)), [margin - 1 for margin in margins], left=1, color=colours)
    for place, margin in enumerate(margins):
        axes.text(margin, place, f" {margin:.2f}", va="center", fontsize=8)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(rows)), [row.what for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("times better than the target (log scale)")
