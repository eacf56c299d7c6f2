"""`penstock job dlq-redrive`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.completion import complete_topic
from penstock.cli.jobs.running import Running, job
from penstock.cli.parameters import RateOption, TopicArgument

if TYPE_CHECKING:
    from penstock.spark.jobs.outcome import Outcome


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

    return work(
        run.spark,
        run.place,
        topic,
        where=where,
        value=value,
        to=to,
        rate=rate,
        dry_run=run.dry_run,
        progress=run.progress,
    )
