"""`penstock config`: what a server would run with and why, whether a file is right, and a file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.errors import USAGE, warn
from penstock.cli.lazy import new_app
from penstock.cli.output import Format, FormatOption, new_table
from penstock.cli.output import show as show_answer
from penstock.cli.terminal import ERROR, echo
from penstock.model.visible import visible

app = new_app("Look at the configuration of a server, check a file, or start a new one.")


@app.command()
def show(
    file: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="The file, instead of what PENSTOCK_CONFIG names."),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show every option that a server would run with, and where its value comes from.

    The file goes before the defaults, the environment (`PENSTOCK_…`) before the file. With `-o yaml` the answer is
    a file itself, with the origins as comments.

    For example:

        penstock config show --config penstock.yaml

        PENSTOCK_NATIVE_PORT=9001 penstock config show -o json

    Exit codes:

    * 0: the configuration is right

    * 2: it is not, and every problem was told
    """
    import os

    from penstock.server.config import ConfigError, load_config
    from penstock.server.settings.table import SETTINGS
    from penstock.server.settings.writing import write_file, write_value

    try:
        loaded = load_config(file, os.environ, {})
    except ConfigError as error:
        for problem in error.problems:
            echo(visible(str(problem)), err=True, mark=ERROR)
        raise typer.Exit(USAGE) from None
    for notice in loaded.notices:
        warn(visible(str(notice)))
    values = {key: setting.of(loaded.config) for key, setting in SETTINGS.items()}
    if output is Format.YAML:
        text = write_file(
            value=lambda setting: values[setting.key],
            behind=lambda setting: visible(loaded.origins[setting.key]),
            above=lambda _: [],
        )
        echo(text, nl=False)
        return
    answer = [
        {"option": key, "value": dict(value) if isinstance(value, tuple) else value, "from": loaded.origins[key]}
        for key, value in values.items()
    ]
    rows = [(key, write_value(setting.name, values[key]), loaded.origins[key]) for key, setting in SETTINGS.items()]
    show_answer(answer, output, new_table("option", "value", "from", rows=rows))


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The configuration file.", show_default=False)],
) -> None:
    """Tell every problem of a configuration file, each with its line and column.

    Only the file is looked at, not the environment. Files of GoQueue are understood as well; what has no counterpart
    here is told as a note.

    For example:

        penstock config check penstock.yaml

    Exit codes:

    * 0: the file is fine

    * 2: it has problems, or cannot be read
    """
    from penstock.server.config import ConfigError, load_config

    try:
        loaded = load_config(file, {}, {})
    except ConfigError as error:
        for problem in error.problems:
            echo(visible(str(problem)))
        raise typer.Exit(USAGE) from None
    for notice in loaded.notices:
        echo(f"note: {visible(str(notice))}")
    echo("fine")


@app.command()
def example() -> None:
    """Print a configuration file with every option, its default and what it means.

    For example:

        penstock config example > penstock.yaml

        penstock config check penstock.yaml
    """
    from penstock.server.settings.writing import write_example

    echo(write_example(), nl=False)
