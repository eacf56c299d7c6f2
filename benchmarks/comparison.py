"""What became slower: the ratios of a run to its own baselines, beside the recorded ones.

Rates differ from machine to machine and from hour to hour, ratios to a baseline of the same run much less. A ratio is
*slower* if it is worse by more than a tolerance than the worst of the recorded rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TOLERANCE = 0.03
_MORE_IS_BETTER = ("messages/s", "bytes/s")

Figures = Mapping[str, Mapping[str, Any]]
"""Figures by name, as `results` keeps them."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A row of both runs."""

    figure: str
    what: str
    more_is_better: bool
    recorded: float
    """The recorded ratio."""
    worst: float
    """The worst ratio of the recorded rounds."""
    now: float

    @property
    def change(self) -> float:
        """By how much the ratio is better than the recorded one; below 0: it is worse."""
        return self.now / self.recorded - 1 if self.more_is_better else self.recorded / self.now - 1

    @property
    def slower(self) -> bool:
        """Whether it is worse than the recorded rounds differ among each other, and more than a little."""
        if self.more_is_better:
            return self.now < self.worst * (1 - TOLERANCE)
        return self.now > self.worst / (1 - TOLERANCE)


def compare_figures(recorded: Figures, measured: Figures) -> list[Comparison]:
    """All rows that have a baseline in both runs."""
    return [
        comparison
        for name, figure in measured.items()
        if name in recorded
        for comparison in _compare(name, recorded[name]["rows"], figure["rows"])
    ]


def slower_twice(first: list[Comparison], second: list[Comparison]) -> list[Comparison]:
    """Those of the first run that were slower in a second one too."""
    again = {(row.figure, row.what) for row in second if row.slower}
    return [row for row in first if row.slower and (row.figure, row.what) in again]


def _compare(name: str, recorded: list[dict[str, Any]], measured: list[dict[str, Any]]) -> Iterator[Comparison]:
    known = {row["what"]: row for row in recorded}
    for row in measured:
        before = known.get(row["what"])
        if before is not None and before["ratio"] and row["ratio"]:
            better = _more_is_better(row)
            worst = (min if better else max)([before["ratio"], *_ratios(before)])
            yield Comparison(name, row["what"], better, before["ratio"], worst, row["ratio"])


def _more_is_better(row: dict[str, Any]) -> bool:
    for of, sign, _ in row["targets"]:
        if of == "ratio":
            return bool(sign == ">=")
    return row["unit"] in _MORE_IS_BETTER


def _ratios(row: dict[str, Any]) -> list[float]:
    """The ratio of each round, where there were several."""
    details = row["details"]
    rounds = zip(details.get("measured_rounds", ()), details.get("baseline_rounds", ()), strict=False)
    return [measured / baseline for measured, baseline in rounds if baseline]
