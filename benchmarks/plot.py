"""The picture of the figures, drawn with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.table import show

_GOOD, _BAD, _PLAIN, _BASE = "#2a9d8f", "#d1495b", "#457b9d", "#c9ccd1"


def draw(path: Path, results: dict[str, Any]) -> None:
    """Rates beside their baselines, distances from the targets, and the journal while settling."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = [row for figure in results["figures"].values() for row in figure["rows"]]
    figure, (rates, targets, backlog) = plt.subplots(
        3, 1, figsize=(11, 15), height_ratios=(5, 5, 2), layout="constrained"
    )
    _rates(rates, [row for row in rows if row["unit"] == "messages/s"])
    _targets(targets, [row for row in rows if row["targets"]])
    _backlog(backlog, next((row["details"]["backlog"] for row in rows if "backlog" in row["details"]), []))
    facts = results["machine"]
    figure.suptitle(f"{facts['cores']} cores, Python {facts['python']}, {facts['system']}")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _rates(axes: Any, rows: list[dict[str, Any]]) -> None:
    if not rows:
        axes.set_axis_off()
        return
    places = range(len(rows))
    axes.barh([place - 0.2 for place in places], [row["measured"] for row in rows], 0.4, color=_PLAIN, label="measured")
    axes.barh(
        [place + 0.2 for place in places], [row["baseline"] or 0 for row in rows], 0.4, color=_BASE, label="baseline"
    )
    for place, row in enumerate(rows):
        axes.text(row["measured"], place - 0.2, " " + show(row["measured"], row["unit"]), va="center", fontsize=8)
    _label(axes, rows, "messages/s (log scale)")
    axes.legend()


def _targets(axes: Any, rows: list[dict[str, Any]]) -> None:
    """1 is the target; further right is better, whichever way the target points."""
    margins = [_margin(row) for row in rows]
    colours = [{None: _PLAIN, True: _GOOD, False: _BAD}[row["holds"]] for row in rows]
    axes.barh(range(len(rows)), [margin - 1 for margin in margins], left=1, color=colours)
    for place, margin in enumerate(margins):
        axes.text(margin, place, f" {margin:.2f}", va="center", fontsize=8)
    axes.axvline(1, color="black", linewidth=1)
    _label(axes, rows, "times better than the target (log scale)")


def _margin(row: dict[str, Any]) -> float:
    margins = [
        row[of] / bound if sign == ">=" else bound / max(row[of], bound / 1000)
        for of, sign, bound in row["targets"]
        if row[of] is not None
    ]
    return float(min(margins, default=1.0))


def _label(axes: Any, rows: list[dict[str, Any]], title: str) -> None:
    axes.set_yticks(range(len(rows)), [row["what"] for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel(title)


def _backlog(axes: Any, samples: list[tuple[float, int]]) -> None:
    axes.plot([time for time, _ in samples], [size / (1 << 20) for _, size in samples], color=_PLAIN)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds of publishing 500,000 messages/s")
    axes.set_ylabel("MiB of journal")
