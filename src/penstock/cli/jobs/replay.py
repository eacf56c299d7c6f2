"""`penstock job replay`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.completion import complete_topic
from penstock.cli.jobs.running import Running, job
from penstock.cli.parameters import FromOffsetOption, RateOption, TopicArgument

if TYPE_CHECKING:
    from penstock.spark.jobs.outcome import Outcome


class FileFormat(StrEnum):
    """What the files of a replay are."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"


@job
def replay(
    run: Running,
    topic: TopicArgument,
    to_topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="A topic of the same server.", autocompletion=complete_topic),
    ] = None,
    to_files: Annotated[
        Path | None, typer.Option(metavar="DIRECTORY", help="A new directory, which is there when it is complete.")
    ] = None,
    file_format: Annotated[
        FileFormat | None, typer.Option("--format", help="What the files are; parquet if nothing is said.")
    ] = None,
    from_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this time on, such as 2026-01-31T12:00:00Z.")
    ] = None,
    to_time: Annotated[str | None, typer.Option(metavar="TIME", help="Up to this time, without it.")] = None,
    from_offset: FromOffsetOption = None,
    to_offset: Annotated[
        int | None, typer.Option(metavar="OFFSET", min=0, help="Up to this offset, without it, in each partition.")
    ] = None,
    partition: Annotated[int | None, typer.Option(metavar="NUMBER", min=0, help="This partition only.")] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="A condition over the columns of messages, such as 'priority < 64'."),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SQL", help="A column to write; may be repeated. Without it: key, value, headers, priority."
        ),
    ] = None,
    rate: RateOption = None,
    name: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Tells it from a replay that had the same words otherwise.")
    ] = None,
    from_lake: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Read from this lake what is there, and only the rest from the broker."),
    ] = None,
) -> Outcome:
    """Send a window of the past to a topic, or write it to files.

    What is acked, dead or in the archive of retention comes too. A copy has the header `penstock-origin` with the id of
    its original; files have a column `message_id`. Messages of one partition keep their order, those without a key
    their partition too.

    Each message goes to the topic once: run again after an interruption, it goes on where it was, also at another
    rate. Without an end it goes up to now, and run again later it brings what is new. Times are fixed points, so that
    the same words mean the same window.

    For example:

        penstock job replay orders --to-topic orders-again --from-time 2026-01-14T15:00:00Z --rate 500
        penstock job replay orders --to-topic late --where "get_json_object(CAST(value AS STRING), '$.late') = 'true'"
        penstock job replay orders --to-topic loud --select key --select "upper(CAST(value AS STRING)) AS value"
        penstock job replay orders --to-files january --format csv --select key --select value --from-lake /lake
    """
    from penstock.spark.jobs.replaying import replay as work

    return work(
        run.spark,
        run.place,
        topic,
        to_topic=to_topic,
        to_files=None if to_files is None else str(to_files),
        file_format=None if file_format is None else file_format.value,
        from_time=from_time,
        to_time=to_time,
        from_offset=from_offset,
        to_offset=to_offset,
        partition=partition,
        where=where,
        select=select or (),
        rate=rate,
        name=name,
        lake=None if from_lake is None else str(from_lake),
        dry_run=run.dry_run,
        progress=run.progress,
    )
