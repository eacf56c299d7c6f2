"""How pipelines went in the last five minutes, from their reports, so that a chart has its past when it is opened.

In memory only, and bounded: of a pipeline 150 points at the most, and 100,000 queries in the points of all pipelines
together, which take 20 MB at the most. Beyond that the longest history loses its oldest point.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.model.pipelines import PipelineReport

POINTS_MAX = 150
QUERY_POINTS_MAX = 100_000
_APART_S = 2.0  # points are not closer than that, but for the newest
_KEPT_S = 300.0
_RATE_S = 10.0  # what a rate is taken over, if there is a point in it
_UNKNOWN = math.nan


@dataclass(frozen=True, slots=True)
class PipelinePoint:
    """A pipeline at one report."""

    time_s: float
    """Seconds since 1970."""
    names: tuple[str, ...]
    """Of its queries; the numbers stand in their order."""
    numbers: array[float]
    """The rows of each query, then their rates, then their lags; NaN where one is not known."""

    @property
    def rows(self) -> array[float]:
        """Rows since the pipeline was started."""
        return self.numbers[: len(self.names)]

    @property
    def rates(self) -> array[float]:
        """Rows a second over the last ten seconds, or since the last report; unknown of a query that began anew."""
        return self.numbers[len(self.names) : -len(self.names) or None]

    @property
    def lags(self) -> array[float]:
        """Messages that are there and were not read yet."""
        return self.numbers[2 * len(self.names) :]


class PipelineHistory:
    """The points of all pipelines, by name; whoever uses it has a lock."""

    def __init__(self) -> None:
        self._points: dict[str, deque[PipelinePoint]] = {}
        self._query_points = 0

    def take(self, report: PipelineReport) -> None:
        """Add the point of a report, or put it in the place of the newest where they are close together."""
        points = self._points.setdefault(report.name, deque())
        if len(points) > 1 and points[-1].time_s - points[-2].time_s < _APART_S:
            self._query_points -= len(points.pop().names)
        point = _point_of(report, points)
        points.append(point)
        self._query_points += len(point.names)
        while len(points) > POINTS_MAX or point.time_s - points[0].time_s > _KEPT_S:
            self._shorten(points)
        while self._query_points > QUERY_POINTS_MAX:
            self._shorten(max(self._points.values(), key=len))

    def since(self, name: str, time_s: float) -> list[PipelinePoint]:
        """The points of a pipeline that are newer than a time, oldest first."""
        return [point for point in self._points.get(name, ()) if point.time_s > time_s]

    def keep(self, names: Iterable[str]) -> None:
        """Forget all other pipelines."""
        for name in self._points.keys() - set(names):
            for point in self._points.pop(name):
                self._query_points -= len(point.names)

    def _shorten(self, points: deque[PipelinePoint]) -> None:
        self._query_points -= len(points.popleft().names)


def _point_of(report: PipelineReport, before: Iterable[PipelinePoint]) -> PipelinePoint:
    now_s = report.time_us / 1_000_000
    names = tuple(query.name for query in report.queries)
    since: PipelinePoint | None = None
    for since in before:
        if now_s - since.time_s <= _RATE_S:
            break
    known: dict[str, float] = {}
    elapsed_s = 0.0
    if since is not None:
        known, elapsed_s = dict(zip(since.names, since.rows, strict=True)), now_s - since.time_s
        if since.names == names:
            names = since.names  # one tuple for all points
    grown = [query.rows - known.get(query.name, _UNKNOWN) for query in report.queries]
    rates = [count / elapsed_s if count >= 0 and elapsed_s > 0 else _UNKNOWN for count in grown]
    lags = [_UNKNOWN if query.lag is None else query.lag for query in report.queries]
    return PipelinePoint(now_s, names, array("d", [*(query.rows for query in report.queries), *rates, *lags]))
