"""From what is asked for to what each task reads: positions, spans, slices."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping

from penstock.model.errors import InvalidArgument, TopicNotFound
from penstock.model.layout import LogLayout
from penstock.spark.errors import DataLoss
from penstock.spark.filters import Wanted
from penstock.spark.options import EARLIEST, LATEST, Offsets, Position, ReadOptions
from penstock.spark.origins import Origin, chosen_topics
from penstock.spark.slices import Slice, Span
from penstock.spark.spreading import bundled

_SLICE_ROWS = 1_000_000
_SLICE_BYTES = 256 << 20
_SMALL_ROWS = 100_000
_MESSAGE_BYTES = 1000  # while nothing is known of them
_SLICES = 8
"""A read of many rows is cut into at least so many."""
_SLICES_MAX = 10_000
"""A read is not cut into many more than so many, unless it is asked for."""


class Plan:
    """The logs of a read, as they are at one instant."""

    def __init__(self, origin: Origin, options: ReadOptions, *, segments: bool = True) -> None:
        self._origin, self.options = origin, options
        self.logs: dict[str, dict[int, LogLayout]] = {}
        for topic in chosen_topics(origin, options):
            try:
                layout = origin.layout(topic, segments)
            except TopicNotFound:
                if options.pattern is None:
                    raise
                continue  # it was there when the names were asked for
            logs = layout.messages if options.table == "messages" else layout.events
            numbers = options.assigned.get(topic, range(len(logs)))
            missing = [number for number in numbers if number >= len(logs)]
            if missing:
                raise InvalidArgument(f"assign: {topic} has no partition {missing[0]}: it has 0 to {len(logs) - 1}")
            self.logs[topic] = {number: logs[number] for number in numbers}

    def first(self, log: LogLayout) -> int:
        """The lowest place that this read can see."""
        lowest = [segment.base for segment in log.segments] if self.options.include_deleted else []
        return min([log.first, *lowest])

    def ends(self) -> Offsets:
        """Where the logs end."""
        return {topic: {number: log.end for number, log in logs.items()} for topic, logs in self.logs.items()}

    def resolve(self, position: Position, name: str) -> Offsets:
        """The offsets that a position stands for."""
        for topic, places in position.offsets.items():
            unknown = set(places) - set(self.logs.get(topic, {}))
            if unknown:
                raise InvalidArgument(f"{name}: {topic}/{min(unknown)} is not among the partitions that are read")
        return {
            topic: {number: self._place(position, name, topic, log) for number, log in logs.items()}
            for topic, logs in self.logs.items()
        }

    def _place(self, position: Position, name: str, topic: str, log: LogLayout) -> int:
        if position.time_us is not None:
            found = self._origin.offset_at(topic, log.partition, position.time_us, self.options.include_deleted)
            return min(found, log.end)  # what came after the plan was made is not in it
        asked = position.of(topic, log.partition)
        if asked == EARLIEST:
            return self.first(log)
        if asked == LATEST:
            return log.end
        if asked > log.end:
            raise InvalidArgument(f"{name}: {topic}/{log.partition} ends at {log.end}, before offset {asked}")
        return asked

    def spans(self, start: Offsets, end: Offsets, wanted: Wanted) -> Iterator[Span]:
        """The parts of the logs between two positions, each with where it lies; what is gone is told, or left out."""
        options, lost = self.options, []
        for topic, ends in end.items():
            for number, stop in ends.items():
                log = self.logs[topic][number]
                first, begin = self.first(log), start.get(topic, {}).get(number)
                begin = first if begin is None else begin
                if begin < min(first, stop):
                    lost.append(f"{topic}/{number} from {begin} to {min(first, stop) - 1}")
                if wanted.reads(topic, number):
                    span = self._span(topic, log, max(begin, first, wanted.start), min(stop, wanted.end))
                    if span.count > 0:
                        yield span
        if lost and options.fail_on_data_loss:
            raise DataLoss(
                f"messages that are to be read are gone (retention, or a deleted topic): {', '.join(lost)}. "
                "Set failOnDataLoss to false to go on with what is left"
                + ("" if options.include_deleted else ", or includeDeleted to true if the topic has an archive")
            )

    def _span(self, topic: str, log: LogLayout, start: int, end: int) -> Span:
        segments = tuple(
            segment
            for segment in log.segments
            if segment.end > start and segment.base < end and (self.options.include_deleted or not segment.archived)
        )
        found = None
        if end > log.settled_end:
            found = self._origin.blocks(topic, self.options.table, log.partition, max(start, log.settled_end), end)
        if found is None:
            return Span(topic, log.partition, start, end, segments)
        return Span(topic, log.partition, start, end, segments, found.blocks, found.directory, found.objects)

    def rows_in(self, size_bytes: int) -> int:
        """How many messages take about so many bytes, by what the segments of these topics hold; at least one."""
        segments = [segment for logs in self.logs.values() for log in logs.values() for segment in log.segments]
        rows, size = sum(segment.rows for segment in segments), sum(segment.size_bytes for segment in segments)
        return max(1, size_bytes * rows // size if size else size_bytes // _MESSAGE_BYTES)


def slices(spans: Iterable[Span], min_slices: int) -> list[Slice]:
    """Spans cut and put together, so that tasks are neither huge nor very many."""
    all_spans = list(spans)
    total = sum(span.count for span in all_spans)
    least = math.ceil(total / _SLICES_MAX)
    size = max(_SMALL_ROWS, min(_SLICE_ROWS, math.ceil(total / _SLICES)), least)
    size = max(1, min(size, total // min_slices))
    parts = [part for span in all_spans for part in _cut(span, min(size, max(_rows_of(span), least)))]
    return [Slice(tuple(some)) for some in bundled(parts, lambda part: part.count, size)]


def _rows_of(span: Span) -> int:
    """How many rows of a span one slice may take: large messages go by their size."""
    rows = sum(segment.rows for segment in span.segments) + sum(block.count for block in span.blocks or ())
    size = sum(segment.size_bytes for segment in span.segments) + sum(block.length for block in span.blocks or ())
    return max(1, _SLICE_BYTES // max(1, size // max(1, rows)))


def _cut(span: Span, rows: int) -> Iterator[Span]:
    parts = max(1, math.ceil(span.count / rows))
    for number in range(parts):
        yield span.part(*(span.start + span.count * place // parts for place in (number, number + 1)))


def to_json(offsets: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    """Offsets as Spark keeps them in its checkpoint."""
    return {topic: {str(number): place for number, place in places.items()} for topic, places in offsets.items()}


def between(start: Offsets, end: Offsets) -> dict[str, str]:
    """The options of a read from one position to another."""
    return {"startingOffsets": json.dumps(to_json(start)), "endingOffsets": json.dumps(to_json(end))}


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets as they came out of a checkpoint."""
    return {topic: {int(number): place for number, place in places.items()} for topic, places in offsets.items()}
