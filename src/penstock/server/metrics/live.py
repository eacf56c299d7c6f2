"""The last five minutes, second by second, for the dashboard: totals of the whole broker, which cost little."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import msgspec

from penstock.model.histograms import Histogram, quantile
from penstock.server.metrics.metrics import Metrics
from penstock.server.metrics.process import resident_bytes
from penstock.shard.metering.meters import ACKED, DEAD, DELIVERED, EXPIRED, FAILED
from penstock.shard.metering.totals import Totals
from penstock.views.figures import leased_and_delayed

_INTERVAL_S = 1.0
_POINTS = 300
_COUNTING_SHARE = 0.001  # of the time that may go into counting leases
_RATES = ("published", "published_bytes", "delivered", "acked", "failed", "dead")
_SUMMED = (*_RATES, "leased", "delayed", "connections", "memory_bytes")
_WORST = tuple(f"{what}_{share}_ms" for what in ("publish", "fsync", "end_to_end") for share in ("p50", "p99"))


class LivePoint(msgspec.Struct, frozen=True):
    """One second of a broker. Rates are per second; latencies are None where nothing happened.

    Of several processes, latencies are those of the slowest.
    """

    time: float
    """Seconds since 1970."""
    published: float = 0.0
    published_bytes: float = 0.0
    delivered: float = 0.0
    acked: float = 0.0
    failed: float = 0.0
    """Said to have failed, or the lease ran out."""
    dead: float = 0.0
    leased: int = 0
    """Of all groups, as delayed; where there are very many of them, these two are up to some seconds old."""
    delayed: int = 0
    """In topics that anybody consumes."""
    connections: int = 0
    publish_p50_ms: float | None = None
    publish_p99_ms: float | None = None
    fsync_p50_ms: float | None = None
    fsync_p99_ms: float | None = None
    end_to_end_p50_ms: float | None = None
    end_to_end_p99_ms: float | None = None
    loop_delay_ms: float = 0.0
    """The longest of this second."""
    memory_bytes: int = 0


def merge_points(points: Sequence[LivePoint]) -> LivePoint:
    """The same second of several processes as one; latencies are those of the slowest."""

    def total(name: str) -> Any:
        return sum(getattr(point, name) for point in points)

    def worst(name: str) -> Any:
        return max((value for point in points if (value := getattr(point, name)) is not None), default=None)

    return LivePoint(
        time=max(point.time for point in points),
        **{name: total(name) for name in _SUMMED},
        **{name: worst(name) for name in _WORST},
        loop_delay_ms=max(point.loop_delay_ms for point in points),
    )


class _Latencies:
    """What a histogram has seen since the last look."""

    def __init__(self, histogram: Histogram) -> None:
        self._before = list(histogram.counts)

    def take_ms(self, histogram: Histogram) -> tuple[float | None, float | None]:
        """The median and the 99th percentile."""
        counts = list(histogram.counts)
        new = [max(0, now - before) for now, before in zip(counts, self._before, strict=True)]
        self._before = counts
        found = [quantile(histogram.bounds, new, share) for share in (0.5, 0.99)]
        p50, p99 = (None if seconds is None else seconds * 1000 for seconds in found)
        return p50, p99


class LiveFigures:
    """Takes a point every second while it is started; on the event loop."""

    def __init__(self, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self._metrics = metrics
        self._shards, self._clock = metrics.shards, metrics.shards.clock
        self._loop = loop
        self._points: deque[LivePoint] = deque(maxlen=_POINTS)
        self._timer: asyncio.TimerHandle | None = None
        self._count_again_s = 0.0
        self._leased = self._delayed = 0
        self._taken_s = 0.0
        self._before: dict[str, int] = {}
        self._latencies: list[_Latencies] = []
        self._begin()

    def start(self) -> None:
        """Begin to take points; what happened before is in none of them."""
        if self._timer is None:
            self._begin()
            self._timer = self._loop.call_at(self._taken_s + _INTERVAL_S, self._tick)

    def stop(self) -> None:
        """Take no more; those that were taken stay."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def latest(self) -> LivePoint:
        """The newest point; one of zeros before the first."""
        return self._points[-1] if self._points else LivePoint(self._clock.wall_us() / 1_000_000)

    def history(self) -> list[LivePoint]:
        """All points, oldest first."""
        return list(self._points)

    def take(self, now_s: float) -> LivePoint:
        """A point of what happened since the last one, at a time of the event loop."""
        meters = Totals.of([shard.meters for shard in self._shards])
        totals, before = _rated(meters), self._before
        elapsed_s = max(now_s - self._taken_s, 1e-6)
        rates = {
            name: max(0, total - before[name]) / elapsed_s for name, total in totals.items()
        }  # a shard may have left
        self._before, self._taken_s = totals, now_s
        self._count(now_s)
        (publish_p50, publish_p99), (fsync_p50, fsync_p99), (whole_p50, whole_p99) = (
            latencies.take_ms(histogram) for latencies, histogram in zip(self._latencies, _timed(meters), strict=True)
        )
        point = LivePoint(
            time=self._clock.wall_us() / 1_000_000,
            **rates,
            leased=self._leased,
            delayed=self._delayed,
            connections=self._metrics.connections,
            publish_p50_ms=publish_p50,
            publish_p99_ms=publish_p99,
            fsync_p50_ms=fsync_p50,
            fsync_p99_ms=fsync_p99,
            end_to_end_p50_ms=whole_p50,
            end_to_end_p99_ms=whole_p99,
            loop_delay_ms=self._metrics.loop_delay.take_longest_s() * 1000,
            memory_bytes=resident_bytes(),
        )
        self._points.append(point)
        return point

    def _begin(self) -> None:
        meters = Totals.of([shard.meters for shard in self._shards])
        self._taken_s = self._loop.time()
        self._before = _rated(meters)
        self._latencies = list(map(_Latencies, _timed(meters)))

    def _tick(self) -> None:
        now_s = self._loop.time()
        self._timer = self._loop.call_at(now_s + _INTERVAL_S, self._tick)
        self.take(now_s)

    def _count(self, now_s: float) -> None:
        """Count what is leased and delayed, the less often the longer it takes."""
        if now_s >= self._count_again_s:
            started_s = perf_counter()
            self._leased, self._delayed = leased_and_delayed(self._shards)
            self._count_again_s = now_s + (perf_counter() - started_s) / _COUNTING_SHARE


def _rated(meters: Totals) -> dict[str, int]:
    """What the rates are made of."""
    happened = meters.totals
    return {
        "published": meters.published,
        "published_bytes": meters.published_bytes,
        "delivered": happened[DELIVERED],
        "acked": happened[ACKED],
        "failed": happened[FAILED] + happened[EXPIRED],
        "dead": happened[DEAD],
    }


def _timed(meters: Totals) -> tuple[Histogram, ...]:
    """What the latencies are made of."""
    return meters.publish_s, meters.fsync_s, meters.end_to_end_s
