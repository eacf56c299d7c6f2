"""`penstock job trace-report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.completion import complete_topic
from penstock.cli.jobs.running import Running, job

if TYPE_CHECKING:
    from penstock.spark.jobs.outcome import Outcome


@job
def trace_report(
    run: Running,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC", help="Topics to report on; all, if none is named.", autocompletion=complete_topic
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIRECTORY", help="Where report.html and tables/*.parquet are written.")
    ] = Path("trace-report"),
    from_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only messages published from this time on.")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only messages published before this time.")
    ] = None,
    stuck_after: Annotated[
        str, typer.Option(metavar="DURATION", help="What is open for longer than this counts as stuck.")
    ] = "5m",
) -> Outcome:
    """Latencies, causes and stuck messages, as HTML.

    How long messages took from publish to their first delivery to the ack (p50, p95, p99 by group, lane and hour),
    why they came back, which consumers are slow, what is stuck, and what became of all: one page that opens offline,
    and the same as tables of Parquet. It speaks of the data alone: the same logs give the same files.

    For example:

        penstock job trace-report
        penstock job trace-report orders payments --out /tmp/report
        penstock job trace-report orders --from-time 2026-11-16T00:00:00Z --stuck-after 1h
    """
    from penstock.spark.jobs.tracing.job import trace_report as work

    return work(
        run.spark,
        run.place,
        topics or None,
        str(out),
        from_time=from_time,
        to_time=to_time,
        stuck_after=stuck_after,
        dry_run=run.dry_run,
        progress=run.progress,
    )
