"""`penstock job dlq-report` and `dlq-redrive`: dead letters in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.completion import complete_topic
from penstock.cli.jobs.running import Running, job
from penstock.cli.parameters import RateOption, TopicArgument

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
        str | None, typer.Option(metavar="DIRECTORY", help="Write the tables letters and groups here, as Parquet.")
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

    return run(work, topics or None, fields=fields or (), examples=examples, out=out)


@job
def dlq_redrive(
    run: Running,
    topic: TopicArgument,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="A condition over the columns of dead letters; without it, all of them."),
    ] = None,
    value: Annotated[
        str | None, typer.Option(metavar="SQL", help="An expression for the new value of each; `value` is the old one.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="As new messages of this topic.", autocompletion=complete_topic),
    ] = None,
    rate: RateOption = None,
) -> Outcome:
    """Bring dead letters back by an SQL condition.

    They go to the group that gave them up, at their old place. With `--to` or `--value` they are new messages, with
    key, headers and priority of the old ones and the header `penstock-origin`; with `--value` alone they are in their
    old topic, where every group gets them.

    Each goes once, also when this is interrupted and run again with the same words. Afterwards it counts what is back
    and what is left by the logs themselves; the exit code is 1 if that is not everything.

    The columns are topic, message_id, origin, group, cause, template (the cause without numbers, ids and the like),
    consumer, deliveries, failures, died_at, published_at, key, value, headers, priority and history.

    For example:

        penstock job dlq-redrive orders --where "cause LIKE 'timeout%' AND failures < 5" --rate 100
        penstock job dlq-redrive orders --where "group = 'billing'" --dry-run
        penstock job dlq-redrive orders --value "replace(CAST(value AS STRING), 'Germany', 'DE')"
    """
    from penstock.spark.jobs.dlq_redriving import dlq_redrive as work

    return run(work, topic, where=where, value=value, to=to, rate=rate)
