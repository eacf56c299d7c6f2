"""Reports of pipelines: the newest of each and a short history, in memory only."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.model.clock import Clock
from penstock.model.errors import InvalidArgument, LimitExceeded, PenstockError
from penstock.model.names import check_group_name, check_topic_name
from penstock.model.pipelines import PipelineReport, PipelineState
from penstock.model.units import format_size
from penstock.server.access.principal import Principal, Scope
from penstock.server.pipeline_history import PipelineHistory, PipelinePoint

PIPELINES_MAX = 1000
QUERIES_MAX = 100
REPORT_BYTES_MAX = 64 << 10
ERROR_MAX = 10_000
"""Characters of an error that are kept; what is behind them is cut off."""
SILENT_AFTER_S = 60.0
FORGOTTEN_AFTER_S = 86400.0
_TEXT_MAX = 1000
_AT_WORK = frozenset({PipelineState.STARTING, PipelineState.RUNNING, PipelineState.WAITING})


@dataclass(frozen=True, slots=True)
class _Told:
    """A report, when it came, and whose it is: None where that is everybody with a token for all topics."""

    report: PipelineReport
    heard_s: float
    owner: str | None


class Pipelines:
    """The newest report of every pipeline that reported within a day; used from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[str, _Told] = {}
        self._history = PipelineHistory()
        self._lock = threading.Lock()

    def take(self, report: PipelineReport, owner: str | None = None) -> None:
        """Keep a report in the place of the one before."""
        report = _with_times_of(report, self._clock.wall_us())
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._forget(now_s)
            if report.name not in self._told and len(self._told) >= PIPELINES_MAX:
                raise LimitExceeded(
                    f"this server knows {PIPELINES_MAX:,} pipelines, and takes no reports of others: it forgets one "
                    "a day after its last report"
                )
            self._told[report.name] = _Told(report, now_s, owner)
            self._history.take(report)

    def listed(self, principal: Principal | None = None) -> list[PipelineReport]:
        """The reports that a principal may see, or all; those that reported first come first."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._forget(now_s)
            told = list(self._told.values())
        return [_now(each, now_s) for each in told if principal is None or _sees(principal, each)]

    def history(self, name: str, since_s: float) -> list[PipelinePoint]:
        """How a pipeline went in the last minutes, after a time in seconds since 1970."""
        with self._lock:
            return self._history.since(name, since_s)

    def _forget(self, now_s: float) -> None:
        old = [name for name, told in self._told.items() if now_s - told.heard_s > FORGOTTEN_AFTER_S]
        for name in old:
            del self._told[name]
        if old:
            self._history.keep(self._told)


class PipelinesOf:
    """The pipelines of a server, for somebody: what they may report, and what they may see."""

    def __init__(self, pipelines: Pipelines, principal: Principal) -> None:
        self._pipelines = pipelines
        self._principal = principal

    def report_pipeline(self, report: Any) -> None:
        """Take what a pipeline tells; of whoever is for some topics, under a name of their own."""
        principal, taken = self._principal, _checked(report)
        for topic in sorted(_topics(taken)):
            principal.require(Scope.CONSUME, topic)
        owner = None if principal.sees_all else principal.name
        self._pipelines.take(replace(taken, name=principal.own_name(taken.name)), owner)

    def pipelines(self) -> list[PipelineReport]:
        """What is known, by name."""
        return sorted(self._pipelines.listed(self._principal), key=lambda report: report.name)


def _checked(given: Any) -> PipelineReport:
    """A report that can be kept, or InvalidArgument with all that is wrong with it."""
    try:
        report = msgspec.convert(given, PipelineReport)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"this is not the report of a pipeline: {error}") from error
    if report.error is not None and len(report.error) > ERROR_MAX:
        report = replace(report, error=report.error[:ERROR_MAX] + "…")
    size = len(msgspec.msgpack.encode(report))
    if size > REPORT_BYTES_MAX:
        raise LimitExceeded(
            f"the report of the pipeline {report.name!r:.80} has {format_size(size)}, and may have "
            f"{format_size(REPORT_BYTES_MAX)}"
        )
    problems = _problems(report)
    if problems:
        raise InvalidArgument(f"the report of the pipeline {report.name!r:.80}: {'; '.join(problems)}")
    return report


def _problems(report: PipelineReport) -> list[str]:
    found = []
    if report.state is PipelineState.SILENT:
        found.append("silent is what a server says of a pipeline, never the pipeline itself")
    if len(report.queries) > QUERIES_MAX:
        found.append(f"it has {len(report.queries):,} queries, and may have {QUERIES_MAX}")
    if len({query.name for query in report.queries}) < len(report.queries):
        found.append("two of its queries have the same name")
    found += [
        f"{what} has {len(text):,} characters, and may have {_TEXT_MAX:,}"
        for what, text in (("file", report.file), ("host", report.host))
        if len(text) > _TEXT_MAX
    ]
    try:
        check_group_name(report.name, "pipeline")
        for query in report.queries[:QUERIES_MAX]:
            check_group_name(query.name, "query")
        for topic in sorted(_topics(report)):
            check_topic_name(topic)
    except PenstockError as error:
        found.append(str(error))
    return found


def _topics(report: PipelineReport) -> set[str]:
    return {topic for query in report.queries for topic in (*query.reads, *query.writes)}


def _sees(principal: Principal, told: _Told) -> bool:
    """Whether a pipeline is one's own, or has no other topics than those."""
    if principal.sees_all or told.owner == principal.name:
        return True
    topics = _topics(told.report)
    return bool(topics) and all(map(principal.sees, topics))


def _now(told: _Told, now_s: float) -> PipelineReport:
    """A report as it is to be read now."""
    if told.report.state in _AT_WORK and now_s - told.heard_s > SILENT_AFTER_S:
        return replace(told.report, state=PipelineState.SILENT)
    return told.report


def _with_times_of(report: PipelineReport, now_us: int) -> PipelineReport:
    """A report with its times by the clock of the server, whatever that of the pipeline says."""
    ahead_us = now_us - report.time_us if report.time_us else 0

    def moved(time_us: int) -> int:
        return min(max(0, time_us + ahead_us), now_us) if time_us else 0

    queries = tuple(replace(query, time_us=moved(query.time_us)) for query in report.queries)
    return replace(report, queries=queries, started_us=moved(report.started_us), time_us=now_us)
