"""How far a long command has come, on the terminal and only there."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.cli.terminal import is_terminal, new_console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE_S = 0.7
_EVERY_S = 0.1


class Counter:
    """Counts messages, and shows it on standard error once it takes long."""

    def __init__(self, doing: str, total: int | None = None) -> None:
        self._doing = doing
        self._total = total
        self._wanted = is_terminal("stderr")
        self._started_s = time.monotonic()
        self._next_s = self._started_s + _PATIENCE_S
        self._shown: tuple[Progress, TaskID] | None = None
        self.count = 0

    def add(self, more: int = 1) -> None:
        """So many more."""
        self.count += more
        if self._wanted and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _EVERY_S
            progress, task = self._shown or self._begin()
            speed = self.count / (time.monotonic() - self._started_s)
            progress.update(task, completed=self.count, speed=f"{speed:,.0f}/s")

    def _begin(self) -> tuple[Progress, TaskID]:
        from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

        columns: list[ProgressColumn] = [TextColumn("{task.description} {task.completed:,.0f}", markup=False)]
        if self._total is not None:
            columns += [TextColumn("of {task.total:,.0f}"), BarColumn(), TimeRemainingColumn()]
        progress = Progress(
            *columns, TextColumn("{task.fields[speed]}"), console=new_console(stderr=True), transient=True
        )
        task = progress.add_task(self._doing, total=self._total, speed="")
        progress.start()
        self._shown = (progress, task)
        return self._shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._shown is not None:
            self._shown[0].stop()
