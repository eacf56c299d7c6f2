"""`penstock job archive`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.jobs.running import Running, job

if TYPE_CHECKING:
    from penstock.spark.jobs.outcome import Outcome


@job
def archive(
    run: Running,
    lake: Annotated[Path, typer.Argument(metavar="LAKE", help="The directory of the lake; made if it is new.")],
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Which topics; without any, all of them.")
    ] = None,
    move: Annotated[
        bool,
        typer.Option("--move", help="Then remove from the topics the settled segments that are in the lake."),
    ] = False,
    allow_gaps: Annotated[
        bool,
        typer.Option("--allow-gaps", help="Go on where messages are gone that the lake does not have."),
    ] = False,
) -> Outcome:
    """Copy or move the history of topics into a lake of Parquet.

    Messages and events that are not in the lake yet are copied to it, also those that retention moved to an archive and
    those that are not settled. Run it as often as you like: what is there is not copied again, and the files are the
    same as if all had been copied at once. Spark, DuckDB and pandas read the lake.

    With `--move` the topic lets go of what is in the lake, once that was read back from the disk. What is leased,
    delayed and not due, or unacked where the topic protects it stays, and so does what is not settled.

    For example:

        penstock job archive /lake orders clicks
        penstock job archive /lake --move
        penstock job archive /lake orders --dir ./data --dry-run
    """
    from penstock.spark.jobs.archiving import archive as work

    return work(
        run.spark,
        run.place,
        topics or None,
        str(lake),
        move=move,
        allow_gaps=allow_gaps,
        dry_run=run.dry_run,
        progress=run.progress,
    )
