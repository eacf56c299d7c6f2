"""What `make run` shows: where its parts are, and then figures: a small table on a terminal, lines on a pipe."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self

from rich.box import SIMPLE
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

import penstock
from penstock.model.info import GroupInfo
from penstock.model.pipelines import PipelineReport

TOPIC = "orders"
_LINE_EVERY_S = 2.0


@dataclass
class Figures:
    """How things stand: what the broker knows of its groups, and of the pipelines that report to it."""

    published: int
    groups: list[GroupInfo]
    pipelines: list[PipelineReport]

    @classmethod
    def of(cls, client: penstock.Client) -> Figures:
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


def _rows(report: PipelineReport) -> str:
    lags = [query.lag for query in report.queries if query.lag is not None]
    return f"{sum(query.rows for query in report.queries):,} rows, lag {max(lags, default=0):,}"


class Screen:
    """Shows figures, where and as often as it makes sense; `with` has it clean up behind itself."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._started_s = time.monotonic()
        self._next_s = 0.0

    def say(self, text: str = "") -> None:
        """A line that stays."""
        self._console.print(text, soft_wrap=True)

    def show(self, figures: Figures) -> None:
        """The figures as they are now; on a pipe not more often than every other second."""
        now_s = time.monotonic()
        if self._live is not None:
            self._live.update(_drawn(figures, now_s - self._started_s), refresh=True)
        elif now_s >= self._next_s:
            self._next_s = now_s + _LINE_EVERY_S
            print(f"{_clock(now_s - self._started_s)} {figures.line()}", flush=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"


def _drawn(figures: Figures, seconds: float) -> Group:
    """Two tables: what the workers do, and what the pipeline does."""
    workers = _table("workers", "topic", "published", "acked", "delayed", "retrying", "dead", "lag")
    for group in sorted(figures.workers, key=lambda group: (group.name, group.topic)):
        counts = (group.published, group.acked, group.delayed, group.retrying, group.dead, group.lag)
        workers.add_row(group.name, group.topic, *(f"{count:,}" for count in counts))
    queries = _table("pipeline", "state", "batches", "rows", "rows/s", "seconds", "lag")
    for report in figures.pipelines:
        for query in report.queries:
            lag = "" if query.lag is None else f"{query.lag:,}"
            speed = (f"{query.rows_per_second:,.0f}", f"{query.batch_seconds:.1f}")
            queries.add_row(query.name, report.state, f"{query.batches:,}", f"{query.rows:,}", *speed, lag)
        if report.error is not None:
            queries.add_row(report.name, report.error[:80])
    if not figures.pipelines:
        queries.add_row("", "Spark is starting")
    return Group(f"  {_clock(seconds)}  {figures.published:,} orders published", workers, queries)


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE, pad_edge=True, show_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right", no_wrap=True)
    return table
