"""`penstock copy`: a backup, a restore, a move to a bucket or back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import REFUSED, UNREACHABLE, USAGE, CommandError
from penstock.cli.output import counted
from penstock.cli.target import flaw_of
from penstock.cli.terminal import echo, is_terminal, new_console
from penstock.cli.values import parse_moment
from penstock.model.errors import CorruptData, DirectoryLocked, DiskFull, InvalidArgument, PenstockError
from penstock.model.units import format_size
from penstock.storage.buckets import is_bucket

if TYPE_CHECKING:
    from penstock.cluster.copying.copying import Copied


def copy(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="A data directory, or the address of a bucket.", show_default=False),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A new directory, or a new place in a bucket (s3://bucket/place).",
            show_default=False,
        ),
    ],
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Leave out what was committed later: 2026-01-31T12:00:00Z, '15m ago'."),
    ] = None,
) -> None:
    """Copy a data directory or a bucket: a backup, a restore, or a move from one to the other.

    Topics, messages, offsets, groups, dead letters, delayed messages, schedules, dedupe ids and traces are in the copy.
    It has as many shards as SOURCE, and opens like it.

    SOURCE is only read, and may be in use: the copy is as it was when the command began to read it, shard by shard.
    Everything in the copy is read back and checked before it is declared complete; until then no broker opens it.

    With `--until`, the copy is as it was at an earlier time. That can be no earlier than the last checkpoint, which a
    broker writes now and then, and when it is closed; the error tells when that was.

    If it is interrupted, also by Ctrl-C, run it again: it goes on with what is missing.

    For example:

        penstock copy ./data /backup/monday
        penstock copy ./data s3://bucket/orders
        penstock copy s3://bucket/orders ./data
        penstock copy ./data ./before --until '10m ago'

    Exit codes:

    * 0: TARGET is a complete copy

    * 1: it could not be done; run it again to go on

    * 2: wrong usage, or TARGET is not empty

    * 3: TARGET is in use
    """
    if not is_bucket(source) and (flaw := flaw_of(Path(source))) is not None:
        raise CommandError(flaw, "give a directory that a broker was opened with, or the address of a bucket")
    try:
        done = _run(source, target, parse_moment(until))
    except KeyboardInterrupt:
        echo(f"interrupted: {target} is not complete; run this again, and it goes on", err=True)
        raise
    except (PenstockError, OSError) as error:
        raise _told(error, source) from None
    _show(done, target)


def _run(source: str, target: str, until: float | str | None) -> Copied:
    """Do it, with a bar on the terminal."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from penstock.cluster.copying.copying import copy

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    quiet = not is_terminal("stderr")
    with Progress(*columns, console=new_console(stderr=True), transient=True, disable=quiet) as progress:
        task = progress.add_task("reading")

        def tell(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        return copy(source, target, tell, until=until)


def _told(error: Exception, source: str) -> CommandError:
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    if isinstance(error, DirectoryLocked):
        return CommandError(text.partition(": a data directory")[0], "another copy may be running", UNREACHABLE)
    if isinstance(error, InvalidArgument):
        return CommandError(text, "`penstock copy --help`", USAGE)
    if isinstance(error, CorruptData):
        return CommandError(text, f"`penstock check {source}` tells more", REFUSED)
    if isinstance(error, DiskFull):
        return CommandError(text, "make room, and run it again: it goes on", REFUSED)
    if isinstance(error, PermissionError):
        return CommandError(text, "look at the permissions, and at who asks", REFUSED)
    return CommandError(text, "run it again: it goes on", REFUSED)


def _show(done: Copied, target: str) -> None:
    counts = (
        counted(len(done.topics), "topic"),
        counted(done.partitions, "partition"),
        counted(done.messages, "message"),
        counted(len(done.groups), "group"),
    )
    echo(f"copied and read back: {', '.join(counts)}, {format_size(done.size_bytes)}")
    if done.copied_bytes < done.size_bytes:
        echo(f"{format_size(done.size_bytes - done.copied_bytes)} of it were there from an earlier run")
    for archive in sorted(done.elsewhere):
        echo(f"the archive {archive} is not in the copy, which refers to it: two brokers must not write to it")
    echo(f"{target} has {'one shard' if done.shards == 1 else f'{done.shards} shards'}, and is complete")
