"""`penstock job trace-report` and `audit`: what became of messages, and whether all of them are there."""

from __future__ import annotations

from enum import StrEnum
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
        str,
        typer.Option(
            "--out",
            metavar="DIRECTORY",
            help="Where report.html and tables/*.parquet are written; or s3://bucket/place.",
        ),
    ] = "trace-report",
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

    return run(work, topics or None, out, from_time=from_time, to_time=to_time, stuck_after=stuck_after)


class Duplicates(StrEnum):
    """By what messages are told apart."""

    NONE = "none"
    KEY = "key"
    DEDUPE_ID = "dedupe-id"


@job
def audit(
    run: Running,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC", help="Topics to look over; all, if none is named.", autocompletion=complete_topic
        ),
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(metavar="LAKE", help="A lake with older messages: put together, both must be whole."),
    ] = None,
    expect: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The JSON of an earlier audit: what that one saw must still be there."),
    ] = None,
    duplicates: Annotated[
        Duplicates, typer.Option(help="Look for keys, or for dedupe ids, that are there more than once.")
    ] = Duplicates.NONE,
) -> Outcome:
    """Prove that a data directory, a server or a lake is whole.

    Every byte of every file is checked, offsets have no gap that nothing explains, all messages are summed up in a
    hash, and what became of them is folded from the events and compared with what the broker says of its groups.

    The exit code is 1 if anything is wrong; each problem is told with its place. An archive is a place too: give it
    as `--dir`. The hash of two parts is the sum of theirs, so that live and archived messages add up.

    For example:

        penstock job audit
        penstock job audit orders --dir ./data --lake /lake
        penstock job audit -o json > monday.json
        penstock job audit --expect monday.json
    """
    from penstock.spark.jobs.auditing.job import audit as work

    return run(
        work,
        topics or None,
        lake=lake,
        expect=None if expect is None else str(expect),
        duplicates=duplicates.value,
    )
