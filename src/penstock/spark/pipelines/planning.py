"""From a declaration to queries that can be started, with all that Spark finds wrong with it, at once."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from penstock.model.errors import InvalidArgument, PenstockError
from penstock.model.names import DEAD_LETTERS
from penstock.server.settings.table import suggestion
from penstock.server.settings.values import Remark
from penstock.spark.jobs.failing import clear, is_of_spark
from penstock.spark.jobs.place import Place
from penstock.spark.pipelines.letters import group_of, letter, with_parts
from penstock.spark.pipelines.loading import function_of
from penstock.spark.pipelines.sinks import OBSERVED, UNKNOWN, Broken, Limits, chosen, messages, on_console, partitioned
from penstock.spark.pipelines.sources import cause_of, columns_of, read, unfit
from penstock.spark.pipelines.sources import messages as messages_of
from penstock.spark.pipelines.spec import Declared, Pipeline, Sink, Source, Step
from penstock.spark.pipelines.value_readers import remark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ALIAS = re.compile(r"subqueryalias (?:\S+\.)?(\w+)$", re.MULTILINE)
_NOT_FOUND = re.compile(r"The table or view `(\w+)`")


@dataclass(frozen=True)
class Query:
    """A streaming query, ready to be started."""

    name: str
    frame: DataFrame
    format: str
    checkpoint: Path
    options: Mapping[str, str]
    mode: str = "append"
    partition_by: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    """What it reads as streams, in the order of its checkpoint: `topic orders`."""
    topics: tuple[str, ...] = ()
    """The topics that it reads."""
    target: str = ""
    """The topic or the directory that it writes to."""


class Sessions:
    """A session for each query: views have the same names in several, and settings are a query's own."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self.spark = spark
        self._settings = settings
        self._made: dict[str, SparkSession] = {}

    def of(self, query: str) -> SparkSession:
        """The session of a query, the same one whenever it is started again; it is active in this thread from now on.

        Spark looks for data sources in the session that is active.
        """
        if query not in self._made:
            session = self.spark.newSession()
            for name, value in self._settings.items():
                if session.conf.isModifiable(name):
                    session.conf.set(name, value)
            self._made[query] = session
        found = self._made[query]
        assert found._jvm is not None  # noqa: SLF001
        found._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(found._jsparkSession)  # noqa: SLF001
        return found


class Planner:
    """Plans the queries of one pipeline; what is wrong with them is in `problems`, each with its place."""

    def __init__(
        self,
        declared: Declared,
        name: str,
        place: Place,
        sessions: Sessions,
        limits: Mapping[str, Limits] | None = None,
    ) -> None:
        self.problems: dict[str, Remark] = {}
        self._declared = declared
        self._name = name
        self._pipeline: Pipeline = declared.pipelines[name]
        self._unread = declared.unread.get(name, frozenset())
        self._place = place
        self._sessions = sessions
        self._limits = limits

    def queries(self) -> list[Query]:
        """Every query that could be planned; what no sink needs is looked at too."""
        used = set[str]().union(*(self._lineage(sink.from_) for sink in self._pipeline.sinks.values()))
        others = set[str]().union(*(self._lineage(name) for name in self._names() - used))
        if others:
            self._views(self._sessions.of(self._name), self._name, others)
        found = [self._sink(name, sink) for name, sink in self._pipeline.sinks.items()]
        for name, source in self._pipeline.sources.items():
            if source.value == "json" and source.bad_rows in (None, "dead-letter"):
                with self._at("sources", name):
                    found.append(self._bad_rows(name, source))
        return [query for query in found if query is not None]

    @contextlib.contextmanager
    def _at(self, *parts: str) -> Iterator[None]:
        """Note what goes wrong meanwhile as of a part of the pipeline, and go on behind it; the first thing counts."""
        place = ".".join(("pipelines", self._name, *parts))
        try:
            yield
        except Broken:
            return  # it was told
        except Exception as error:  # noqa: BLE001 - all of them are told
            found = remark(self._declared.path, self._declared.lines, place, self._explained(error))
            self.problems.setdefault(place, found)

    def _explained(self, error: Exception) -> str:
        if isinstance(error, PenstockError):
            return str(error)
        if not is_of_spark(error):
            return f"{type(error).__name__}: {error}"
        told = " ".join(str(clear(error)).removeprefix("the SQL is wrong: ").split())
        told = re.sub(r" SQLSTATE: \w+|\.?; line \d+ pos \d+.*", "", told)
        if missing := _NOT_FOUND.search(told):
            near = suggestion(missing[1], self._names()) or f"; there are {', '.join(sorted(self._names()))}"
            return f"there is no source and no step {missing[1]}{near}"
        return told

    # Views.

    def _views(self, session: SparkSession, group: str, wanted: set[str]) -> set[str]:
        """Make those sources and steps views; which are there."""
        there: set[str] = set()
        noted: set[str] = set()
        for name, source in self._pipeline.sources.items():
            if name not in wanted:
                continue
            path = source.table or source.files
            own = f"{group}.{name}" if source.topic in noted else group  # two positions need two groups
            noted.add(source.topic or "")
            with self._at("sources", name):
                near = None if path is None else self._declared.near(path)
                read(session, source, self._place, own, near).createOrReplaceTempView(name)
                there.add(name)
        for step in [step for step in self._pipeline.steps if step.name in wanted]:
            with self._at("steps", step.name, "sql" if step.sql is not None else "python"):
                self._step(session, step, there).createOrReplaceTempView(step.name)
                there.add(step.name)
        return there

    def _step(self, session: SparkSession, step: Step, there: set[str]) -> DataFrame:
        if step.sql is not None:
            parser = session._jsparkSession.sessionState().sqlParser()  # noqa: SLF001
            parser.parseQuery(step.sql)  # anything but a query would be done at once
            try:
                return session.sql(step.sql)
            except PySparkException as error:
                missing = _NOT_FOUND.search(str(error))
                if missing is None or missing[1] not in (self._names() | self._unread) - there:
                    raise
                names = [other.name for other in self._pipeline.steps]
                if missing[1] in names[names.index(step.name) :]:
                    raise InvalidArgument(f"{missing[1]} does not come before {step.name}") from error
                raise Broken from error  # which was told
        inputs = [step.input] if isinstance(step.input, str) else list(step.input or ())
        if set(inputs) - there:
            raise Broken
        function = function_of(step.python, self._declared.path.parent)
        made = function(*[session.table(name) for name in inputs])
        if not hasattr(made, "createOrReplaceTempView"):
            raise InvalidArgument(f"the function returned {type(made).__name__}, not a DataFrame")
        return made

    def _lineage(self, view: str) -> set[str]:
        """The views that a view is made of, and itself; words of SQL that look like others do no harm."""
        found, ahead = set[str](), [view]
        steps = {step.name: step for step in self._pipeline.steps}
        while ahead:
            name = ahead.pop()
            if name in found:
                continue
            found.add(name)
            step = steps.get(name)
            if step is not None and step.sql is not None:
                words = set(re.findall(r"\w+", step.sql.lower()))
                ahead += [other for other in self._names() if other.lower() in words]
            elif step is not None:
                ahead += [step.input] if isinstance(step.input, str) else step.input or ()
        return found

    def _names(self) -> set[str]:
        return {*self._pipeline.sources, *(step.name for step in self._pipeline.steps)}

    # Queries.

    def _sink(self, name: str, sink: Sink) -> Query | None:
        query = f"{self._name}.{name}"
        session = self._sessions.of(query)
        there = self._views(session, query, self._lineage(sink.from_))
        if sink.from_ not in there:
            return None
        before = len(self.problems)
        with self._at("sinks", name):
            view = chosen(session.table(sink.from_), sink, lambda part: self._at("sinks", name, part))
            if not view.isStreaming:
                raise InvalidArgument(f"{sink.from_} reads no stream: it needs a topic, events, or `stream: true`")
            made = self._written(name, sink, view)
            if len(self.problems) == before:
                _check_mode(made.frame, sink.mode)
                return made
        return None

    def _written(self, name: str, sink: Sink, view: DataFrame) -> Query:
        """The query of a sink."""
        streams, topics = self._streams(view)
        checkpoint = self._declared.directory(self._name) / name
        base = Query(f"{self._name}.{name}", view, "console", checkpoint, {"truncate": "false"}, sink.mode)
        base = replace(base, reads=streams, topics=topics)
        if sink.topic is not None:
            limits = self._limits_of(sink.topic)
            group = group_of(self._name, name)
            frame = messages(view, sink, group, limits, lambda part: self._at("sinks", name, part))
            return replace(base, frame=frame, format="penstock", options=self._place.options, target=sink.topic)
        if sink.table is not None:
            path = self._declared.near(sink.table)
            frame, columns = partitioned(view, sink)
            options = {"path": path}
            return replace(
                base, frame=frame, format="parquet", options=options, partition_by=tuple(columns), target=path
            )
        return replace(base, frame=on_console(view))

    def _limits_of(self, topic: str) -> Limits:
        return UNKNOWN if self._limits is None else self._limits.get(topic, Limits())

    def _streams(self, view: DataFrame) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What a view reads as streams, and which of them are topics."""
        plan = view._jdf.queryExecution().analyzed().toString()  # noqa: SLF001
        sources = {name.lower(): source for name, source in self._pipeline.sources.items()}
        streams, topics = [], []
        for source in [sources[name] for name in dict.fromkeys(_ALIAS.findall(plan.lower())) if name in sources]:
            if source.topic is not None or source.events is not None:
                topics.append(str(source.topic or source.events))
                streams.append(f"topic {source.topic}" if source.topic is not None else f"events {source.events}")
            elif source.stream:
                streams.append(f"files {self._declared.near(str(source.table or source.files))}")
        return tuple(streams), tuple(dict.fromkeys(topics))

    def _bad_rows(self, name: str, source: Source) -> Query:
        """The query that writes the dead letters of a source."""
        query = f"{self._name}.{name}.bad"
        session = self._sessions.of(query)
        fields = columns_of(str(source.schema))
        raw = messages_of(session, source, self._place, query)
        rows = unfit(raw, str(source.topic), str(source.schema))
        limits = self._limits_of(str(source.topic))
        columns = letter(f.col("cause"), group_of(self._name, name), limits.headers_bytes)
        told = with_parts(rows, cause_of(fields).alias("cause"))
        told = told.observe(OBSERVED, f.count(f.lit(1)).alias("refused"))
        return Query(
            name=query,
            frame=told.select(*[column.alias(title) for title, column in columns.items()]),
            format="penstock",
            checkpoint=self._declared.directory(self._name) / f"{name}.bad",
            options=self._place.options,
            reads=(f"topic {source.topic}",),
            topics=(str(source.topic),),
            target=f"{source.topic}{DEAD_LETTERS}",
        )


def _check_mode(frame: DataFrame, mode: str) -> None:
    """Raise what Spark would say when the query is started."""
    jvm = frame.sparkSession._jvm  # noqa: SLF001
    assert jvm is not None
    kinds = jvm.org.apache.spark.sql.streaming.OutputMode
    wanted = {"append": kinds.Append, "update": kinds.Update, "complete": kinds.Complete}[mode]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), wanted)  # noqa: SLF001
