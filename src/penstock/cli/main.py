"""The command `penstock`: the table of all commands. A command's module is imported when the command is called."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from penstock.cli.lazy import CommandGroup, Entry
from penstock.cli.terminal import echo, show_traceback
from penstock.version import __version__

_MESSAGES, _BROKER, _RUN = "Messages", "Look after a broker", "Run"


class Commands(CommandGroup):
    """Everything that `penstock` can do."""

    entries = (
        Entry(_MESSAGES, "publish", "publish:publish", "Publish messages: a value, a file, or standard input by line."),
        Entry(
            _MESSAGES, "produce", "publish:produce", "Publish one message to a partition, or standard input by line."
        ),
        Entry(_MESSAGES, "consume", "consume:consume", "Print the messages of a topic, and ack them for a group."),
        Entry(_MESSAGES, "replay", "replay:replay", "Give a window of the past to a new group, or write it to a file."),
        Entry(_MESSAGES, "trace", "trace:trace", "Draw what happened to a message, and when."),
        Entry(_BROKER, "status", "status:status", "Show the broker, its topics and its groups on one screen."),
        Entry(_BROKER, "topic", "topic:app", "Make, list, show, change and delete topics."),
        Entry(_BROKER, "group", "group:app", "List, show, move and delete groups of consumers."),
        Entry(_BROKER, "delayed", "delayed:app", "List, cancel and reschedule messages that are not due yet."),
        Entry(_BROKER, "schedule", "schedule:app", "Publish messages again and again, by the clock."),
        Entry(_BROKER, "dlq", "dlq:app", "List, show, redrive and purge dead letters."),
        Entry(_BROKER, "token", "token:app", "Make, list and revoke tokens: who may use a server, and for what."),
        Entry(
            _BROKER,
            "cluster",
            "cluster:app",
            "Show the processes of a server and their shards, and move shards between them.",
        ),
        Entry(
            _BROKER, "check", "check:check", "Read every byte that a data directory needs, and tell what is damaged."
        ),
        Entry(
            _BROKER,
            "copy",
            "copy:copy",
            "Copy a data directory or a bucket: a backup, a restore, or a move from one to the other.",
        ),
        Entry(_BROKER, "reshard", "reshard:reshard", "Give a data directory another number of shards."),
        Entry(_RUN, "serve", "serve:serve", "Run a server on a data directory."),
        Entry(
            _RUN,
            "worker",
            "worker:worker",
            "Run a worker until Ctrl-C or SIGTERM: its functions are called with the messages of topics.",
        ),
        Entry(_RUN, "spark", "spark:app", "Open a Spark session in which topics are tables."),
        Entry(_RUN, "job", "job:app", "Bulk work on Spark: archive, replay, load, export, audit and more."),
        Entry(
            _RUN,
            "pipeline",
            "pipeline:app",
            "Run, check and watch pipelines on Spark: from topics, to topics and tables.",
        ),
        Entry(_RUN, "bench", "bench:app", "Measure how fast this machine publishes and consumes."),
        Entry(_RUN, "config", "config:app", "Look at the configuration of a server, check a file, or start a new one."),
    )


app = typer.Typer(
    name="penstock",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and leave.")
    ] = False,
) -> None:
    """Penstock, a durable message queue.

    Commands work with a server (`--server`, `PENSTOCK_SERVER`), or with `--dir` on a data directory. For example:

        penstock publish orders "two coffees" --dir ./data
        penstock consume orders --group kitchen --dir ./data
        penstock status --dir ./data
        penstock check ./data

    `penstock COMMAND --help` teaches each command.
    """


def main() -> None:
    """Run the command line."""
    for descriptor in range(3):  # where one was closed, nothing else may take its number
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    try:
        app()
    except Exception:  # noqa: BLE001 - a mistake of ours, with words of others in it
        show_traceback(*sys.exc_info())
        sys.exit(1)


if __name__ == "__main__":
    main()
