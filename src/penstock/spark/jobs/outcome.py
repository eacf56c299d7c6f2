"""What a job tells: how far it is, and what it did; the same for people, programs and callers of the function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Outcome:
    """What a job did, or would do: some figures, and a table. Two runs on the same input give equal ones."""

    job: str
    summary: Mapping[str, Any]
    """Figures and places by name, such as `messages` or `file`; what JSON can say."""
    columns: Sequence[str] = ()
    """Of the table; `>` before a name puts numbers to the right."""
    rows: Sequence[Sequence[Any]] = ()
    notes: Sequence[str] = field(default_factory=tuple)
    """Further remarks for people, one line each."""
    dry_run: bool = False
    """Whether this is what would be done, and nothing was."""
    whole: bool = True
    """Whether everything is as it should be; a job that finds otherwise ends with exit code 1."""

    def as_dict(self) -> dict[str, Any]:
        """What `--output json` prints."""
        names = [name.removeprefix(">") for name in self.columns]
        return {
            "job": self.job,
            "dry_run": self.dry_run,
            "whole": self.whole,
            **self.summary,
            "rows": [dict(zip(names, row, strict=True)) for row in self.rows],
            "notes": list(self.notes),
        }


class Progress(Protocol):
    """Hears of the steps of a job; called from its thread."""

    def step(self, doing: str, total: int | None = None) -> None:
        """A step begins, such as `"staging part 3"`; with how many rows it has, if that is known.

        Where there is no total, whoever shows progress can look at the tasks of Spark.
        """

    def advance(self, rows: int) -> None:
        """This many more rows of the step are done."""


class Silence:
    """Nobody listens."""

    def step(self, doing: str, total: int | None = None) -> None:
        """Not shown."""

    def advance(self, rows: int) -> None:
        """Not shown."""


SILENCE: Progress = Silence()
"""What jobs take when nobody listens."""
