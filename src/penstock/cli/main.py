"""The command `penstock`: gathers the commands, each from the file of its noun.

Only what parses the command line is imported here; a command imports the rest when it runs, so that help is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

import penstock
from penstock.cli.check import check

app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and leave.")
    ] = False,
) -> None:
    """Penstock, a durable message queue: look after its data directories.

    For example, to see whether every byte below `./data` is as it was written:

        penstock check ./data

    `penstock COMMAND --help` teaches each command.
    """


app.command()(check)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
