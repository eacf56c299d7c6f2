"""What the examples show while they run: a small table on a terminal, lines on a pipe."""

from __future__ import annotations

import time
from typing import Protocol, Self

from rich.box import SIMPLE
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

_LINE_EVERY_S = 2.0


class Shown(Protocol):
    """Figures of one moment."""

    def line(self) -> str:
        """All of them, in short."""

    def drawn(self, clock: str) -> RenderableType:
        """All of them as tables; `clock` is how long it runs."""


class Screen:
    """Shows figures, where and as often as it makes sense; `with` has it clean up behind itself."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._started_s = time.monotonic()
        self._next_s = 0.0

    def say(self, text: str = "") -> None:
        """A line that stays."""
        self._console.print(text, soft_wrap=True)

    def show(self, figures: Shown) -> None:
        """The figures as they are now; on a pipe not more often than every other second."""
        now_s = time.monotonic()
        if self._live is not None:
            self._live.update(figures.drawn(_clock(now_s - self._started_s)), refresh=True)
        elif now_s >= self._next_s:
            self._next_s = now_s + _LINE_EVERY_S
            print(f"{_clock(now_s - self._started_s)} {figures.line()}", flush=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


def table(*columns: str, left: int = 2) -> Table:
    """An empty table in the style of all; so many columns are text, the others numbers."""
    drawn = Table(box=SIMPLE, pad_edge=True, show_edge=False)
    for number, column in enumerate(columns):
        drawn.add_column(column, justify="left" if number < left else "right", no_wrap=True)
    return drawn


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"
