"""How far a job is: whoever runs one may listen."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Hears of the steps of a job; called from its thread."""

    def step(self, doing: str, total: int | None = None) -> None:
        """A step begins, such as `"staging part 3"`; with how many rows it has, if that is known.

        Where there is no total, whoever shows progress can look at the tasks of Spark.
        """

    def advance(self, rows: int) -> None:
        """So many more rows of the step are done."""


class Silence:
    """Nobody listens."""

    def step(self, doing: str, total: int | None = None) -> None:
        """Not shown."""

    def advance(self, rows: int) -> None:
        """Not shown."""


SILENCE: Progress = Silence()
"""What jobs take when nobody listens."""
