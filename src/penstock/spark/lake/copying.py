"""From a topic into a lake: what is missing there, cut into pieces that tasks copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.model.errors import InvalidArgument
from penstock.model.layout import LogLayout, SegmentPlace
from penstock.segments.schema import SCHEMAS, TIMESTAMP
from penstock.segments.window import Window
from penstock.spark.errors import DataLoss, JobFailed
from penstock.spark.filters import Wanted
from penstock.spark.lake.layout import TABLES, LakeFile, Limits
from penstock.spark.lake.log import Gap, LakeState
from penstock.spark.lake.writing import LogPlace, rows_of, write_files
from penstock.spark.options import ReadOptions, read_options
from penstock.spark.origins import Origin, open_segment
from penstock.spark.paths import AnyPath
from penstock.spark.planning import Plan
from penstock.spark.slices import Span, read_span


@dataclass(frozen=True)
class Piece:
    """Consecutive places of one log that become files, whoever copies them, and whatever is copied before or after."""

    log: LogPlace
    span: Span
    tail: LakeFile | None
    """The file of the lake that the first of them belong into."""


@dataclass(frozen=True)
class LogPlan:
    """The part of a log that is not in the lake yet."""

    log: LogPlace
    start: int
    end: int
    tail: LakeFile | None
    gap: Gap | None
    span: Span | None
    live: tuple[SegmentPlace, ...]
    """Its segments that are not archived: what can be moved."""

    @property
    def count(self) -> int:
        """How many places there are to copy."""
        return self.end - self.start

    def pieces(self, limit: Limits) -> Iterator[Piece]:
        """Cut where files end anyway."""
        if self.span is None:
            return
        for start in sorted({self.start, *range(self.start // limit.rows * limit.rows, self.end, limit.rows)}):
            if start >= self.start:
                end = min(self.end, (start // limit.rows + 1) * limit.rows)
                yield Piece(self.log, self.span.part(start, end), self.tail if start == self.start else None)


@dataclass(frozen=True)
class TopicPlan:
    """The part of a topic that is not in the lake yet."""

    topic: str
    partitions: int
    logs: tuple[LogPlan, ...]
    options: dict[str, ReadOptions]
    """How each table is read."""

    @property
    def gaps(self) -> list[Gap]:
        """What was gone before it could be copied."""
        return [log.gap for log in self.logs if log.gap is not None]


def plan_topic(
    source: Mapping[str, Any], origin: Origin, root: AnyPath, state: LakeState, limit: Limits, *, allow_gaps: bool
) -> TopicPlan:
    """Compare a topic with the lake; raises if the lake cannot go on with it."""
    topic, logs, options, known = state.topic, [], {}, state.logs()
    for table in TABLES:
        given = {**source, "subscribe": topic, "table": table, "includedeleted": "true"}
        options[table] = read_options({**given, "failondataloss": str(not allow_gaps).lower()}, streaming=False)
        plan = Plan(origin, options[table])
        for number, log in plan.logs[topic].items():
            where = LogPlace(str(root), topic, table, number)
            logs.append(_plan_log(plan, log, where, known.get((table, number), []), limit))
    gaps = [log.gap for log in logs if log.gap is not None]
    if gaps and not allow_gaps:
        told = ", ".join(f"{gap.table} {topic}/{gap.partition} from {gap.start} to {gap.end - 1}" for gap in gaps)
        raise DataLoss(
            f"these are gone, and the lake does not have them: {told}. Retention removed them, or the topic was "
            "deleted and made again; allow gaps to go on with what is left"
        )
    return TopicPlan(topic, sum(log.log.table == "messages" for log in logs), tuple(logs), options)


def _plan_log(plan: Plan, log: LogLayout, where: LogPlace, files: list[LakeFile], limit: Limits) -> LogPlan:
    start, tail, gap = plan.first(log), None, None
    if files:
        last = files[-1]
        if log.end < last.end:
            raise InvalidArgument(
                f"{where.topic}/{where.partition} ends at {log.end} ({where.table}), and the lake has it up to "
                f"{last.end}: it is the lake of another broker, or the topic was restored from an older copy"
            )
        if start > last.end:
            gap = Gap(where.table, where.partition, last.end, start)
        else:
            _check_same(plan, where, last)
            start, tail = last.end, last if last.is_open(limit) else None
    live = tuple(segment for segment in log.segments if not segment.archived)
    return LogPlan(where, start, log.end, tail, gap, _span(plan, where, start, log.end), live)


def _span(plan: Plan, where: LogPlace, start: int, end: int) -> Span | None:
    begin, stop = ({where.topic: {where.partition: place}} for place in (start, end))
    return next(plan.spans(begin, stop, Wanted()), None)


def _check_same(plan: Plan, where: LogPlace, last: LakeFile) -> None:
    """Raise if the last row in the lake is another one in the topic, where both can be seen."""
    place = last.end - 1
    log = plan.logs[where.topic][where.partition]
    span = _span(plan, where, place, last.end) if plan.first(log) <= place else None
    if span is None:
        return
    column = [TIMESTAMP[where.table]]
    lenient = replace(plan.options, fail_on_data_loss=False)
    there = [batch.column(0)[0] for batch in read_span(lenient, span, column, Wanted())]
    with open_segment(last.place(where.topic_root), where.table) as reader:
        here = [table.column(0)[0] for table in reader.tables(Window(place, last.end), columns=column)]
    if there and there != here:
        raise InvalidArgument(
            f"{where.topic}/{where.partition} has others at {place} than the lake ({where.table}): it is the lake of "
            "another broker, or of a topic that was deleted"
        )


def copy_pieces(options: Mapping[str, ReadOptions], limit: Limits, pieces: list[Piece]) -> list[list[LakeFile]]:
    """In a task: copy pieces; which files each of them became."""
    return [write_files(piece.log, _rows(options[piece.log.table], piece), limit) for piece in pieces]


def _rows(options: ReadOptions, piece: Piece) -> Iterator[pa.RecordBatch]:
    if piece.tail is not None:
        yield from rows_of(piece.log, piece.tail)
    yield from read_span(options, piece.span, SCHEMAS[piece.log.table].names, Wanted())


def holes(piece: Piece, files: Sequence[LakeFile]) -> list[Gap]:
    """Check that the files are those of a piece; what of it was missing."""
    at = piece.span.start if piece.tail is None else piece.tail.base
    gaps = []
    for file in files:
        if file.base < at or file.end > piece.span.end or file.thinned:
            raise JobFailed(f"{file.name} is not a part of {piece.span}; it was not committed")
        if file.base > at:
            gaps.append(Gap(piece.log.table, piece.log.partition, at, file.base))
        at = file.end
    if at < piece.span.end:
        gaps.append(Gap(piece.log.table, piece.log.partition, at, piece.span.end))
    return gaps
