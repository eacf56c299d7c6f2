"""Whether a checkpoint fits its query: one that was made by another query would read or write the wrong things."""

from __future__ import annotations

import json
import re
from pathlib import Path

from penstock.model.errors import InvalidArgument
from penstock.spark.pipelines.planning import Query

_MISFIT = re.compile(
    r"sources in the checkpoint offsets|STATE_STORE_\w*SCHEMA|STATEFUL_OPERATOR|INVALID_SCHEMA_ON_STATE|"
    r"Provided schema doesn't match to the schema for existing state"
)
_ANEW = "remove it to begin anew, or give the sink another name"


def check_fit(query: Query) -> None:
    """Raise if the query's checkpoint is not its own; a new one is noted."""
    note = query.checkpoint.with_name(f"{query.checkpoint.name}.json")
    now = {"reads": list(query.reads), "partition_by": list(query.partition_by)}
    if not (query.checkpoint / "metadata").exists():
        if query.format == "parquet":
            _check_new_table(query)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps({"query": query.name, **now}, indent=2) + "\n")
        return
    try:
        before = json.loads(note.read_text())
    except (OSError, ValueError):
        return  # Spark finds out
    for what, verb in (("reads", "read"), ("partition_by", "partitioned its table by")):
        if before.get(what) != now[what]:
            shown = [", ".join(some) or "nothing" for some in (before.get(what) or [], now[what])]
            raise InvalidArgument(
                f"{query.name}: the checkpoint {query.checkpoint} was made by a query that {verb} {shown[0]}; now that "
                f"is {shown[1]}: {_ANEW}"
            )


def _check_new_table(query: Query) -> None:
    """A query that begins anew would be taken for the one before by the table, which would leave out its rows."""
    log = Path(query.options["path"]) / "_spark_metadata"
    if "://" not in query.options["path"] and log.is_dir() and any(name.name.isdecimal() for name in log.iterdir()):
        raise InvalidArgument(
            f"{query.name}: the table {query.options['path']} was written by a query whose checkpoint is not "
            f"{query.checkpoint}: bring that back, or write into another directory"
        )


def misfit(query: Query, text: str) -> InvalidArgument | None:
    """The error for what Spark says of a checkpoint that is not the query's own."""
    if _MISFIT.search(text) is None:
        return None
    line = " ".join(text.split())[:300]
    return InvalidArgument(f"{query.name}: the checkpoint {query.checkpoint} does not fit the query: {_ANEW} ({line})")
