"""What a pipeline is made of: sources, steps and sinks, as a file declares them or as Python writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.model.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Function = Callable[..., DataFrame]

MESSAGE = "message"
"""The column of a topic's view with the whole message; the fields of its value are columns of their own."""
MAX_PER_TRIGGER = 500_000
"""Messages of a source in one micro-batch, unless it says otherwise."""


@dataclass(frozen=True)
class Watermark:
    """How late rows may come, by a column with their time."""

    column: str
    delay: Duration


@dataclass(frozen=True, kw_only=True)
class Source:
    """Something to read, under the name of a view: one of `topic`, `events`, `table` and `files`."""

    topic: str | None = None
    events: str | None = None
    """A topic whose events are read."""
    table: str | None = None
    """A directory of Parquet files."""
    files: str | None = None
    """A file, or a directory of files."""
    starting: str = "earliest"
    """Of topics and events: where a new query begins, `earliest` or `latest`."""
    max_per_trigger: int = MAX_PER_TRIGGER
    value: str = "binary"
    """What the values of a topic are: `json`, `text` or `binary`."""
    schema: str | None = None
    """Columns with their types, as in SQL: `id STRING NOT NULL, amount DOUBLE`."""
    bad_rows: str | None = None
    """What becomes of a value that does not fit: `dead-letter` (default for topics), `drop` or `fail` (for files)."""
    format: str | None = None
    """Of files: `csv`, `json`, `parquet` or `text`."""
    header: bool = True
    """Of CSV files: whether their first line has the names of the columns."""
    stream: bool = False
    """Of tables and files: whether files that come later are read too; else they are as they are at the start."""
    watermark: Watermark | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """A view out of others: by SQL, or by a function of DataFrames."""

    name: str
    sql: str | None = None
    python: str | Function | None = None
    """A function, or in a file its place: `module:function`."""
    input: str | Sequence[str] | None = None
    """Of a function: the view, or views, that it is called with."""


@dataclass(frozen=True, kw_only=True)
class Sink:
    """Where the rows of a view go: one of `topic`, `table` and `console`. Expressions are SQL."""

    from_: str
    where: str | None = None
    mode: str = "append"
    topic: str | None = None
    value: str | None = None
    """The value of a message; without it, JSON of all columns but `message`."""
    key: str | None = None
    priority: str | None = None
    delay: str | None = None
    """Seconds, or text such as `5m`."""
    headers: str | Mapping[str, str] | None = None
    """A map, or expressions by name."""
    table: str | None = None
    partition_by: str | Sequence[str] | None = None
    console: bool = False


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Sources, steps and sinks that run, fail and start again together."""

    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    steps: Sequence[Step] = ()
    trigger: Duration = "continuous"
    """When there is a batch: `continuous`, every so often, or `available-now`."""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """Everything that a file declares, checked."""

    path: Path
    pipelines: Mapping[str, Pipeline]
    checkpoints: Path
    server: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict, repr=False)
    """Where each part stands in the file, by its place: `pipelines.orders.sinks.urgent`."""

    unread: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)
    """Sources and steps that were left out of a pipeline because of problems, which were reported."""

    def near(self, path: str) -> str:
        """A path as the file means it: relative to the directory of the file."""
        return path if "://" in path else str((self.path.parent / path).resolve())

    def directory(self, pipeline: str) -> Path:
        """Where a pipeline keeps its checkpoints and its last report."""
        return self.checkpoints / pipeline
