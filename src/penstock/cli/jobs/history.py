"""`penstock job archive`, `replay` and `compact`: the history of topics, in a lake and back."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.completion import complete_topic
from penstock.cli.jobs.running import FromFixedTimeOption, Running, WhereOption, job
from penstock.cli.parameters import (
    FromOffsetOption,
    PartitionOption,
    RateOption,
    ToOffsetOption,
    TopicArgument,
    ToTimeOption,
)

if TYPE_CHECKING:
    from penstock.spark.jobs.outcome import Outcome

TopicsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="TOPIC", help="Which topics; without any, all of them.")
]


@job
def archive(
    run: Running,
    lake: Annotated[
        str, typer.Argument(metavar="LAKE", help="The directory of the lake, or s3://bucket/place; made if it is new.")
    ],
    topics: TopicsArgument = None,
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

    return run(work, topics or None, lake, move=move, allow_gaps=allow_gaps)


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
        str | None, typer.Option(metavar="DIRECTORY", help="A new directory, which is there when it is complete.")
    ] = None,
    file_format: Annotated[
        FileFormat | None, typer.Option("--format", help="What the files are; parquet if nothing is said.")
    ] = None,
    from_time: FromFixedTimeOption = None,
    to_time: ToTimeOption = None,
    from_offset: FromOffsetOption = None,
    to_offset: ToOffsetOption = None,
    partition: PartitionOption = None,
    where: WhereOption = None,
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
        str | None,
        typer.Option(metavar="LAKE", help="Read from this lake what is there, and only the rest from the broker."),
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

    return run(
        work,
        topic,
        to_topic=to_topic,
        to_files=to_files,
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
        lake=from_lake,
    )


class Keep(StrEnum):
    """What stays."""

    ALL = "all"
    LATEST = "latest"


@job
def compact(
    run: Running,
    lake: Annotated[str, typer.Argument(metavar="LAKE", help="The directory of the lake, or s3://bucket/place.")],
    topics: TopicsArgument = None,
    keep: Annotated[Keep, typer.Option(help="All messages, or of each key the latest.")] = Keep.ALL,
) -> Outcome:
    """Merge small files of a lake, or keep the latest of each key.

    Small files that lie beside one another (of one date and partition) become one. With `--keep latest`, of the
    messages of a partition that have the same key only the last stays; those without a key stay too. Offsets do not
    change.

    The old files go when the new ones were read back from the disk. Who reads the lake by its log meanwhile sees what
    was there before, or all of what is there after. No broker is asked.

    For example:

        penstock job compact /lake
        penstock job compact /lake customers --keep latest --dry-run
    """
    from penstock.spark.jobs.compacting import compact as work

    return work(run.spark, lake, topics or None, keep=keep.value, dry_run=run.dry_run, progress=run.progress)
