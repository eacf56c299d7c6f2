"""Streaming reads: micro-batches of what came since, each between two positions that Spark keeps in its checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.model.errors import DiskFull, Overloaded, StorageFailed, TopicNotFound
from penstock.spark.batch import read_slice
from penstock.spark.connecting import connected
from penstock.spark.errors import DataLoss
from penstock.spark.filters import Wanted
from penstock.spark.finding import origin_of
from penstock.spark.options import Offsets, ReadOptions
from penstock.spark.origins import Origin
from penstock.spark.planning import Plan, from_json, slices, to_json
from penstock.spark.slices import Slice

_log = logging.getLogger("penstock.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver; `read` runs in the tasks.

    Spark asks for the next end only when everything before the start has been processed and noted. So that start is
    what is told to the broker, as the position of a group: its lag is the lag of the query.

    A partition of which the start says nothing is one of a topic that came later: it is read from offset 0 on, whatever
    is its first when that is planned, so that a batch that runs again is the same, and what is gone is told.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._origin: Origin | None = None
        self._initial: Offsets | None = None
        self._until: Offsets | None = None
        self._latest: Offsets | None = None
        self._noted: Offsets = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_origin": None}  # connections stay where they are

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:  # Spark asks twice, and must hear the same
            plan = Plan(self._connected(), self._options)
            self._initial = plan.resolve(self._options.start, "startingOffsets")
        return _ordered(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_messages is not None:
            return ReadMaxRows(self._options.max_messages)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._look_again()
        self._until = self._plan({}, segments=False).ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._look_again()
        known = from_json(start)
        plan = self._plan(known, segments=self._options.include_deleted or self._options.max_bytes is not None)
        self._note(plan, known)
        self._latest = ends = plan.ends()
        if self._until is not None:
            ends = _bounded(ends, self._until)
        begin = {
            topic: {
                number: max(self._begin(plan, known, topic, number), plan.first(log)) for number, log in logs.items()
            }
            for topic, logs in plan.logs.items()
        }
        if self._options.max_bytes is not None and not isinstance(limit, ReadAllAvailable):
            ends = limited(begin, ends, self._rows_in(plan, begin, self._options.max_bytes))
        if isinstance(limit, ReadMaxRows):
            ends = limited(begin, ends, limit.max_rows)
        return _ordered(ends)

    def reportLatestOffset(self) -> dict[str, Any]:
        if self._latest is None:
            self._latest = self._plan({}, segments=False).ends()
        return _ordered(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        known, stop = from_json(start), from_json(end)
        plan = self._plan(stop, segments=True)
        here = {
            topic: {number: place for number, place in stop[topic].items() if number in logs}
            for topic, logs in plan.logs.items()
            if topic in stop
        }
        begin = {
            topic: {number: self._begin(plan, known, topic, number) for number in places}
            for topic, places in here.items()
        }
        return slices(plan.spans(begin, here, Wanted()), self._options.min_partitions) or [Slice(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        return read_slice(self._options, partition, self._schema, Wanted())

    def commit(self, end: dict[str, Any]) -> None:
        """Everything that it says is known from `latestOffset`, earlier and also behind the last batch."""

    def _connected(self) -> Origin:
        if self._origin is None:
            self._origin = origin_of(self._options)
        return self._origin

    def _look_again(self) -> None:
        """See a directory as it is now: what was found there before is kept for one batch only."""
        if self._options.path is not None:
            self._origin = None

    def _plan(self, known: Offsets, *, segments: bool) -> Plan:
        """The logs as they are; raises if a part of what the stream has read of is not there any more."""
        origin, options = self._connected(), self._options
        try:
            plan = Plan(origin, options, segments=segments)
        except TopicNotFound as error:
            if options.fail_on_data_loss:
                if not known:
                    raise
                raise DataLoss(f"{error}, and the stream has read of it {_GO_ON}") from error
            there = set(origin.topic_names())
            topics = tuple(topic for topic in options.topics if topic in there)
            assigned = {topic: numbers for topic, numbers in options.assigned.items() if topic in there}
            plan = Plan(origin, replace(options, topics=topics, assigned=assigned), segments=segments)
        if options.fail_on_data_loss:
            _check_kept(plan, known)
        return plan

    def _begin(self, plan: Plan, known: Offsets, topic: str, number: int) -> int:
        """Where a batch begins to read a partition."""
        place = known.get(topic, {}).get(number, 0)
        if not place and self._options.table == "events":  # there were none yet: they begin with any number
            return plan.first(plan.logs[topic][number])
        return place

    def _rows_in(self, plan: Plan, begin: Offsets, size_bytes: int) -> int:
        """About how many messages make up this size, judging by those that come next in segments and journal."""
        journal_bytes: dict[tuple[str, int], int] = {}
        if self._options.servers is not None and self._options.table == "messages":
            for info in connected(self._options.servers, self._options.secrets).topics():
                journal_bytes |= {(info.name, part.number): part.journal_bytes for part in info.partitions}
        rows = size = 0
        for topic, logs in plan.logs.items():
            for number, log in logs.items():
                ahead = [segment for segment in log.segments if segment.end > begin[topic][number]]
                rows += sum(segment.rows for segment in ahead)
                size += sum(segment.size_bytes for segment in ahead)
                if (topic, number) in journal_bytes:
                    rows += log.end - log.settled_end
                    size += journal_bytes[topic, number]
        return max(1, size_bytes * rows // size) if size else plan.rows_in(size_bytes)

    def _note(self, plan: Plan, known: Offsets) -> None:
        """Tell the broker how far the query is; partitions that it does not read are no part of its lag."""
        if self._options.table != "messages":
            return
        for topic, logs in plan.logs.items():
            places = {number: min(known.get(topic, {}).get(number, 0), log.end) for number, log in logs.items()}
            if topic in self._options.assigned:
                others = self._connected().layout(topic, segments=False).messages
                places = {log.partition: log.end for log in others} | places
            if self._noted.get(topic) != places:
                try:
                    self._connected().note_position(topic, self._options.group, places)
                    self._noted[topic] = places
                except (DiskFull, Overloaded, StorageFailed, TopicNotFound) as error:  # reading goes on
                    _log.warning(
                        "the lag of the group %s on %s is not up to date: %s", self._options.group, topic, error
                    )


_GO_ON = "(set failOnDataLoss to false to go on with what is there)"


def _check_kept(plan: Plan, known: Offsets) -> None:
    gone = [topic for topic in known if topic not in plan.logs]
    for topic in plan.logs:
        for number, place in known.get(topic, {}).items():
            log = plan.logs[topic].get(number)
            if log is None:
                gone.append(f"{topic}/{number}")
            elif log.end < place:
                gone.append(f"{topic}/{number} from {log.end} to {place - 1}")
    if gone:
        raise DataLoss(
            f"the stream has read of {', '.join(sorted(gone))}, which is not there any more, or not asked for {_GO_ON}"
        )


def _bounded(ends: Offsets, until: Offsets) -> Offsets:
    """The ends, or where they were when a query that reads what is there began."""
    return {
        topic: {number: min(end, until[topic][number]) for number, end in found.items() if number in until[topic]}
        for topic, found in ends.items()
        if topic in until
    }


def _ordered(offsets: Offsets) -> dict[str, Any]:
    """As JSON that is the same text for the same offsets: by that Spark knows whether there is something new."""
    return to_json({topic: dict(sorted(places.items())) for topic, places in sorted(offsets.items())})


def limited(begin: Offsets, ends: Offsets, rows: int) -> Offsets:
    """As `ends`, but with at most this many messages in all.

    Every partition that has some goes on, by one at least, and beyond that in proportion to what it has; where there
    are more partitions than messages to be had, they take turns.
    """
    left = {
        (topic, number): max(0, stop - begin[topic][number])
        for topic, found in ends.items()
        for number, stop in found.items()
    }
    waiting = sorted(place for place, count in left.items() if count)
    total = sum(left.values())
    if total <= rows:
        return ends
    shares = dict.fromkeys(left, 0)
    if rows < len(waiting):
        turn = sum(begin[topic][number] for topic, number in left)  # grows by as much as is read
        for next_one in range(turn, turn + rows):
            shares[waiting[next_one % len(waiting)]] = 1
    else:
        spare, more = rows - len(waiting), total - len(waiting)
        for place in waiting:
            shares[place] = 1 + (left[place] - 1) * spare // more
        by_rest = sorted(waiting, key=lambda place: (left[place] - 1) * spare % more, reverse=True)
        for place in by_rest[: rows - sum(shares.values())]:
            shares[place] += 1
    return {
        topic: {number: stop - left[topic, number] + shares[topic, number] for number, stop in found.items()}
        for topic, found in ends.items()
    }
