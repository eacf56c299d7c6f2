"""Pipelines: what they told of themselves last, and telling it."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from litestar import Router, get, put
from litestar.exceptions import HTTPException
from litestar.params import JSONBody, Parameter, PathParameter
from msgspec import Meta

from penstock.model.pipelines import Count, PipelineReport, Quantity, QueryReport
from penstock.model.units import parse_time_us, to_datetime
from penstock.server.http.bodies import Moment
from penstock.server.http.caller import Caller, permits
from penstock.server.http.documenting import body_of, errors
from penstock.server.pipeline_history import PipelinePoint

_EXAMPLE = {
    "state": "running",
    "started_at": "2026-12-24T18:00:00Z",
    "queries": [
        {
            "name": "hourly.totals",
            "reads": ["clicks"],
            "batches": 42,
            "rows": 1_250_000,
            "rows_per_second": 31_000,
            "batch_seconds": 0.8,
            "lag": 120,
            "last_batch_at": "2026-12-24T18:05:41Z",
        }
    ],
}
Name = Annotated[str, PathParameter(description="The name of a pipeline.")]
Topics = Annotated[list[Annotated[str, Meta(min_length=1, max_length=204)]], Meta(max_length=1000)]
Text = Annotated[str, Meta(max_length=1000)]


class NewQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A query of a pipeline, as the pipeline tells of it."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    reads: Topics = []
    """The topics that it reads."""
    writes: Topics = []
    """The topics that it writes to."""
    batches: Count = 0
    """Micro-batches since the pipeline was started."""
    rows: Count = 0
    """Rows since the pipeline was started."""
    rows_per_second: Quantity = 0.0
    """Of the last batch."""
    batch_seconds: Quantity = 0.0
    """How long the last batch took."""
    lag: Count | None = None
    """Messages that are there and were not read yet; null where that is not known."""
    state_rows: Count = 0
    """Rows that it keeps, for aggregates and joins."""
    last_batch_at: Moment | None = None
    """When the last batch was done."""

    def report(self) -> dict[str, Any]:
        """As the server takes it."""
        fields = msgspec.structs.asdict(self)
        time_us = _time_us(fields.pop("last_batch_at"))
        return {**fields, "time_us": time_us}


class NewReport(msgspec.Struct, forbid_unknown_fields=True):
    """What a pipeline tells of itself: after each batch, and at least every ten seconds."""

    state: Literal["starting", "running", "waiting", "stopped", "finished", "failed"]
    """`waiting`: it failed, and is started again soon; `failed`: it is not."""
    queries: Annotated[list[NewQuery], Meta(max_length=100)] = []
    restarts: Count = 0
    """How often it failed and was started again."""
    error: str | None = None
    """Why it failed last."""
    file: Text = ""
    """The name of the file that declares it."""
    host: Text = ""
    """The machine that it runs on."""
    pid: Count = 0
    """The number of its process."""
    started_at: Moment | None = None


class QueryView(msgspec.Struct):
    """A query of a pipeline: the way to one of its sinks."""

    name: str
    reads: list[str]
    """The topics that it reads."""
    writes: list[str]
    """The topics that it writes to."""
    batches: int
    """Micro-batches since the pipeline was started."""
    rows: int
    """Rows since the pipeline was started."""
    rows_per_second: float
    """Of the last batch."""
    batch_seconds: float
    """How long the last batch took."""
    lag: int | None
    """Messages that are there and were not read yet; null where that is not known."""
    state_rows: int
    """Rows that it keeps, for aggregates and joins."""
    last_batch_at: datetime | None
    """When the last batch was done; null before the first."""


class PointView(msgspec.Struct):
    """A pipeline at one of its reports; the numbers are by query."""

    time: float
    """Seconds since 1970, by the clock of the server."""
    rate: dict[str, float | None]
    """Rows a second over the last ten seconds, or since the report before; null where that is not known."""
    lag: dict[str, int | None]

    @classmethod
    def of(cls, point: PipelinePoint) -> PointView:
        rates = {name: _known(rate) for name, rate in zip(point.names, point.rates, strict=True)}
        lags = {name: _known(lag) for name, lag in zip(point.names, point.lags, strict=True)}
        return cls(point.time_s, rates, {name: None if lag is None else int(lag) for name, lag in lags.items()})


class PipelineView(msgspec.Struct):
    """A pipeline, as it told of itself last."""

    name: str
    state: Literal["starting", "running", "waiting", "stopped", "finished", "failed", "silent"]
    """`waiting`: it failed, and is started again soon. `silent`: it was at work, and has not reported for a minute."""
    queries: list[QueryView]
    restarts: int
    """How often it failed and was started again."""
    error: str | None
    """Why it failed last; null if it never did."""
    file: str
    """The name of the file that declares it."""
    host: str
    """The machine that it runs on."""
    pid: int
    """The number of its process."""
    started_at: datetime | None
    reported_at: datetime
    """When it told this, by the clock of the server."""
    history: list[PointView] = []
    """Its last five minutes, if they were asked for, oldest first."""

    @classmethod
    def of(cls, report: PipelineReport, history: list[PipelinePoint] | None = None) -> PipelineView:
        fields = msgspec.structs.asdict(report)
        started_us, told_us = fields.pop("started_us"), fields.pop("time_us")
        shown = {**fields, "state": report.state.value, "queries": list(map(_query_view, report.queries))}
        points = list(map(PointView.of, history or ()))
        return cls(**shown, started_at=_moment(started_us), reported_at=to_datetime(told_us), history=points)


class PipelineList(msgspec.Struct):
    """All pipelines that were heard of within a day, by name."""

    pipelines: list[PipelineView]


@get("/pipelines", responses=errors())
async def list_pipelines(
    caller: Caller,
    history_since: Annotated[
        float | None,
        Parameter(ge=0, le=1e11, description="With `history` after this time, in seconds since 1970; 0: all of it."),
    ] = None,
) -> PipelineList:
    """List what every pipeline has told of itself last."""
    known = caller.services.pipelines
    return PipelineList(
        [
            PipelineView.of(report, None if history_since is None else known.history(report.name, history_since))
            for report in await caller.call("pipelines")
        ]
    )


@get("/pipelines/{pipeline:str}", responses=errors())
async def show_pipeline(caller: Caller, pipeline: Name) -> PipelineView:
    """Show what one pipeline has told of itself last."""
    for report in await caller.call("pipelines"):
        if report.name == pipeline:
            return PipelineView.of(report)
    raise HTTPException(status_code=404)


@put(
    "/pipelines/{pipeline:str}",
    status_code=204,
    operation_class=body_of(NewReport, _EXAMPLE),
    responses=errors(),
    guards=permits("report_pipeline"),
)
async def report_pipeline(caller: Caller, pipeline: Name, data: JSONBody[NewReport]) -> None:
    """Tell what a pipeline is doing.

    The newest report is kept in memory, for a day. Send one after each batch, when the state changes, and at least
    every ten seconds: a pipeline at work that says nothing for a minute is shown as `silent`. With a token that is for
    some topics, its name begins with that of the token.
    """
    fields = msgspec.structs.asdict(data)
    started_us = _time_us(fields.pop("started_at"))
    queries = [query.report() for query in data.queries]
    report = {**fields, "name": pipeline, "started_us": started_us, "queries": queries}
    await caller.call("report_pipeline", report=report)


def _query_view(query: QueryReport) -> QueryView:
    fields = msgspec.structs.asdict(query)
    last_us = fields.pop("time_us")
    return QueryView(
        **{**fields, "reads": list(query.reads), "writes": list(query.writes)}, last_batch_at=_moment(last_us)
    )


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


def _moment(time_us: int) -> datetime | None:
    return to_datetime(time_us) if time_us else None


def _time_us(given: str | float | None) -> int:
    return 0 if given is None else parse_time_us(given)


ROUTES = Router("/v1", route_handlers=[list_pipelines, show_pipeline, report_pipeline], tags=["pipelines"])
