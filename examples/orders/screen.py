"""What `make run` shows: how many orders there are, what the workers do, and what the pipeline does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from rich.console import Group

import penstock
from examples.terminal import table
from penstock.model.info import GroupInfo
from penstock.model.pipelines import PipelineReport

TOPIC = "orders"


@dataclass
class Figures:
    """How things stand: what the broker knows of its groups, and of the pipelines that report to it."""

    published: int
    groups: list[GroupInfo]
    pipelines: list[PipelineReport]

    @classmethod
    def of(cls, client: penstock.Client) -> Self:
        """Asked of the broker now."""
        (topic,) = [topic for topic in client.topics() if topic.name == TOPIC]
        published = sum(partition.end_offset for partition in topic.partitions)
        return cls(published, client.groups(), client.pipelines())

    @property
    def workers(self) -> list[GroupInfo]:
        """The groups of the workers."""
        return [group for group in self.groups if group.kind == "consumers"]

    @property
    def settled(self) -> bool:
        """Whether every query of the pipeline has read everything, and the workers have done everything."""
        queries = [query.name for report in self.pipelines for query in report.queries]
        up_to_date = {group.name for group in self.groups if group.kind == "checkpoint" and group.lag == 0}
        return bool(queries) and up_to_date.issuperset(queries) and not any(group.lag for group in self.workers)

    def line(self) -> str:
        """All of it, in short."""
        acked, retrying, dead, lag = (
            sum(getattr(group, name) for group in self.workers) for name in ("acked", "retrying", "dead", "lag")
        )
        parts = [
            f"published {self.published:,}",
            f"workers: acked {acked:,}, retrying {retrying:,}, dead {dead:,}, lag {lag:,}",
            *(f"pipeline {report.name} {report.state}: {_rows(report)}" for report in self.pipelines),
        ]
        return " | ".join(parts if self.pipelines else [*parts, "pipeline: Spark is starting"])

    def drawn(self, clock: str) -> Group:
        """Two tables: what the workers do, and what the pipeline does."""
        workers = table("workers", "topic", "published", "acked", "delayed", "retrying", "dead", "lag")
        for group in sorted(self.workers, key=lambda group: (group.name, group.topic)):
            counts = (group.published, group.acked, group.delayed, group.retrying, group.dead, group.lag)
            workers.add_row(group.name, group.topic, *(f"{count:,}" for count in counts))
        queries = table("pipeline", "state", "batches", "rows", "rows/s", "seconds", "lag")
        for report in self.pipelines:
            for query in report.queries:
                lag = "" if query.lag is None else f"{query.lag:,}"
                speed = (f"{query.rows_per_second:,.0f}", f"{query.batch_seconds:.1f}")
                queries.add_row(query.name, report.state, f"{query.batches:,}", f"{query.rows:,}", *speed, lag)
            if report.error is not None:
                queries.add_row(report.name, report.error[:80])
        if not self.pipelines:
            queries.add_row("", "Spark is starting")
        return Group(f"  {clock}  {self.published:,} orders published", workers, queries)


def _rows(report: PipelineReport) -> str:
    lags = [query.lag for query in report.queries if query.lag is not None]
    return f"{sum(query.rows for query in report.queries):,} rows, lag {max(lags, default=0):,}"
