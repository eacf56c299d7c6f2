"""The past of a topic as a job reads it: what a lake has of it, and the rest from where the topic lives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.model.errors import InvalidArgument, TopicNotFound
from penstock.model.units import Time, parse_time_us
from penstock.spark.errors import DataLoss
from penstock.spark.frames import no_messages, read_topic, union
from penstock.spark.jobs.parts import Part
from penstock.spark.jobs.place import Place
from penstock.spark.options import EARLIEST, LATEST, Position, read_options
from penstock.spark.planning import Plan, between
from penstock.spark.registering import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Window:
    """Which part of the past is asked for."""

    from_time_us: int | None = None
    to_time_us: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    partition: int | None = None


def window_of(
    from_time: Time | None,
    to_time: Time | None,
    from_offset: int | None,
    to_offset: int | None,
    partition: int | None = None,
) -> Window:
    """The window that the arguments describe; the error names everything that is wrong with them."""
    problems = []
    times: list[int | None] = []
    for name, time in (("from_time", from_time), ("to_time", to_time)):
        try:
            times.append(None if time is None else parse_time_us(time))
        except InvalidArgument as error:
            problems.append(f"{name}: {error}")
    for name, number in (("from_offset", from_offset), ("to_offset", to_offset), ("partition", partition)):
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
            problems.append(f"{name}: {number!r} is not a whole number from 0")
    if problems:
        raise InvalidArgument("; ".join(problems))
    window = Window(times[0], times[1], from_offset, to_offset, partition)
    pairs = ((window.from_time_us, window.to_time_us), (from_offset, to_offset))
    if any(start is not None and end is not None and start > end for start, end in pairs):
        raise InvalidArgument("the window ends before it begins")
    return window


class _Known:
    """What one place has of a topic, partition by partition; archived messages too."""

    def __init__(self, place: Place, topic: str) -> None:
        self.place, self._topic = place, topic
        options = {**place.options, "subscribe": topic, "includeDeleted": "true"}
        self._plan = Plan(place.origin(), read_options(options, streaming=False))
        self._first = self._plan.resolve(Position(EARLIEST), "from")[topic]
        self._end = self._plan.resolve(Position(LATEST), "to")[topic]
        segments = [segment for log in self._plan.logs[topic].values() for segment in log.segments]
        self.is_thinned = place.servers is None and any(part.rows < part.end - part.base for part in segments)
        """Whether it is a lake that keeps only the latest message of each key: missing messages are no loss."""

    @property
    def options(self) -> dict[str, Any]:
        """How Spark reads it."""
        return {**self.place.options, **({"failOnDataLoss": "false"} if self.is_thinned else {})}

    @property
    def partitions(self) -> int:
        return len(self._end)

    def bounds(self, partition: int) -> tuple[int, int]:
        """From where to where it has the messages of a partition; the same number twice where it has none."""
        return self._first.get(partition, 0), self._end.get(partition, 0)

    def at(self, partition: int, time_us: int) -> int:
        """The first offset at or after a time, or the end."""
        if partition not in self._end:
            return 0
        return self._plan.resolve(Position(EARLIEST, time_us=time_us), "time")[self._topic][partition]

    def rows_in(self, size_bytes: int) -> int:
        return self._plan.rows_in(size_bytes)


class Past:
    """A topic from its first message that can still be read, wherever it is, to its end."""

    def __init__(self, place: Place, topic: str, lake: str | None = None) -> None:
        self.topic = topic
        self._lake = None if lake is None else _Known(Place(path=lake), topic)
        try:
            self._home: _Known | None = _Known(place, topic)
        except TopicNotFound:
            if self._lake is None:
                raise
            self._home = None  # it was deleted: the lake has what there is
        self._all = [known for known in (self._home, self._lake) if known is not None]
        self.partitions = max(known.partitions for known in self._all)

    @property
    def is_thinned(self) -> bool:
        """Whether there may be fewer messages than offsets."""
        return any(known.is_thinned for known in self._all)

    def rows_in(self, size_bytes: int) -> int:
        """About how many messages make up this size."""
        return min(known.rows_in(size_bytes) for known in self._all)

    def windows(self, asked: Window, reached: Callable[[int], int] = lambda _: 0) -> list[Part]:
        """The window in each partition, as it is now; an error if some of it is gone.

        `reached` tells of a partition before which offset everything is done: that may be gone.
        """
        if asked.partition is not None and asked.partition >= self.partitions:
            raise InvalidArgument(f"{self.topic} has no partition {asked.partition}: it has 0 to {self.partitions - 1}")
        numbers = range(self.partitions) if asked.partition is None else [asked.partition]
        return [self._window(asked, number, reached(number)) for number in numbers]

    def _window(self, asked: Window, partition: int, reached: int) -> Part:
        bounds = [known.bounds(partition) for known in self._all]
        first = min([first for first, end in bounds if first < end], default=max(end for _, end in bounds))
        last = max(end for _, end in bounds)
        end = min(asked.to_offset if asked.to_offset is not None else last, last)
        if asked.to_time_us is not None:
            end = min(end, self._at(partition, asked.to_time_us))
        start = first if asked.from_time_us is None else max(first, self._at(partition, asked.from_time_us))
        if asked.from_offset is not None:
            start = max(start, asked.from_offset) if asked.from_time_us is not None else asked.from_offset
        part = Part(partition, start, max(start, end))
        begun = reached > 0 and asked.from_offset is None  # then it began before: what was first by then may be gone
        left = Part(partition, reached if begun else max(start, reached), part.end)
        if left.count > 0:
            self._check_kept(left, first)
        return part

    def _check_kept(self, part: Part, first: int) -> None:
        if part.start < first:
            gone = f"{self.topic}/{part.partition} from {part.start} to {min(first, part.end) - 1}"
        elif missing := part.count - sum(piece.count for _, piece in self._pieces(part)):
            gone = f"{missing} messages of {self.topic}/{part.partition} before {part.end}"
        else:
            return
        raise DataLoss(
            f"messages that are to be read are gone (retention, with no archive): {gone}. The first that is still "
            f"there is {self.topic}/{part.partition}/{first}"
        )

    def _at(self, partition: int, time_us: int) -> int:
        """The first offset at or after a time, in the lake or behind it."""
        home = self._home.at(partition, time_us) if self._home is not None else 0
        if self._lake is None:
            return home
        first, end = self._lake.bounds(partition)
        found = self._lake.at(partition, time_us)
        if first < end and self._home is not None and self._home.bounds(partition)[0] <= home < first:
            return home
        return found if found < end else max(home, end)

    def _pieces(self, part: Part) -> list[tuple[_Known, Part]]:
        """From where each message of a part is read: the lake, if it has it. In the order of offsets."""
        first, end = (0, 0) if self._lake is None else self._lake.bounds(part.partition)
        pieces = [] if self._lake is None else [(self._lake, part.within(first, end))]
        if self._home is not None:
            own_first, own_end = self._home.bounds(part.partition)
            before = part.within(own_first, min(first, own_end))
            behind = part.within(max(own_first, end), own_end)
            pieces = [(self._home, before), *pieces, (self._home, behind)]
        return [(known, piece) for known, piece in pieces if piece.count]

    def read(self, spark: SparkSession, parts: Sequence[Part]) -> DataFrame:
        """The messages of some parts; those of each partition in the order of their offsets, over all Spark partitions.

        They come by the data source, whose slices are in order; Spark's own reader of Parquet mixes files.
        """
        register(spark)
        frames = []
        for known, chosen in self._by_place(parts):
            assign = {self.topic: sorted(chosen)}
            reader = spark.read.format("penstock").options(**known.options, **_between(self.topic, chosen))
            frames.append(reader.options(assign=json.dumps(assign)).load())
        return _together(spark, frames)

    def scan(self, spark: SparkSession, parts: Sequence[Part]) -> DataFrame:
        """The same messages in any order, the fast way."""
        frames = []
        for known, chosen in self._by_place(parts):
            ends = {number: known.bounds(number)[1] for number in range(known.partitions)}
            nothing = {number: Part(number, end, end) for number, end in ends.items()}
            options: dict[str, Any] = {**known.options, **_between(self.topic, {**nothing, **chosen})}
            frames.append(read_topic(spark, self.topic, **options))
        return _together(spark, frames)

    def _by_place(self, parts: Sequence[Part]) -> list[tuple[_Known, dict[int, Part]]]:
        """What is read together: before the lake, in it, behind it."""
        found: list[tuple[_Known, dict[int, Part]]] = []
        for part in parts:
            turn = 0
            for known, piece in self._pieces(part):
                while turn < len(found) and found[turn][0] is not known:
                    turn += 1
                if turn == len(found):
                    found.append((known, {}))
                found[turn][1][piece.partition] = piece
                turn += 1
        return found


def _between(topic: str, chosen: Mapping[int, Part]) -> dict[str, str]:
    start = {topic: {number: part.start for number, part in sorted(chosen.items())}}
    end = {topic: {number: part.end for number, part in sorted(chosen.items())}}
    return {**between(start, end), "includeDeleted": "true"}


def _together(spark: SparkSession, frames: Sequence[DataFrame]) -> DataFrame:
    found = union(frames)
    return no_messages(spark) if found is None else found
