"""Everything that commands print goes through here: as it is into pipes and files, and made visible on a terminal.

Values, names and errors come from other people. A terminal that got them raw would obey what is in them: set its title
or the clipboard, overwrite lines, turn text around.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import typer

from penstock.model.visible import LAYOUT, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

ERROR = typer.style("error:", fg="red", bold=True)
NOTE = typer.style("note:", fg="yellow")


def is_terminal(stream: str) -> bool:
    """Whether `stdin`, `stdout` or `stderr` is a person's terminal."""
    found = getattr(sys, stream)  # None where it was closed
    return found is not None and bool(found.isatty())


def echo(text: str, *, err: bool = False, nl: bool = True, mark: str = "") -> None:
    """Print text, behind a mark of ours that may have a colour."""
    if is_terminal("stderr" if err else "stdout"):
        text = visible(text, LAYOUT)
    typer.echo(f"{mark} {text}" if mark else text, err=err, nl=nl)


def new_console(*, stderr: bool = False) -> Console:
    """Where people read; what goes into a pipe or a file is not cut to the width of a terminal."""
    from rich.console import Console
    from rich.segment import Segment

    class Terminal(Console):
        """Draws no text that the terminal would obey; rich's own controls are not text."""

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(visible(text, LAYOUT), **options)

        def render(self, *given: Any, **options: Any) -> Iterable[Segment]:
            for segment in super().render(*given, **options):
                yield segment if segment.control else segment._replace(text=visible(segment.text, LAYOUT))

    if is_terminal("stderr" if stderr else "stdout"):
        return Terminal(stderr=stderr, highlight=False)
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=10_000)


class LogFormatter(logging.Formatter):
    """Lines of a log on standard error."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with what it tells of an exception."""
        text = super().format(record)
        return visible(text, LAYOUT) if is_terminal("stderr") else text


def show_traceback(kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
    """What Python prints of an exception that nobody caught."""
    echo("".join(traceback.format_exception(kind, error, trace)), err=True, nl=False)
