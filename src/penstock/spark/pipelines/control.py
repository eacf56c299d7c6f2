"""The files of a pipeline: its checkpoints, and those by which other processes see and stop it.

<checkpoints>/<pipeline>/
urgent/, urgent.json           the checkpoint of a sink, and what it was made by
orders.bad/, orders.bad.json   the same of the dead letters of a source
run.lock                       held by the process that runs the pipeline
run.json                       its last report
run.stop                       somebody wants it to stop
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from penstock.model.errors import InvalidArgument, PenstockError
from penstock.model.pipelines import PipelineReport, PipelineState
from penstock.spark.files.whole import hold

if TYPE_CHECKING:
    from penstock.spark.pipelines.planning import Query

AT_WORK = (PipelineState.STARTING, PipelineState.RUNNING, PipelineState.WAITING)
"""The states of a pipeline whose process is there."""
_MISFIT = re.compile(
    r"sources in the checkpoint offsets|STATE_STORE_\w*SCHEMA|STATEFUL_OPERATOR|INVALID_SCHEMA_ON_STATE|"
    r"Provided schema doesn't match to the schema for existing state"
)
_ANEW = "remove it to begin anew, or give the sink another name"


class AlreadyRunning(PenstockError):
    """Another process runs this pipeline."""


class RunFiles:
    """The files of one pipeline."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock: int | None = None

    def take(self) -> None:
        """Hold the pipeline; only one process can."""
        self._directory.mkdir(parents=True, exist_ok=True)
        handle = hold(self._directory / "run.lock")
        if handle is None:
            last = self._read()
            who = f" (process {last.pid} on {last.host}, {last.file})" if last is not None else ""
            raise AlreadyRunning(f"{self._directory.name} runs already{who}, with the checkpoints in {self._directory}")
        self._lock = handle
        (self._directory / "run.stop").unlink(missing_ok=True)

    def let_go(self) -> None:
        """Release it, so that others may run it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def is_held(self) -> bool:
        """Whether a process runs it."""
        if not (self._directory / "run.lock").exists():
            return False
        handle = hold(self._directory / "run.lock")
        if handle is not None:
            os.close(handle)
        return handle is None

    def tell(self, report: PipelineReport) -> None:
        """Leave the last report for others."""
        draft = self._directory / "run.json.tmp"
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
        draft.replace(self._directory / "run.json")

    def report(self) -> PipelineReport | None:
        """What is known of the pipeline; None if it never ran."""
        held, last = self.is_held, self._read()
        if last is not None and last.state in AT_WORK and not held:
            gone = f"its process ({last.pid} on {last.host}) is gone without a word"
            return replace(last, state=PipelineState.FAILED, error=gone)
        return last

    def _read(self) -> PipelineReport | None:
        try:
            return msgspec.json.decode((self._directory / "run.json").read_bytes(), type=PipelineReport)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def ask_to_stop(self) -> None:
        """Have the process that runs it stop it."""
        (self._directory / "run.stop").touch()

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether somebody wants it to stop."""
        return (self._directory / "run.stop").exists()


# Whether a checkpoint fits its query: one that another query made would read or write the wrong things.


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
    """Raise if an earlier query wrote the table: Spark would take the new batches for old ones, and skip them."""
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
