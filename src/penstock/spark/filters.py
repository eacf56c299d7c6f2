"""Filters that Spark pushes down: what need not be read at all, and what need not be handed over.

Spark applies every filter once more, so nothing here has to be complete; it must only never leave out a row that is
wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from penstock.model.units import TIME_US_MAX
from penstock.segments.schema import POSITION, TIMESTAMP
from penstock.segments.window import OFFSET_MAX

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS = {
    "messages": {"key", "priority", "timestamp"},
    "events": {"time", "kind", "offset", "last", "group", "consumer"},
}
"""Columns by which rows are left out before they are handed to Spark."""
_COMPARED = {
    EqualTo: pc.equal,
    EqualNullSafe: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}


@dataclass
class Wanted:
    """Which rows are wanted, as far as the filters say."""

    start: int = 0
    end: int = OFFSET_MAX
    from_us: int = 0
    to_us: int = TIME_US_MAX + 1
    partitions: set[int] | None = None
    topics: set[str] | None = None
    rows: list[Any] = field(default_factory=list)

    def reads(self, topic: str, partition: int) -> bool:
        """Whether anything of a partition is wanted."""
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are wanted."""
        for one in self.rows:
            if one.attribute[0] in batch.schema.names:
                batch = batch.filter(_mask(one, batch.column(one.attribute[0])))
        return batch


def wanted_of(table: str, filters: Sequence[Filter]) -> Wanted:
    """What some filters, which all have to hold, leave to be read."""
    wanted = Wanted()
    for one in filters:
        column, value = getattr(one, "attribute", (None,)), getattr(one, "value", None)
        if len(column) != 1 or not isinstance(one, (*_COMPARED, In, IsNull, IsNotNull)):
            continue
        name = column[0]
        if name == POSITION[table]:
            low, high = _bounds(one, value)
            wanted.start, wanted.end = max(wanted.start, low), min(wanted.end, high)
        elif name == TIMESTAMP[table] and isinstance(value, datetime):
            low, high = _bounds(one, _to_us(value))
            wanted.from_us, wanted.to_us = max(wanted.from_us, low), min(wanted.to_us, high)
        elif name in ("partition", "topic") and isinstance(one, EqualTo | EqualNullSafe | In):
            chosen: set[Any] = set(value or ()) if isinstance(one, In) else {value}
            if name == "partition":
                wanted.partitions = chosen if wanted.partitions is None else wanted.partitions & chosen
            else:
                wanted.topics = chosen if wanted.topics is None else wanted.topics & chosen
        if name in _ROWS[table]:
            wanted.rows.append(one)
    return wanted


def _bounds(one: Filter, value: Any) -> tuple[int, int]:
    """From, and to before, as far as a filter on whole numbers says."""
    match one:
        case EqualTo() | EqualNullSafe() if value is not None:
            return value, value + 1
        case In():  # what is equal to NULL is never true
            known = [one for one in value if one is not None]
            return (min(known), max(known) + 1) if known else (0, 0)
        case GreaterThan():
            return value + 1, OFFSET_MAX
        case GreaterThanOrEqual():
            return value, OFFSET_MAX
        case LessThan():
            return 0, value
        case LessThanOrEqual():
            return 0, value + 1
    return 0, OFFSET_MAX


def _mask(one: Filter, column: pa.Array) -> pa.Array:
    match one:
        case IsNull():
            return pc.is_null(column)
        case IsNotNull():
            return pc.is_valid(column)
        case In():
            return pc.is_in(column, value_set=pa.array([_plain(value) for value in one.value], column.type))
        case EqualNullSafe() if one.value is None:
            return pc.is_null(column)
    return _COMPARED[type(one)](column, pa.scalar(_plain(one.value), column.type))  # type: ignore[attr-defined]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def _to_us(value: datetime) -> int:
    since: timedelta = _plain(value) - _EPOCH
    return since // timedelta(microseconds=1)
