"""Pipelines from Python: check what a file declares, and run it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.model.errors import InvalidArgument, PenstockError
from penstock.model.pipelines import PipelineReport
from penstock.model.units import parse_digits
from penstock.server.settings.table import suggestion
from penstock.server.settings.values import Remark
from penstock.spark.jobs.place import Place
from penstock.spark.pipelines.checking import circles
from penstock.spark.pipelines.planning import Planner, Query, Sessions
from penstock.spark.pipelines.progress import Batch
from penstock.spark.pipelines.server import limits_of, missing_topics
from penstock.spark.pipelines.spec import Declared
from penstock.spark.pipelines.supervising import Supervisor, Watch
from penstock.spark.sessions import job_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.pollingDelay": "50ms",  # by default 10: a query that waits would keep half a core busy
    "spark.sql.streaming.numRecentProgressUpdates": "50",
    "spark.sql.streaming.stopTimeout": "30s",
}
"""What queries of pipelines have beyond Spark's defaults, unless the file says otherwise."""
LOCAL_SETTINGS = {"spark.sql.shuffle.partitions": "4"}
"""The same, where they run on this machine."""
SERVER = "127.0.0.1:9000"


@dataclass
class Findings:
    """The result of checking a file."""

    problems: list[Remark] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    queries: dict[str, list[Query]] = field(default_factory=dict)
    """By pipeline."""


class Unwatched:
    """Nobody listens."""

    def done(self, batch: Batch) -> None:
        """Not shown."""

    def changed(self, report: PipelineReport, note: str) -> None:
        """Not shown."""


def place_of(
    declared: Declared,
    environment: Mapping[str, str] = os.environ,
    *,
    server: str | None = None,
    token: str | None = None,
    tls: bool = False,
    ca: str | None = None,
) -> Place:
    """The server of a file: the one that is given, or that it names, or that the environment names."""
    return Place(
        servers=server or declared.server or environment.get("PENSTOCK_SERVER") or SERVER,
        token=token or environment.get("PENSTOCK_TOKEN"),
        tls=tls or environment.get("PENSTOCK_TLS", "").lower() in ("1", "true", "yes", "on"),
        ca=ca or environment.get("PENSTOCK_CA"),
    )


def session_of(
    declared: Declared, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session for the pipelines of a file, in which each has its fair share."""
    chosen = {"spark.scheduler.mode": "FAIR", **settings_of(declared, master), **(settings or {})}
    return job_session(master, chosen, name=f"penstock pipelines of {declared.path.name}")


def settings_of(declared: Declared, master: str | None = None) -> dict[str, str]:
    """The settings of the queries of a file."""
    local = LOCAL_SETTINGS if master is None or master.startswith("local") else {}
    return {**SETTINGS, **local, **declared.settings}


def check(spark: SparkSession, declared: Declared, place: Place, known: Sequence[Remark] = ()) -> Findings:
    """Have Spark analyse everything, without touching data; topics that are not there are told as notes.

    What it finds stands among the problems that are `known`, in the order of the file.
    """
    found = Findings(problems=[*known], notes=circles(declared))
    sessions = Sessions(spark, settings_of(declared))
    away = ""
    for name, pipeline in declared.pipelines.items():
        limits = None
        try:
            limits = limits_of(pipeline, place)
            missing = missing_topics(pipeline, place)
            if missing:
                found.notes.append(f"{name}: the topic {', '.join(missing)} is not there: `run` makes it")
        except (PenstockError, OSError) as error:
            away = f"the server was not asked for topics and limits: {error}"
        planner = Planner(declared, name, place, sessions, limits)
        found.queries[name] = planner.queries()
        found.problems += planner.problems.values()
    found.notes += [away] if away else []
    found.problems.sort(key=lambda problem: _line(problem.place))
    return found


def run(
    spark: SparkSession,
    declared: Declared,
    place: Place,
    *,
    names: Sequence[str] = (),
    watch: Watch | None = None,
    started: Callable[[Supervisor], None] = lambda _: None,
) -> list[PipelineReport]:
    """Run pipelines until they are done, or until the supervisor, which `started` gets, is told to stop them."""
    check_names(declared, names)
    supervisor = Supervisor(declared, place, Sessions(spark, settings_of(declared)), watch or Unwatched(), names)
    supervisor.start()
    started(supervisor)
    return supervisor.wait()


def check_names(declared: Declared, names: Sequence[str]) -> None:
    """Raise unless the file declares these pipelines."""
    for name in names:
        if name not in declared.pipelines:
            near = suggestion(name, declared.pipelines) or f"; there are {', '.join(declared.pipelines)}"
            raise InvalidArgument(f"{declared.path} has no pipeline {name}{near}")


def _line(place: str) -> int:
    number = place.rpartition(":")[2]
    return parse_digits(number) or 0
