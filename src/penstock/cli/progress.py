"""How far a long command has come, on the terminal and only there."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE_S = 0.7


class Counter:
    """Counts messages, and shows it on standard error once it takes long."""

    def __init__(self, doing: str, total: int | None = None) -> None:
        from penstock.cli.output import is_terminal

        self._doing = doing
        self._total = total
        self._wanted = is_terminal("stderr")
        self._started_s = time.monotonic()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self.count = 0

    def add(self, more: int = 1) -> None:
        """So many more."""
        self.count += more
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self.count)
        elif self._wanted and time.monotonic() - self._started_s > _PATIENCE_S:
            self._begin()

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = [TextColumn("{task.description}"), TextColumn("{task.completed:,.0f}")]
        if self._total is not None:
            columns = [*columns, TextColumn("of {task.total:,.0f}"), BarColumn(), TimeRemainingColumn()]  # type: ignore[list-item]
        columns.append(TextColumn("{task.speed:,.0f}/s" if self.count else ""))
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(self._doing, total=self._total, completed=self.count)
        self._progress.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()
