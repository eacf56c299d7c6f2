"""Work in numbered parts: what was published of a log is known by its offsets, so that a job goes on where it was.

Each partition of the log that a job reads has a producer of its own, and the number of a part is the offset behind its
last message. The broker remembers the newest number of each producer: everything before it was published, once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import InvalidArgument
from penstock.model.pace import Pace
from penstock.spark.options import WriteOptions
from penstock.spark.writing import Staged, publish, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.client.sync import Client

ORIGIN = "penstock-origin"
"""The header of a copy: the id of the original message."""
PARTITION, OFFSET = "penstock_partition", "penstock_offset"
"""Columns that say from which message of the source a row was made."""
_TURN_S = 0.25
"""At a limited rate, messages are published for this many seconds at a time."""
_REFUSED = {
    "CURRENT_LIKE": "the time at which it runs (now, current_timestamp, current_date)",
    "WINDOW_EXPRESSION": "other messages (OVER)",
    "AGGREGATE_EXPRESSION": "other messages (count, sum and the like)",
}
"""Patterns of Spark's plans that a job in parts cannot have, in words."""


@dataclass(frozen=True)
class Part:
    """Consecutive messages of one partition."""

    partition: int
    start: int
    end: int

    @property
    def count(self) -> int:
        """How many there are."""
        return self.end - self.start

    def within(self, first: int, end: int) -> Part:
        """Its messages from one offset to before another."""
        start = max(self.start, first)
        return Part(self.partition, start, max(start, min(self.end, end)))


def identity_of(job: str, words: Mapping[str, object]) -> str:
    """A name for what a job was asked to do: the same words, the same name."""
    text = json.dumps(words, sort_keys=True, default=str)
    return f"{job}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def rounds(windows: Sequence[Part], parts: int) -> Iterator[list[Part]]:
    """The windows, each cut into this many parts: all first parts, then all second parts, and so on.

    Partitions go on side by side, as they were filled. The same windows are cut the same way each time.
    """
    for number in range(parts):
        cut = [
            Part(
                window.partition,
                window.start + window.count * number // parts,
                window.start + window.count * (number + 1) // parts,
            )
            for window in windows
        ]
        yield [part for part in cut if part.count]


class Published:
    """Publishes rows from the driver, part by part and turn by turn, each once."""

    def __init__(self, client: Client, options: WriteOptions, identity: str, rate: float | None) -> None:
        self._client, self._options, self._identity = client, options, identity
        self._pace = Pace(rate, _TURN_S)

    def producer(self, partition: int) -> str:
        """The name under which the parts of a partition are published."""
        return f"{self._identity}-{partition}"

    def reached(self, partition: int) -> int:
        """The offset before which everything of a partition was published; 0 if nothing was."""
        return self._client.staged_sequence(self.producer(partition)) or 0

    def rows(self, part: Part, rows: pa.Table, went: Callable[[int], None] = lambda _: None) -> int:
        """Publish the rows of a part that were not yet; rows have the columns of a message, and OFFSET in order.

        After each turn, `went` is told how many offsets it covered. Returns how many rows there were to publish.
        """
        at = part.start
        known = self.reached(part.partition)
        left = rows.filter(pc.greater_equal(rows.column(OFFSET), known)) if known > part.start else rows
        for start, end, reached in self._turns(left.column(OFFSET).to_pylist(), part.end):
            some = left.slice(start, end - start).drop_columns([OFFSET])
            time.sleep(self._pace.ahead_s(time.monotonic()))
            self._once(part, reached, some)
            self._pace.went(end - start, time.monotonic())
            went(reached - at)
            at = reached
        return len(left)

    def _turns(self, offsets: list[int], part_end: int) -> Iterator[tuple[int, int, int]]:
        """From row to row, and the offset behind; rows that are made of one message go together."""
        size = self._pace.at_once(len(offsets) or 1)
        start = 0
        while start < len(offsets):
            end = min(start + size, len(offsets))
            while end < len(offsets) and offsets[end] == offsets[end - 1]:
                end += 1
            yield start, end, part_end if end == len(offsets) else offsets[end - 1] + 1
            start = end
        if not offsets:
            yield 0, 0, part_end

    def _once(self, part: Part, reached: int, rows: pa.Table) -> None:
        producer = self.producer(part.partition)
        staged: list[Staged] = [stage(self._options, producer, iter(rows.to_batches()))] if len(rows) else []
        publish(self._options, producer, reached, staged)


def check_repeatable(frame: DataFrame, what: str) -> None:
    """Raise if the rows of a frame depend on more than the messages themselves.

    A job that works in parts, and goes on after a kill, asks again for a part: it must get the same rows.
    """
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - only the JVM knows it
    java: Any = frame.sparkSession._jvm  # noqa: SLF001
    patterns = java.org.apache.spark.sql.catalyst.trees.TreePattern
    found = [words for name, words in _REFUSED.items() if plan.containsPattern(getattr(patterns, name)())]
    if not plan.deterministic():
        found.append("chance (rand, uuid and the like)")
    if found:
        raise InvalidArgument(
            f"{what} depends on {' and on '.join(found)}: run in parts, or again after a kill, it would choose others. "
            "It may depend on the columns of each message alone"
        )
