"""`penstock job audit`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.completion import complete_topic
from penstock.cli.jobs.running import Running, job

if TYPE_CHECKING:
    from penstock.spark.jobs.outcome import Outcome


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
        Path | None,
        typer.Option(metavar="DIRECTORY", help="A lake with older messages: put together, both must be whole."),
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

    return work(
        run.spark,
        run.place,
        topics or None,
        lake=None if lake is None else str(lake),
        expect=None if expect is None else str(expect),
        duplicates=duplicates.value,
        dry_run=run.dry_run,
        progress=run.progress,
    )
