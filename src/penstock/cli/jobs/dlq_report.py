"""`penstock job dlq-report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.completion import complete_topic
from penstock.cli.jobs.running import Running, job

if TYPE_CHECKING:
    from penstock.spark.jobs.outcome import Outcome


@job
def dlq_report(
    run: Running,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="Topics whose dead letters to look at; all that have any, if none is named.",
            autocompletion=complete_topic,
        ),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="PATH", help="Group by this field of JSON payloads too; may be repeated."),
    ] = None,
    examples: Annotated[
        int, typer.Option(metavar="NUMBER", min=0, max=100, help="So many letters of each group are named.")
    ] = 3,
    out: Annotated[
        Path | None, typer.Option(metavar="DIRECTORY", help="Write the tables letters and groups here, as Parquet.")
    ] = None,
) -> Outcome:
    """Group dead letters by what they have in common.

    By error text (texts that differ in numbers, ids, names in quotes, paths or a few words are one), by exact cause,
    by group, by key, and by fields of the payload: how many, from when to when, how often they were tried, and some
    of them. The largest 20 of each are shown; JSON has the values of the examples, and the tables have everything.

    For example:

        penstock job dlq-report
        penstock job dlq-report orders --field $.customer.country --examples 5 -o json
        penstock job dlq-report orders --out report
    """
    from penstock.spark.jobs.dlq_reporting import dlq_report as work

    return work(
        run.spark,
        run.place,
        topics or None,
        fields=fields or (),
        examples=examples,
        out=None if out is None else str(out),
        dry_run=run.dry_run,
        progress=run.progress,
    )
