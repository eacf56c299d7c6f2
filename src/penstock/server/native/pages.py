"""Reading a log page by page: each request says where it goes on, so the server holds nothing in between."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from penstock.cluster.slices import find_slice, of_partition
from penstock.delivery.offsets import Offsets
from penstock.embedded.broker import Broker
from penstock.log.partition_log import Log
from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument
from penstock.model.placement import is_slice
from penstock.protocol.consuming import rows_of
from penstock.protocol.session import Page, Read
from penstock.segments.window import Rows as Columns
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import SENT_ROW_BYTES, LogReader, as_rescheduled
from penstock.views.searching import FoundLog, find_log

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.shard.shard import Shard

_PAGE_BYTES = 4 << 20
_PAGE_ROWS = 20_000
_EVENT_BYTES = 64
_OFFSET_BYTES = 9


def read_page(broker: Broker, request: Read) -> Page:
    """The next part of what is asked for."""
    if is_slice(request.topic):
        topic, shard = find_slice(broker.shards, request.topic)
    else:
        topic, shard = request.topic, of_partition(broker.shards, request.topic, request.partition)
    found = find_log(shard, topic, request.partition, events=request.form == "events", replay=request.replay)
    page = _read(shard, found, request)
    page.end = found.end
    return page


def _read(shard: Shard, found: FoundLog, request: Read) -> Page:
    window, log = _window(request), found.log
    if request.form == "events":
        if window.timed:
            raise InvalidArgument("events are read by their places, not by time")
        if log is None:
            return Page()
        window.start = max(window.start, found.first)
        return _events(LogReader(shard, log), window, request.limit)
    assert log is not None
    reader = LogReader(shard, log, request.include_deleted or request.replay)
    if request.form == "arrow":
        return _arrow(reader, window)
    if request.form != "rows":
        raise InvalidArgument(f"{shown(request.form)} is not a form: give 'rows', 'arrow' or 'events'")
    return _rows(reader, log, window, request.limit, found.withdrawn)


def _window(request: Read) -> Window:
    if request.offset < 0 or (request.limit is not None and request.limit < 0):
        raise InvalidArgument("offset and limit are whole numbers from 0")
    window = Window(start=request.offset)
    if request.end is not None:
        window.end = request.end
    if request.from_time_us is not None:
        window.from_us = request.from_time_us
    if request.to_time_us is not None:
        window.to_us = request.to_time_us
    return window


def _rows(reader: LogReader, log: Log, window: Window, limit: int | None, withdrawn: Offsets) -> Page:
    page = Page()
    left_rows, left_bytes = _PAGE_ROWS if limit is None else min(limit, _PAGE_ROWS), _PAGE_BYTES
    for columns in _without(reader.rows(window), withdrawn):
        some = as_rescheduled(log, _first(columns, left_rows, left_bytes))
        if some.offsets:
            page.rows.append(rows_of(log.topic.name, log.partition, some.offsets, some.timestamps_us, some.batch))
            page.count += len(some.offsets)
            left_rows -= len(some.offsets)
            left_bytes -= len(page.rows[-1].payload) + SENT_ROW_BYTES * len(some.offsets)
        if len(some.offsets) < len(columns.offsets) or left_rows <= 0 or left_bytes <= 0:
            page.next_offset = some.offsets[-1] + 1 if some.offsets else columns.offsets[0]
            break
    return page


def _first(columns: Columns, rows_max: int, bytes_max: int) -> Columns:
    """As many as fit, and at least one if any is wanted."""
    count = min(rows_max, max(1, fitting(columns, bytes_max)))
    if count >= len(columns.offsets):
        return columns
    return Columns(columns.offsets[:count], columns.timestamps_us[:count], columns.batch.slice(0, count))


def _without(found: Iterator[Columns], withdrawn: Offsets) -> Iterator[Columns]:
    for columns in found:
        if not withdrawn:
            yield columns
            continue
        places = [place for place, offset in enumerate(columns.offsets) if offset not in withdrawn]
        if places:
            times = [columns.timestamps_us[place] for place in places]
            yield Columns([columns.offsets[place] for place in places], times, columns.batch.select(places))


def _events(reader: LogReader, window: Window, limit: int | None) -> Page:
    """As many as fit; the log has no gaps behind its first event, so that counting tells where to go on."""
    page = Page()
    left, left_bytes = min(_PAGE_ROWS if limit is None else limit, _PAGE_ROWS), _PAGE_BYTES
    for event in itertools.islice(reader.events(window), left):
        page.events.append(event)
        left_bytes -= _EVENT_BYTES + _OFFSET_BYTES * len(event.offsets or ())
        if left_bytes <= 0:
            break
    page.count = len(page.events)
    if left_bytes <= 0 or page.count == left:
        page.next_offset = window.start + page.count
    return page


def _arrow(reader: LogReader, window: Window) -> Page:
    """Record batches as an Arrow IPC stream; large ones in parts."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    writer = None
    page = Page()
    for part in _parts(reader.arrow(window)):
        if writer is None:
            writer = pa.ipc.new_stream(sink, part.schema)
        writer.write_batch(part)
        page.count += part.num_rows
        if sink.tell() >= _PAGE_BYTES:
            page.next_offset = int(part.column("offset")[-1].as_py()) + 1
            break
    if writer is not None:
        writer.close()
        page.arrow = sink.getvalue().to_pybytes()
    return page


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that fit into pages."""
    for batch in batches:
        rows = max(1, _PAGE_BYTES * batch.num_rows // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def fitting(rows: Columns, room_bytes: int) -> int:
    """How many of the first messages fit into so many bytes."""
    batch = rows.batch
    if batch.payload is not None and len(batch.payload) + SENT_ROW_BYTES * len(rows.offsets) <= room_bytes:
        return len(rows.offsets)
    sizes = list(map(len, batch.values))
    if batch.keys is not None:
        sizes = [size + len(key or b"") for size, key in zip(sizes, batch.keys, strict=True)]
    if batch.headers is not None:
        sizes = [size + _headers_bytes(headers) for size, headers in zip(sizes, batch.headers, strict=True)]
    if sum(sizes) + SENT_ROW_BYTES * len(sizes) <= room_bytes:
        return len(sizes)
    return sum(1 for count, total in enumerate(accumulate(sizes), 1) if total + SENT_ROW_BYTES * count <= room_bytes)


def _headers_bytes(headers: dict[str, str] | None) -> int:
    return sum(len(name) + len(text) + 6 for name, text in headers.items()) if headers else 0
