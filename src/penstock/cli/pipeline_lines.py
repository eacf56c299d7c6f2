"""What a run of pipelines tells: a line for every batch and every change, for people or as JSON."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.cli.errors import REFUSED, Told, tell, warn
from penstock.cli.output import counted, iso_time
from penstock.cli.terminal import echo, is_terminal
from penstock.model.visible import visible

if TYPE_CHECKING:
    from penstock.model.pipelines import PipelineReport
    from penstock.spark.pipelines.progress import Batch


@dataclass
class _Refused:
    """Rows of a query that were not written, and those that were."""

    refused: int = 0
    written: int = 0


class Lines:
    """Prints them; `broken` is called when nobody reads any more."""

    def __init__(self) -> None:
        self.broken: Callable[[], None] = lambda: None
        self._counts: defaultdict[str, _Refused] = defaultdict(_Refused)
        self._people = is_terminal("stdout")
        self._lock = threading.Lock()
        self._silent = False

    def done(self, batch: Batch) -> None:
        """A micro-batch is done."""
        count = self._counts[batch.query]
        count.refused += batch.refused
        count.written += batch.written or 0
        told = asdict(batch)
        self._print(batch.line(), {"batch": told.pop("number"), **told})

    def changed(self, report: PipelineReport, note: str) -> None:
        """A pipeline is in another state."""
        error = report.error if report.state in ("waiting", "failed") else None
        parts = [report.name, report.state.value, visible(" ".join((error or "").split())), note]
        told = {"pipeline": report.name, "state": report.state.value, "error": error, "note": note or None}
        self._print("  ".join(part for part in parts if part), told)

    def tell_refused(self, reports: Sequence[PipelineReport]) -> bool:
        """Say at the end how many rows were not written, and where they are; whether a query wrote none at all."""
        reads = {query.name: query.reads for report in reports for query in report.queries}
        refused = {name: count for name, count in self._counts.items() if count.refused}
        for name, count in refused.items():
            topics = reads.get(name, ())
            hint = "look at what the sink makes of its rows"
            if topics:
                hint = f"`penstock dlq list {topics[0]}` tells why, unless a step left out the column message"
            if count.written:
                warn(f"{name}: {count.refused:,} of {count.refused + count.written:,} rows were refused ({hint})")
            else:
                tell(Told(f"{name}: all {counted(count.refused, 'row')} were refused, none was written", hint, REFUSED))
        return not all(count.written for count in refused.values())

    def _print(self, line: str, told: Mapping[str, object]) -> None:
        if not self._people:
            kept = {name: value for name, value in told.items() if value is not None}
            line = json.dumps({"time": iso_time(datetime.now(UTC)), **kept})
        with self._lock:
            if self._silent:
                return
            try:
                echo(line)
            except (BrokenPipeError, OSError):
                self._silent = True
        if self._silent:
            self.broken()
