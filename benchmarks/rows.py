"""A line of the table: what was measured, beside what, and whether it is good enough."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

_HOLDS = {">=": operator.ge, "<=": operator.le, "<": operator.lt}


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the measured figure, or on its ratio to the baseline."""

    of: Literal["measured", "ratio"]
    sign: Literal[">=", "<=", "<"]
    bound: float


@dataclass(frozen=True, slots=True)
class Row:
    """One figure; without targets it is for information."""

    what: str
    unit: str
    measured: float
    baseline: float | None = None
    baseline_is: str = ""
    targets: tuple[Target, ...] = ()
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Measured by baseline."""
        return self.measured / self.baseline if self.baseline else None

    @property
    def holds(self) -> bool | None:
        """Whether all targets are met; None where there are none."""
        return all(map(self._meets, self.targets)) if self.targets else None

    def _meets(self, target: Target) -> bool:
        figure = self.measured if target.of == "measured" else self.ratio
        if figure is None:
            raise ValueError(f"{self.what}: a target for the ratio, but no baseline")
        return bool(_HOLDS[target.sign](figure, target.bound))

    def as_json(self, *, judged: bool) -> dict[str, Any]:
        """The row as it is kept."""
        return {
            "what": self.what,
            "unit": self.unit,
            "measured": self.measured,
            "baseline": self.baseline,
            "baseline_is": self.baseline_is,
            "ratio": self.ratio,
            "targets": [[target.of, target.sign, target.bound] for target in self.targets],
            "holds": self.holds if judged else None,
            "note": self.note,
            "details": self.details,
        }


def compare(
    what: str,
    unit: str,
    pairs: Sequence[tuple[float, float]],
    baseline_is: str,
    *targets: Target,
    note: str = "",
) -> Row:
    """The row of some rounds of (measured, baseline): the median of each."""
    measured, baseline = zip(*pairs, strict=True)
    details = {"measured_rounds": measured, "baseline_rounds": baseline}
    return Row(what, unit, median(measured), median(baseline), baseline_is, targets, note, details)


def alone(what: str, unit: str, rounds: Sequence[float], *targets: Target, note: str = "") -> Row:
    """The row of some rounds without a baseline: their median."""
    return Row(what, unit, median(rounds), targets=targets, note=note, details={"measured_rounds": tuple(rounds)})
