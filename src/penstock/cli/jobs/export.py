"""`penstock job export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.jobs.running import Running, job
from penstock.cli.parameters import FromOffsetOption, TopicArgument

if TYPE_CHECKING:
    from penstock.spark.jobs.outcome import Outcome


class FileFormat(StrEnum):
    """What files can be."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


class ValueForm(StrEnum):
    """How values stand in a text."""

    TEXT = "text"
    BASE64 = "base64"
    JSON = "json"


@job
def export(
    run: Running,
    topic: TopicArgument,
    out: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where the files go; it is for this export alone.")],
    file_format: Annotated[FileFormat, typer.Option("--format", help="What the files are.")] = FileFormat.JSONL,
    from_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this time on, such as 2026-01-31T12:00:00Z.")
    ] = None,
    to_time: Annotated[str | None, typer.Option(metavar="TIME", help="Up to this time, without it.")] = None,
    from_offset: FromOffsetOption = None,
    to_offset: Annotated[
        int | None, typer.Option(metavar="OFFSET", min=0, help="Up to this offset, without it, in each partition.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="A condition over the columns of messages, such as 'priority < 64'."),
    ] = None,
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

    return work(
        run.spark,
        run.place,
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
        dry_run=run.dry_run,
        progress=run.progress,
    )
