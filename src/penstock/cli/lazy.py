"""Commands that are imported when they are called, and the group that turns every error into one line.

The help of `penstock` itself is drawn from a table, so that it needs no command's module.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from penstock.cli.errors import INTERRUPTED, CommandError, Mistake, explain, explain_mistake, tell
from penstock.cli.terminal import echo

COMMAND = "penstock.command"
"""Under this name a command notes in its context how it was called."""


class Entry(NamedTuple):
    """One command of the table."""

    panel: str
    name: str
    where: str
    """Module of this package, and name in it: of a function, or of a typer app with commands of its own."""
    help: str


def new_app(text: str | None = None, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """A typer app in the style of all."""
    return typer.Typer(
        cls=cls,
        help=text,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
    )


class LazyCommand(TyperCommand):
    """Stands for a command until it is called."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(
            entry.name, help=entry.help, rich_help_panel=entry.panel, rich_markup_mode="markdown", add_help_option=False
        )
        self._where = entry.where

    def load(self) -> Any:
        """The command itself."""
        module, _, attribute = self._where.partition(":")
        found = getattr(import_module(f"penstock.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            command: Any = get_group(found)
        else:
            app = new_app()
            app.command()(found)
            command = get_command(app)
        command.name = self.name
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context in which the command itself runs."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


class CommandGroup(TyperGroup):
    """All commands of a table whose modules are there."""

    entries: tuple[Entry, ...] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for entry in self.entries:
            if find_spec(f"penstock.cli.{entry.where.partition(':')[0]}") is not None:
                self.add_command(LazyCommand(entry))

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what it could not do is told in one line."""
        from penstock.model.errors import PenstockError

        try:
            done = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:  # whoever read this has enough
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except (CommandError, PenstockError, OSError) as error:
            told = explain(error, ctx.meta.get(COMMAND, ctx.command_path))
            tell(told)
            raise typer.Exit(told.code) from None
        return done

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line; a mistake in it is told in one line."""
        given = (args, prog_name, complete_var, False, windows_expand_args)
        if not standalone_mode:
            return super().main(*given, **extra)
        try:
            result = super().main(*given, **extra)
        except Mistake as error:
            told = explain_mistake(error)
            if told.text:  # else it is the help, which was shown
                tell(told)
            sys.exit(told.code)
        except typer.Abort:
            echo("Aborted.", err=True)
            sys.exit(1)
        sys.exit(result if isinstance(result, int) else 0)
