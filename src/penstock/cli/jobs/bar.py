"""The progress of a job: a bar on a terminal; lines now and then elsewhere, on standard error."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.cli.terminal import echo, is_terminal, new_console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress

_EVERY_S = 0.2
_LINE_EVERY_S = 10.0


class Bar:
    """Shows the step of a job with its rows, or with the tasks of Spark where rows are not counted."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._terminal = is_terminal("stderr")
        self._doing, self._total = "starting", None  # type: tuple[str, int | None]
        self._rows = 0
        self._began_s = self._told_s = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._show, name="penstock-bar", daemon=True)

    def step(self, doing: str, total: int | None = None) -> None:
        """A step begins."""
        self._doing, self._total, self._rows, self._began_s = doing, total, 0, time.monotonic()

    def advance(self, rows: int) -> None:
        """So many more rows."""
        self._rows += rows

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ending.set()
        self._thread.join()

    def _show(self) -> None:
        if not self._terminal:
            while not self._ending.wait(_EVERY_S):
                if time.monotonic() - self._told_s >= _LINE_EVERY_S:
                    self._told_s = time.monotonic()
                    echo(self._line(), err=True)
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[far]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=new_console(stderr=True), transient=True) as progress:
            task = progress.add_task(self._doing, total=None, far="")
            while not self._ending.wait(_EVERY_S):
                self._draw(progress, task)

    def _draw(self, progress: Progress, task: int) -> None:
        done, total, what = self._far()
        far = f"{done:,} of {total:,} {what}" if total else ""
        if what == "rows" and (seconds := time.monotonic() - self._began_s) > 1:
            far += f", {self._rows / seconds:,.0f}/s"
        progress.update(task, description=self._doing, completed=done, total=total, far=far)  # type: ignore[arg-type]

    def _line(self) -> str:
        done, total, what = self._far()
        return f"{self._doing}: {done:,} of {total:,} {what}" if total else self._doing

    def _far(self) -> tuple[int, int | None, str]:
        """How far the step is, of how much, in what."""
        if self._total is not None:
            return self._rows, self._total, "rows"
        tracker = self._spark.sparkContext.statusTracker()
        done = total = 0
        for stage in tracker.getActiveStageIds():
            if (info := tracker.getStageInfo(stage)) is not None:
                done, total = done + info.numCompletedTasks, total + info.numTasks
        return done, total or None, "tasks"
