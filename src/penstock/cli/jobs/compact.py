"""`penstock job compact`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.jobs.running import Running, job

if TYPE_CHECKING:
    from penstock.spark.jobs.outcome import Outcome


class Keep(StrEnum):
    """What stays."""

    ALL = "all"
    LATEST = "latest"


@job
def compact(
    run: Running,
    lake: Annotated[Path, typer.Argument(metavar="LAKE", help="The directory of the lake.")],
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Which topics; without any, all of them.")
    ] = None,
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

    return work(run.spark, str(lake), topics or None, keep=keep.value, dry_run=run.dry_run, progress=run.progress)
