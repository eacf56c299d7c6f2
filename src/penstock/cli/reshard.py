"""`penstock reshard`: give a data directory another number of shards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import REFUSED, UNREACHABLE, USAGE, CommandError
from penstock.cli.target import flaw_of
from penstock.cli.terminal import echo, is_terminal, new_console
from penstock.model.errors import CorruptData, DirectoryLocked, DiskFull, InvalidArgument, PenstockError
from penstock.model.placement import SHARDS_MAX
from penstock.storage.buckets import is_bucket

if TYPE_CHECKING:
    from penstock.cluster.resharding.comparison import Compared
    from penstock.cluster.resharding.reshard import Resharded


def reshard(
    data: Annotated[str, typer.Argument(metavar="DIR", help="The data directory.", show_default=False)],
    shards: Annotated[
        int, typer.Option("--shards", min=1, max=SHARDS_MAX, help="How many shards it gets.", show_default=False)
    ],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="NEW", help="Make a copy here instead, and leave DIR as it is."),
    ] = None,
) -> None:
    """Give a data directory another number of shards.

    Messages, offsets, groups, dead letters, delayed messages, schedules, dedupe ids and traces stay as they are. No
    broker may have the directory open. Parquet files are linked, not copied, so it needs little time and space.

    The copy is read and compared with the original before it takes its place. The original stays in
    `DIR/before-reshard`, which you can remove when you are content.

    If it is interrupted, run it again: it finishes what was begun. Ctrl-C, and any error, leave DIR as it was.

    For example:

        penstock reshard ./data --shards 8
        penstock reshard ./data --shards 1
        penstock reshard ./data --shards 8 --to ./data-8

    Exit codes:

    * 0: it has so many shards

    * 1: it could not be done; DIR is as it was

    * 2: wrong usage, or DIR cannot be resharded as it is

    * 3: a broker has the directory open
    """
    if is_bucket(data) or (to is not None and is_bucket(to)):
        raise CommandError(
            "a bucket keeps the number of shards that it was made with",
            "reshard a directory, and `penstock copy` it to a new place in the bucket",
        )
    directory, copy = Path(data), None if to is None else Path(to)
    flaw = flaw_of(directory)
    if flaw is not None:
        raise CommandError(flaw, "give the directory that the broker was opened with")
    try:
        done = _run(directory, shards, copy)
    except KeyboardInterrupt:
        echo(f"interrupted: {directory} is as it was", err=True)
        raise
    except (PenstockError, OSError) as error:
        raise _told(error, directory) from None
    if done.shards != shards:
        raise CommandError(
            f"an earlier run, which was interrupted, is finished now: {directory} has {_shards(done.shards)}",
            f"see that {done.aside} is no longer needed, remove it, and run this again for {_shards(shards)}",
            REFUSED,
        )
    _show(done, copy or directory)


def _run(directory: Path, shards: int, to: Path | None) -> Resharded:
    """Do it, with a bar on the terminal."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from penstock.cluster.resharding.reshard import copy_resharded, reshard

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    quiet = not is_terminal("stderr")
    with Progress(*columns, console=new_console(stderr=True), transient=True, disable=quiet) as progress:
        task = progress.add_task("reading")

        def tell(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        return reshard(directory, shards, tell) if to is None else copy_resharded(directory, shards, to, tell)


def _told(error: Exception, directory: Path) -> CommandError:
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, DirectoryLocked):
        text = text.partition(": a data directory")[0]
        return CommandError(text, "it needs the directory for itself: close that broker first", UNREACHABLE)
    if isinstance(error, InvalidArgument):
        return CommandError(text, f"then run this again; {directory} was not changed", USAGE)
    as_it_was = f"{directory} is as it was"
    if isinstance(error, CorruptData):
        return CommandError(f"{text}; {as_it_was}", f"`penstock check {directory}` tells more", REFUSED)
    if isinstance(error, DiskFull):
        return CommandError(f"{text}; {as_it_was}", "it needs as much room as the journal takes", REFUSED)
    return CommandError(f"{text}; {as_it_was}", "look at the permissions and at the disk, then run it again", REFUSED)


def _show(done: Resharded, where: Path) -> None:
    if done.compared is not None:
        echo(f"compared with the original, and the same: {_counts(done.compared)}")
    elif done.aside is None:
        echo(f"{where} has {_shards(done.shards)} already: nothing was done")
        return
    else:
        echo("finished what an earlier run had begun; it had compared everything")
    echo(f"{where} has {_shards(done.shards)}")
    if done.aside is not None:
        echo(f"the original is in {done.aside}: remove it when you no longer need it")


def _counts(same: Compared) -> str:
    counts = {
        "topic": same.topics,
        "partition": same.partitions,
        "message": same.messages,
        "group": same.groups,
        "schedule": same.schedules,
    }
    return ", ".join(f"{count:,} {name}{'' if count == 1 else 's'}" for name, count in counts.items())


def _shards(count: int) -> str:
    return "one shard" if count == 1 else f"{count} shards"
