"""Asking before something goes for good."""

from __future__ import annotations

import typer

from penstock.cli.errors import CommandError
from penstock.cli.terminal import is_terminal
from penstock.model.visible import visible


def confirm(question: str, yes: bool) -> None:
    """Go on only if somebody says yes, here or by `--yes`."""
    if yes:
        return
    if not is_terminal("stdin"):
        raise CommandError(f"nobody is there to ask: {question}", "add --yes to do it without being asked")
    if not typer.confirm(visible(question), err=True):
        raise typer.Abort
