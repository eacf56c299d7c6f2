"""`penstock job load` and `export`: messages from files and to files."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.jobs.running import FromFixedTimeOption, Running, WhereOption, job
from penstock.cli.parameters import FromOffsetOption, NewTopicArgument, ToOffsetOption, TopicArgument, ToTimeOption

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
    topic: NewTopicArgument,
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
        str, typer.Option(metavar="DIRECTORY", help="Where rows that cannot be messages are set aside.")
    ] = "bad-rows",
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

    return run(
        work,
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
    )


class ValueForm(StrEnum):
    """How values stand in a text."""

    TEXT = "text"
    BASE64 = "base64"
    JSON = "json"


@job
def export(
    run: Running,
    topic: TopicArgument,
    out: Annotated[
        str,
        typer.Argument(metavar="DIRECTORY", help="Where the files go, for this export alone; or s3://bucket/place."),
    ],
    file_format: Annotated[FileFormat, typer.Option("--format", help="What the files are.")] = FileFormat.JSONL,
    from_time: FromFixedTimeOption = None,
    to_time: ToTimeOption = None,
    from_offset: FromOffsetOption = None,
    to_offset: ToOffsetOption = None,
    where: WhereOption = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help="Which columns, in which order; without it, all that `load` wants back."),
    ] = None,
    value: Annotated[
        ValueForm, typer.Option("--value", help="How values stand in CSV and JSON lines; json is for JSON lines.")
    ] = ValueForm.TEXT,
) -> Outcome:
    """Write a topic to CSV, JSON lines or Parquet files.

    Messages of the log are written whatever became of them, also those that retention moved to an archive. A file holds
    consecutive messages of one partition, in order, and is named after the first of them, such as
    `orders-0-00000000000000000000.jsonl`. It is there whole, or not at all.

    The window is kept in `_export.json`. Killed and run again with the same words, the same messages are exported, and
    files that are there and right are left alone. `penstock job load TOPIC DIRECTORY --exported` brings it all back.

    Bytes that are no UTF-8 stand in CSV and JSON lines as base64; the column `base64` names them.

    For example:

        penstock job export orders /tmp/orders --format csv
        penstock job export orders /tmp/late --where 'priority > 200' --columns key,value
    """
    from penstock.spark.files.encoding import DEFAULT
    from penstock.spark.jobs.exporting import export as work

    return run(
        work,
        topic,
        out,
        format=file_format.value,
        from_time=from_time,
        to_time=to_time,
        from_offset=from_offset,
        to_offset=to_offset,
        where=where,
        columns=DEFAULT if columns is None else [name.strip() for name in columns.split(",")],
        value=value.value,
    )
