"""`penstock job load`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.jobs.running import Running, job

if TYPE_CHECKING:
    from penstock.spark.jobs.outcome import Outcome

_COLUMNS = "Which column is what"


class FileFormat(StrEnum):
    """What files can be."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


@job
def load(
    run: Running,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic; made if it is new.", show_default=False)],
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Files, patterns in quotes, or directories.", show_default=False),
    ],
    key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The key of messages.", rich_help_panel=_COLUMNS)
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Their value; without it, the whole row as a JSON object.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="0 (first) to 255, or a name such as high.", rich_help_panel=_COLUMNS),
    ] = None,
    deliver_at: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="When they are delivered.", rich_help_panel=_COLUMNS),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="A time that is kept as the header `time`.", rich_help_panel=_COLUMNS),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="COLUMN",
            help="A header of the name of the column; may be repeated.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    exported: Annotated[
        bool,
        typer.Option("--exported", help="All columns are those of `penstock job export`.", rich_help_panel=_COLUMNS),
    ] = False,
    file_format: Annotated[
        FileFormat | None,
        typer.Option("--format", help="What the files are; without it, their endings tell.", show_default=False),
    ] = None,
    delimiter: Annotated[str, typer.Option(metavar="CHARACTER", help="What is between the fields of CSV.")] = ",",
    no_header: Annotated[
        bool, typer.Option("--no-header", help="CSV has no line of names: columns are _c0, _c1, ….")
    ] = False,
    bad_rows: Annotated[
        Path, typer.Option(metavar="DIRECTORY", help="Where rows that cannot be messages are set aside.")
    ] = Path("bad-rows"),
    again: Annotated[bool, typer.Option("--again", help="Load once more what was loaded before.")] = False,
) -> Outcome:
    """Publish CSV, JSON lines or Parquet files to a topic.

    Each row is published once: killed and run again with the same words, it goes on where it was, and run once more it
    does nothing. The rows of a file keep their order. Files end in .csv, .jsonl, .json, .ndjson (each also with .gz) or
    .parquet, and are UTF-8.

    A row that cannot be a message is set aside with its file, line, text and what is wrong, in
    `bad-rows/TOPIC-…/part-….jsonl`, and the load goes on; the exit code is 1 then. `--dry-run` reads and checks
    everything, and publishes nothing.

    For example:

        penstock job load orders orders.csv --key customer --priority lane --time ordered_at
        penstock job load clicks 'clicks/2026-*.jsonl.gz' --key user -H country
        penstock job load copy out/ --exported
    """
    from penstock.spark.jobs.loading import load as work

    return work(
        run.spark,
        run.place,
        files,
        topic,
        format=None if file_format is None else file_format.value,
        key=key,
        value=value,
        priority=priority,
        deliver_at=deliver_at,
        time=time,
        headers=header or (),
        exported=exported,
        delimiter="\t" if delimiter == r"\t" else delimiter,
        header=not no_header,
        bad_rows=bad_rows,
        again=again,
        dry_run=run.dry_run,
        progress=run.progress,
    )
