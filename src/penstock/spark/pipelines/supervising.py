"""Pipelines at work: several in one session, each started again when it fails, and stopped between two batches."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pyspark.errors import AnalysisException, ParseException

from penstock.model.errors import ConnectionLost, Forbidden, InvalidArgument, PenstockError
from penstock.model.pipelines import PipelineReport, PipelineState
from penstock.model.units import parse_duration
from penstock.server.settings.values import Remark
from penstock.spark.errors import DataLoss, JobFailed
from penstock.spark.jobs.failing import clear, is_of_spark
from penstock.spark.jobs.place import Place
from penstock.spark.pipelines.checking import AVAILABLE_NOW, CONTINUOUS
from penstock.spark.pipelines.control import RunFiles, check_fit, misfit
from penstock.spark.pipelines.planning import Planner, Query, Sessions
from penstock.spark.pipelines.progress import Batch, Figures
from penstock.spark.pipelines.server import Reports, limits_of, make_topics
from penstock.spark.pipelines.spec import Declared
from penstock.spark.pipelines.value_readers import Misdeclared

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_EVERY_S = 0.2
_TELL_EVERY_S = 1.0
_BACKOFF_S, _BACKOFF_MAX_S = 1.0, 60.0
_GOOD_WHILE_S = 60.0
_GLANCE_S = 0.02
_NEW = "Initializing"
_BEGIN_MAX_S = 60.0
_BUSY = ("Processing new data", "No new data but cleaning up state")

_beginning = threading.BoundedSemaphore(2)
"""How many queries start at a time: Spark starts a Python process for each, and gives up on it after 10 seconds."""


class Watch(Protocol):
    """Hears of everything; called from the threads of the pipelines."""

    def done(self, batch: Batch) -> None:
        """A micro-batch is done."""

    def changed(self, report: PipelineReport, note: str) -> None:
        """A pipeline is in another state; the note says what else there is to know."""


class Supervised:
    """One pipeline, with a thread that starts its queries, watches them, and starts them again."""

    def __init__(self, declared: Declared, name: str, place: Place, sessions: Sessions, watch: Watch) -> None:
        self.name = name
        self.files = RunFiles(declared.directory(name))
        self.stopping = threading.Event()
        self.state = PipelineState.STARTING
        self.grace_s = 30.0
        self._declared = declared
        self._pipeline = declared.pipelines[name]
        self._place = place
        self._sessions = sessions
        self._reports: Reports | None = None
        self._watch = watch
        self._prepared: list[Query] = []
        self._figures: dict[str, Figures] = {}
        self._restarts = 0
        self._error: str | None = None
        self._started_us = time.time_ns() // 1000
        self._told_s = 0.0
        self.thread = threading.Thread(target=self._run, name=f"penstock-{name}", daemon=True)

    def begin(self, reports: Reports) -> None:
        """Start the thread."""
        self._reports = reports
        self.thread.start()

    @property
    def report(self) -> PipelineReport:
        """The pipeline as it is now."""
        return PipelineReport(
            name=self.name,
            state=self.state,
            queries=tuple(figures.report for figures in self._figures.values()),
            restarts=self._restarts,
            error=self._error,
            file=self._declared.path.name,
            host=platform.node(),
            pid=os.getpid(),
            started_us=self._started_us,
            time_us=time.time_ns() // 1000,
        )

    def _set(self, state: PipelineState, note: str = "") -> None:
        self.state = state
        self._tell()
        self._watch.changed(self.report, note)

    def _tell(self) -> None:
        report = self.report
        self._told_s = time.monotonic()
        with contextlib.suppress(OSError):  # a full disk fails what is worth it
            self.files.tell(report)
        if self._reports is not None:
            self._reports.put(report)

    def _run(self) -> None:
        try:
            self._keep_running()
        except BaseException as error:  # noqa: BLE001 - nobody else would hear of it
            self._error = f"{type(error).__name__}: {error}"
            self._set(PipelineState.FAILED)
        finally:
            self.files.let_go()

    def _keep_running(self) -> None:
        pause_s = _BACKOFF_S
        while True:
            began_s = time.monotonic()
            try:
                self._set(PipelineState.STARTING)
                self._set(self._work())
            except Exception as error:  # noqa: BLE001 - all of them are told
                told = _clear(error)
                self._error = str(told)
                if is_hopeless(told):
                    self._set(PipelineState.FAILED)
                    return
                if time.monotonic() - began_s >= _GOOD_WHILE_S:
                    pause_s = _BACKOFF_S
                self._set(PipelineState.WAITING, f"again in {pause_s:.0f} s")
                if self._wait(pause_s):
                    self._set(PipelineState.STOPPED)
                    return
                pause_s = min(pause_s * 2, _BACKOFF_MAX_S)
                self._restarts += 1
            else:
                return

    def _wait(self, seconds: float) -> bool:
        """Wait so long, or until it is asked to stop."""
        until_s = time.monotonic() + seconds
        while not self._is_stopping() and time.monotonic() < until_s:
            self.stopping.wait(min(_LOOK_EVERY_S, seconds))
        return self.stopping.is_set()

    def _is_stopping(self) -> bool:
        if not self.stopping.is_set() and self.files.is_asked_to_stop:
            self.stopping.set()
        return self.stopping.is_set()

    def _work(self) -> PipelineState:
        """Run the queries until they are done, or until it is asked to stop."""
        queries = self._planned()
        started: dict[str, StreamingQuery] = {}
        try:
            for query in queries:
                check_fit(query)
                self._figures.setdefault(query.name, Figures(query))
                started[query.name] = self._start(query)
            self._set(PipelineState.RUNNING)
            return self._follow(queries, started)
        finally:
            with contextlib.suppress(Exception):  # what went wrong before is told, not what follows from it
                for running in started.values():
                    running.stop()
                self._look(started)

    def prepare(self) -> list[Remark]:
        """Plan the queries; what is wrong with them. The first start takes these, if the server could be asked."""
        try:
            limits = limits_of(self._pipeline, self._place)
        except (PenstockError, OSError):
            limits = None
        planner = Planner(self._declared, self.name, self._place, self._sessions, limits)
        queries = planner.queries()
        self._prepared = queries if limits is not None else []
        return [*planner.problems.values()]

    def _planned(self) -> list[Query]:
        made = make_topics(self._pipeline, self._place)
        if made:
            self._watch.changed(self.report, f"made the topic {', '.join(made)}, which was not there")
        if not self._prepared:
            problems = self.prepare()
            if problems:
                raise Misdeclared(problems)
        queries, self._prepared = self._prepared, []
        if not queries:
            raise ConnectionLost("the server could not be asked for its limits")
        return queries

    def _start(self, query: Query) -> StreamingQuery:
        self._sessions.of(query.name).sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
        writer = query.frame.writeStream.queryName(query.name).format(query.format).outputMode(query.mode)
        writer = writer.options(**query.options).option("checkpointLocation", str(query.checkpoint))
        if query.partition_by:
            writer = writer.partitionBy(*query.partition_by)
        if self._pipeline.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif self._pipeline.trigger != CONTINUOUS:
            every_ms = round(parse_duration(self._pipeline.trigger) * 1000)
            writer = writer.trigger(processingTime=f"{every_ms} milliseconds")
        with _beginning:
            running = writer.start()
            until_s = time.monotonic() + _BEGIN_MAX_S
            while running.isActive and running.status["message"].startswith(_NEW) and time.monotonic() < until_s:
                time.sleep(_GLANCE_S)
        return running

    def _follow(self, queries: list[Query], started: dict[str, StreamingQuery]) -> PipelineState:
        while True:
            ended = [query for query in queries if not started[query.name].isActive]
            self._look(started)
            for query in ended:
                error = started[query.name].exception()
                if error is not None:
                    raise misfit(query, str(error)) or error
            if len(ended) == len(queries):
                return PipelineState.FINISHED
            if ended and self._pipeline.trigger != AVAILABLE_NOW:
                raise JobFailed(f"{ended[0].name} was stopped by somebody else")
            if self._is_stopping():
                self._finish(started)
                return PipelineState.STOPPED
            self.stopping.wait(_LOOK_EVERY_S)

    def _finish(self, started: dict[str, StreamingQuery]) -> None:
        """Stop every query when the batch that it is at is done, or when that takes too long."""
        at = {name: _last_batch(running) for name, running in started.items()}
        until_s = time.monotonic() + self.grace_s
        left = dict(started)
        while left:
            for name, running in [*left.items()]:
                busy = running.isActive and running.status["message"] in _BUSY and _last_batch(running) == at[name]
                if not busy or time.monotonic() >= until_s:
                    running.stop()
                    del left[name]
            time.sleep(_GLANCE_S)

    def _look(self, started: dict[str, StreamingQuery]) -> None:
        """Pass on finished batches; failures of queries are handled elsewhere."""
        news = False
        for name, running in started.items():
            for batch in self._figures[name].news(running):
                self._watch.done(batch)
                news = True
        if news and time.monotonic() - self._told_s >= _TELL_EVERY_S:
            self._tell()


class Supervisor:
    """All pipelines of a run."""

    def __init__(
        self, declared: Declared, place: Place, sessions: Sessions, watch: Watch, names: Sequence[str] = ()
    ) -> None:
        self._place = place
        self._reports: Reports | None = None
        self.pipelines = [Supervised(declared, name, place, sessions, watch) for name in names or declared.pipelines]

    def start(self) -> None:
        """Start them, if no other process runs any of them, and if nothing is wrong with any of them."""
        try:
            self._prepare()
        except BaseException:
            for pipeline in self.pipelines:
                pipeline.files.let_go()
            raise
        self._reports = Reports(self._place)
        for pipeline in self.pipelines:
            pipeline.begin(self._reports)

    def _prepare(self) -> None:
        for pipeline in self.pipelines:
            pipeline.files.take()
            pipeline.files.tell(pipeline.report)
        problems = [problem for pipeline in self.pipelines for problem in pipeline.prepare()]
        if problems:
            raise Misdeclared(problems)

    def stop(self, grace_s: float = 30.0) -> None:
        """Have all of them stop, each when the batches under way are done, or after so long."""
        for pipeline in self.pipelines:
            pipeline.grace_s = grace_s
            pipeline.stopping.set()

    def wait(self) -> list[PipelineReport]:
        """Wait until all have ended; how they are."""
        for pipeline in self.pipelines:
            while pipeline.thread.is_alive():
                pipeline.thread.join(0.2)  # signals are heard between two
        if self._reports is not None:
            self._reports.close()
        return [pipeline.report for pipeline in self.pipelines]


def is_hopeless(error: Exception) -> bool:
    """Whether it would fail in the same way however often it is started."""
    if type(error).__name__ == "Py4JNetworkError" or isinstance(error, ConnectionRefusedError):
        return True  # Spark itself is gone
    return isinstance(error, InvalidArgument | Forbidden | DataLoss | TypeError | AttributeError)


def _clear(error: Exception) -> Exception:
    if isinstance(error, PenstockError) or not is_of_spark(error):
        return error
    told = clear(error)
    if isinstance(told, InvalidArgument) and not isinstance(error, AnalysisException | ParseException):
        return JobFailed(str(told))  # of a row, and not of the query: another start may have other limits
    return told


def _last_batch(running: StreamingQuery) -> int:
    last = running.lastProgress
    return -1 if last is None else int(last.batchId)
