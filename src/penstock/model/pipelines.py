"""What a pipeline tells of itself: to the broker, which shows it, and to whoever asks."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Quantity = Annotated[float, Meta(ge=0, le=1e300)]


class PipelineState(StrEnum):
    """What a pipeline is doing."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """It failed, and is started again soon."""
    STOPPED = "stopped"
    """It was asked to."""
    FINISHED = "finished"
    """It did what there was to do."""
    FAILED = "failed"
    """It is not started again."""
    SILENT = "silent"
    """It was at work, and has not been heard of for a minute. No pipeline tells this of itself: a server does."""


class QueryReport(msgspec.Struct, frozen=True, kw_only=True):
    """One query of a pipeline: the way to one of its sinks."""

    name: str
    reads: tuple[str, ...] = ()
    """The topics that it reads."""
    writes: tuple[str, ...] = ()
    """The topics that it writes to."""
    batches: Count = 0
    """Micro-batches since the pipeline was started, as rows."""
    rows: Count = 0
    rows_per_second: Quantity = 0.0
    """Of the last batch, as its time."""
    batch_seconds: Quantity = 0.0
    lag: Count | None = None
    """Messages that are there and were not read yet; None where the sources cannot tell."""
    state_rows: Count = 0
    """Rows that it keeps, for aggregates and joins."""
    time_us: Count = 0
    """When the last batch was done, µs since 1970."""


class PipelineReport(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline, as it is now."""

    name: str
    state: PipelineState
    queries: tuple[QueryReport, ...] = ()
    restarts: Count = 0
    error: str | None = None
    """Why it failed last."""
    file: str = ""
    """The name of the file that declares it."""
    host: str = ""
    pid: Count = 0
    started_us: Count = 0
    time_us: Count = 0
    """When this was told. What a server lists has its times by the clock of the server."""
