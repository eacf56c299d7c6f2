"""What a report looks at: the logs of topics, the groups that their events speak of, and chunks for the tasks."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.filters import Wanted
from penstock.spark.jobs.auditing.events import Era, EventLog, rule
from penstock.spark.jobs.auditing.problems import Key
from penstock.spark.jobs.place import Place
from penstock.spark.jobs.tracing.chunks import Chunk, bounds_of, read_events
from penstock.spark.options import EARLIEST, LATEST, Offsets, Position, ReadOptions, read_options
from penstock.spark.origins import Origin
from penstock.spark.planning import Plan
from penstock.spark.slices import Span
from penstock.spark.spreading import filled, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHUNK_ROWS = 1_000_000
_SURVEYED_BYTES = 4 << 20
_RULING = ["event", "kind", "offset", "count", "group", "detail"]
_KINDS = pa.array(["created", "sought", "forgotten"])


@dataclass
class Logs:
    """The logs of all partitions that are looked at, as they are at one instant."""

    messages: dict[Key, Span]
    events: dict[Key, Span]
    message_options: ReadOptions
    event_options: ReadOptions
    latest_us: int
    """The time of the newest thing that the segments of messages tell."""


@dataclass
class Surveyed:
    """What is known of the events of a partition, or of some of them."""

    count: int = 0
    latest_us: int = 0
    ruling: list[tuple[int, str, int, int, str | None, str | None]] = field(default_factory=list)
    """The events that say which groups there are."""
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By file: the offsets that its events speak of."""

    def add(self, others: Surveyed) -> None:
        """Take in what is known of others."""
        self.count += others.count
        self.latest_us = max(self.latest_us, others.latest_us)
        self.ruling += others.ruling
        self.bounds |= others.bounds

    def eras(self) -> tuple[Era, ...]:
        """The groups that there are now."""
        log = EventLog()
        rule(log, sorted(self.ruling))
        return tuple(log.eras)


def logs_of(place: Place, origin: Origin, topics: Sequence[str], from_us: int | None, to_us: int | None) -> Logs:
    """The logs of topics; of the messages, what was published from a time to before another."""
    found: dict[str, dict[Key, Span]] = {}
    read: dict[str, ReadOptions] = {}
    latest_us = 0
    for table in ("messages", "events"):
        given = {**place.options, "subscribe": ",".join(topics), "table": table}
        options = read_options({**given, "includeDeleted": "true", "failOnDataLoss": "false"}, streaming=False)
        plan = Plan(origin, options)
        start, end = plan.resolve(Position(EARLIEST), "start"), plan.resolve(Position(LATEST), "end")
        if table == "messages":
            segments = [one for logs in plan.logs.values() for log in logs.values() for one in log.segments]
            latest_us = max((one.last_us for one in segments), default=0)
            start = _at(plan, start, from_us)
            end = _at(plan, end, to_us)
        spans = plan.spans(start, end, Wanted())
        found[table] = {(span.topic, span.partition): span for span in spans}
        read[table] = options
    return Logs(found["messages"], found["events"], read["messages"], read["events"], latest_us)


def _at(plan: Plan, places: Offsets, time_us: int | None) -> Offsets:
    return places if time_us is None else plan.resolve(Position(EARLIEST, time_us=time_us), "time")


def survey(spark: SparkSession, logs: Logs) -> dict[Key, Surveyed]:
    """Look at all events once: which groups there are, and what each file speaks of."""
    parts = [(key, part) for key, span in logs.events.items() for part in _bundles(span)]
    found = {key: Surveyed() for key in logs.events}
    looked = spread(spark, [part for _, part in parts], partial(_look_over, logs.event_options))
    for (key, _), one in zip(parts, looked, strict=True):
        found[key].add(one)
    return found


def _bundles(span: Span) -> Iterator[Span]:
    """Some segments each; what is in no segment comes with the last."""
    bundles = filled(span.segments, lambda segment: segment.size_bytes, _SURVEYED_BYTES) or [[]]
    at = span.start
    for segments in bundles:
        end = span.end if segments is bundles[-1] else segments[-1].end
        yield replace(span, start=at, end=end, segments=tuple(segments))
        at = end


def _look_over(options: ReadOptions, span: Span) -> Surveyed:
    found = Surveyed()
    for table in read_events(options, span, None, [*_RULING, "time"]):
        found.count += len(table)
        found.latest_us = max(found.latest_us, pc.max(table.column("time").cast(pa.int64())).as_py() or 0)
        chosen = table.filter(pc.is_in(table.column("kind"), _KINDS)).select(_RULING)
        found.ruling += [tuple(row.values()) for row in chosen.to_pylist()]
    for segment in span.segments:
        with contextlib.suppress(OSError):  # it is read through the server
            found.bounds[segment.path] = bounds_of(segment)
    return found


def chunks_of(logs: Logs, surveyed: dict[Key, Surveyed]) -> list[Chunk]:
    """What each task looks at."""
    found = []
    for key, span in logs.messages.items():
        known, events = surveyed.get(key, Surveyed()), logs.events.get(key)
        eras = known.eras()
        for part in _cut(span):
            spans = () if events is None else tuple(_event_spans(events, known, part))
            found.append(Chunk(*key, part, logs.message_options, spans, logs.event_options, eras))
    return found


def _event_spans(whole: Span, known: Surveyed, part: Span) -> Iterator[Span]:
    """The events of the segments that may speak of a part of the messages, and all events that are in no segment."""
    at = whole.start
    for segment in whole.segments:
        if at < segment.base:
            yield replace(whole, start=at, end=segment.base, segments=())
        bounds = known.bounds.get(segment.path)
        if bounds is None or (bounds[0] < part.end and bounds[1] >= part.start):
            yield replace(whole, start=segment.base, end=segment.end, segments=(segment,), blocks=())
        at = segment.end
    if at < whole.end:
        yield replace(whole, start=at, segments=())


def _cut(span: Span) -> Iterator[Span]:
    """A span in parts of about the same size, at the borders of segments where these are near."""
    parts = max(1, math.ceil(span.count / _CHUNK_ROWS))
    borders = [span.start]
    bases = [segment.base for segment in span.segments]
    for number in range(1, parts):
        ideal = span.start + span.count * number // parts
        near = min(bases, key=lambda base: abs(base - ideal), default=ideal)
        borders.append(near if abs(near - ideal) < _CHUNK_ROWS // 4 else ideal)
    borders = [*sorted({border for border in borders if border >= span.start}), span.end]
    for start, end in pairwise(borders):
        if start < end:
            yield span.part(start, end)
