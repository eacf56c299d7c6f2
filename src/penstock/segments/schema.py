"""The columns of the Parquet files, and rows between Python and Arrow."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.batch import Batch
from penstock.model.events import Event, EventKind
from penstock.model.names import NORMAL
from penstock.segments.window import Rows

TIME = pa.timestamp("us", tz="UTC")
_INT64 = pa.int64()

MESSAGES = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIME, nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
        pa.field("priority", pa.int16(), nullable=False),
        pa.field("deliver_at", TIME),
        pa.field("expires_at", TIME),
        pa.field("dedupe_id", pa.string()),
        pa.field("partition", pa.int32(), nullable=False),
    ]
)
EVENTS = pa.schema(
    [
        pa.field("event", pa.int64(), nullable=False),
        pa.field("time", TIME, nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
        pa.field("group", pa.string()),
        pa.field("consumer", pa.string()),
        pa.field("attempt", pa.int32(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("due_at", TIME),
        pa.field("offsets", pa.list_(pa.int64())),
        pa.field("partition", pa.int32(), nullable=False),
    ]
)
SCHEMAS = {"messages": MESSAGES, "events": EVENTS}
"""The columns that readers get."""
STORED_MESSAGES = MESSAGES.append(pa.field("producer", pa.string()))
"""As files hold them: with who published them, which traces show. Files of earlier versions have no such column."""
POSITION = {"messages": "offset", "events": "event"}
TIMESTAMP = {"messages": "timestamp", "events": "time"}


def messages_to_arrow(rows: Rows, partition: int) -> pa.RecordBatch:
    """Rows as an Arrow batch with the columns that readers get."""
    return pa.RecordBatch.from_arrays(_public_columns(rows, partition), schema=MESSAGES)


def stored_messages_to_arrow(rows: Rows, partition: int) -> pa.RecordBatch:
    """Rows as a segment stores them."""
    names, count = rows.batch.producer_names, len(rows.offsets)
    if names is None:
        producers = pa.nulls(count, pa.string())
    elif len(names) == 1 and not names[0][0]:
        producers = pa.repeat(pa.scalar(names[0][1], pa.string()), count)
    else:
        runs = itertools.pairwise([(0, None), *names, (count, None)])
        each = [[name] * (end - row) for (row, name), (end, _) in runs]
        producers = pa.array(list(itertools.chain.from_iterable(each)), pa.string())
    return pa.RecordBatch.from_arrays([*_public_columns(rows, partition), producers], schema=STORED_MESSAGES)


def _public_columns(rows: Rows, partition: int) -> list[pa.Array]:
    batch, count = rows.batch, len(rows.offsets)
    headers = None if batch.headers is None else [list(h.items()) if h else None for h in batch.headers]
    priorities = (
        pa.repeat(pa.scalar(batch.priority, pa.int16()), count)
        if batch.priorities is None
        else pa.array(list(batch.priorities), pa.int16())
    )
    return [
        _integers(rows.offsets),
        _times(rows.timestamps_us),
        _column(batch.keys, count, pa.binary()),
        pa.array(batch.values, pa.binary()),
        _column(headers, count, MESSAGES.field("headers").type),
        priorities,
        _optional_times(batch.deliver_at, count),
        _optional_times(batch.expires_at, count),
        _column(batch.dedupe_ids, count, pa.string()),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
    ]


def is_schema_of(table: str, schema: pa.Schema) -> bool:
    """Whether a file with these columns can be a segment of this table, of this version or an earlier one."""
    return schema.equals(SCHEMAS[table]) or (table == "messages" and schema.equals(STORED_MESSAGES))


def messages_from_arrow(table: pa.Table) -> Rows:
    """The rows of a segment's table, as Python values."""
    column = table.column
    keys, headers = column("key"), column("headers")
    dedupe_ids = column("dedupe_id")
    priority = _only_value(column("priority"), NORMAL)
    batch = Batch(
        values=column("value").to_pylist(),
        keys=None if keys.null_count == len(table) else keys.to_pylist(),
        headers=None
        if headers.null_count == len(table)
        else [None if pairs is None else dict(pairs) for pairs in headers.to_pylist()],
        priority=NORMAL if priority is None else priority,
        priorities=bytes(column("priority").to_pylist()) if priority is None else None,
        deliver_at=_optional_times_us(column("deliver_at")),
        expires_at=_optional_times_us(column("expires_at")),
        dedupe_ids=None if dedupe_ids.null_count == len(table) else dedupe_ids.to_pylist(),
    )
    return Rows(_offsets(column("offset")), _times_us(column("timestamp")), batch)


def with_key(table: pa.Table, key: bytes) -> pa.Table:
    """Those rows of a segment's table that have a key."""
    return table.filter(pc.equal(table.column("key"), pa.scalar(key, pa.binary())))


def times_from_arrow(table: pa.Table) -> tuple[Sequence[int], Sequence[int], Sequence[int] | None]:
    """The offsets, timestamps and due times (0: none) of a segment's table."""
    column = table.column
    return _offsets(column("offset")), _times_us(column("timestamp")), _optional_times_us(column("deliver_at"))


def events_to_arrow(base: int, events: list[Event], partition: int) -> pa.RecordBatch:
    """Events as an Arrow batch with the columns of a segment."""
    return pa.RecordBatch.from_arrays(
        [
            _integers(range(base, base + len(events))),
            _times([event.time_us for event in events]),
            pa.array([str(event.kind) for event in events], pa.string()),
            _integers([event.offset for event in events]),
            _integers([event.count for event in events]),
            _integers([event.last for event in events]),
            pa.array([event.group for event in events], pa.string()),
            pa.array([event.consumer for event in events], pa.string()),
            pa.array([event.attempt for event in events], pa.int32()),
            pa.array([event.detail for event in events], pa.string()),
            _optional_times([event.due_us for event in events], len(events)),
            pa.array([event.offsets for event in events], EVENTS.field("offsets").type),
            pa.repeat(pa.scalar(partition, pa.int32()), len(events)),
        ],
        schema=EVENTS,
    )


def events_from_arrow(table: pa.Table) -> list[Event]:
    """The events of a segment's table."""
    times = table.column("time").cast(pa.int64()).to_pylist()
    names = ("kind", "offset", "count", "group", "consumer", "attempt", "detail")
    columns = [table.column(name).to_pylist() for name in names]
    due_us = _optional_times_us(table.column("due_at")) or [0] * len(table)
    offsets = table.column("offsets").to_pylist()
    kinds = map(EventKind, columns[0])
    return [Event(*row) for row in zip(kinds, times, *columns[1:], due_us, offsets, strict=True)]


def _integers(numbers: Sequence[int], kind: pa.DataType = _INT64) -> pa.Array:
    if isinstance(numbers, range):
        return pa.arange(numbers.start, numbers.stop)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(array("q", numbers))])


def _times(times_us: Sequence[int]) -> pa.Array:
    if not isinstance(times_us, array) and times_us.count(times_us[0]) == len(times_us):  # as in a block
        return pa.repeat(pa.scalar(times_us[0], TIME), len(times_us))
    return _integers(times_us, TIME)


def _optional_times(times_us: Sequence[int] | None, count: int) -> pa.Array:
    return _column(None if times_us is None else [time_us or None for time_us in times_us], count, TIME)


def _offsets(column: pa.ChunkedArray) -> Sequence[int]:
    """Offsets, which increase: a range where none is missing."""
    if not len(column):
        return ()
    first, end = column[0].as_py(), column[-1].as_py() + 1
    return range(first, end) if end - first == len(column) else column.to_pylist()


def _times_us(column: pa.ChunkedArray) -> list[int]:
    times = column.cast(pa.int64())
    only = _only_value(times, 0)
    return times.to_pylist() if only is None else [only] * len(times)


def _only_value(numbers: pa.ChunkedArray, default: int) -> int | None:
    """What all of the numbers are, `default` if there are none; None where they differ."""
    if not len(numbers):
        return default
    bounds = pc.min_max(numbers)
    least: int = bounds["min"].as_py()
    return least if least == bounds["max"].as_py() else None


def _optional_times_us(times: pa.ChunkedArray) -> array[int] | None:
    """Times with 0 for null; None where all are."""
    if times.null_count == len(times):
        return None
    return array("q", [time_us or 0 for time_us in times.cast(pa.int64()).to_pylist()])


def _column(values: Sequence[object] | None, count: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(count, kind) if values is None else pa.array(values, kind)
