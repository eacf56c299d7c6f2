"""What queries tell of their micro-batches: figures for reports, and for a line each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.model.pipelines import QueryReport
from penstock.spark.pipelines.planning import Query
from penstock.spark.pipelines.sinks import OBSERVED

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Batch:
    """A micro-batch that is done."""

    query: str
    number: int
    rows: int
    rows_per_second: float
    seconds: float
    lag: int | None
    state_rows: int
    refused: int
    """Rows that became dead letters, or were left out."""
    written: int | None
    """The others, where they are counted."""

    def line(self) -> str:
        """For people: `orders.urgent  batch 12  1,234 rows  5,678/s  lag 90  0.3 s`."""
        parts = [self.query, f"batch {self.number:,}", f"{self.rows:,} rows", f"{self.rows_per_second:,.0f}/s"]
        if self.lag is not None:
            parts.append(f"lag {self.lag:,}")
        parts.append(f"{self.seconds:.1f} s")
        if self.state_rows:
            parts.append(f"state {self.state_rows:,}")
        if self.refused:
            parts.append(f"refused {self.refused:,}")
        return "  ".join(parts)


class Figures:
    """The figures of one query since the pipeline was started, over all its restarts."""

    def __init__(self, query: Query) -> None:
        writes = (query.target,) if query.format == "penstock" else ()
        self.report = QueryReport(name=query.name, reads=query.topics, writes=writes)
        self._run = ""
        self._seen = -1

    def news(self, running: StreamingQuery) -> Iterator[Batch]:
        """The batches that were done since the last call."""
        last = running.lastProgress
        if last is None:
            return
        found = [_parsed(last)]
        if self._run != found[0]["runId"]:
            self._run, self._seen = found[0]["runId"], -1
        if found[0]["batchId"] > self._seen + 1:
            found = [_parsed(progress) for progress in running.recentProgress]
        for progress in found:
            if progress["batchId"] > self._seen and "addBatch" in progress["durationMs"]:
                self._seen = progress["batchId"]
                yield self._took(progress)
            elif progress is found[-1]:  # it waits for more
                self.report = replace(self.report, lag=_lag(progress))

    def _took(self, progress: dict[str, Any]) -> Batch:
        seconds = max(progress["durationMs"].get("triggerExecution", 0), 1) / 1000
        rows = max(int(progress["numInputRows"]), 0)
        state = sum(max(int(part["numRowsTotal"]), 0) for part in progress["stateOperators"])
        observed = progress.get("observedMetrics", {}).get(OBSERVED) or {}
        batch = Batch(
            query=self.report.name,
            number=progress["batchId"],
            rows=rows,
            rows_per_second=rows / seconds,
            seconds=seconds,
            lag=_lag(progress),
            state_rows=state,
            refused=(refused := int(observed.get("refused") or 0)),
            written=observed.get("written", rows - refused if observed else None),
        )
        self.report = replace(
            self.report,
            batches=self.report.batches + 1,
            rows=self.report.rows + rows,
            rows_per_second=batch.rows_per_second,
            batch_seconds=seconds,
            lag=batch.lag,
            state_rows=state,
            time_us=time.time_ns() // 1000,
        )
        return batch


def _parsed(progress: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(progress.json)
    return found


def _lag(progress: dict[str, Any]) -> int | None:
    """What the sources had that was not read yet, of those that tell."""
    lags = [
        sum(
            latest - int(source["endOffset"].get(topic, {}).get(number, 0))
            for topic, places in source["latestOffset"].items()
            for number, latest in places.items()
        )
        for source in progress["sources"]
        if _has_offsets(source.get("latestOffset")) and isinstance(source.get("endOffset"), dict)
    ]
    return max(0, sum(lags)) if lags else None


def _has_offsets(latest: object) -> bool:
    """Whether these are offsets by topic and partition, as ours are."""
    return isinstance(latest, dict) and all(isinstance(places, dict) for places in latest.values())
