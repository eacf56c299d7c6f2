"""Reading a log page by page: each request says where it goes on, so the server holds nothing in between."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from penstock.broker.embedded import Broker
from penstock.broker.reading import LogReader
from penstock.broker.topics import Log
from penstock.delivery.offsets import Offsets
from penstock.model.batch import Batch
from penstock.model.errors import BrokerClosed, InvalidArgument, TopicNotFound
from penstock.protocol.consuming import Rows, rows_of
from penstock.protocol.session import Page, Read
from penstock.segments.window import Rows as Columns
from penstock.segments.window import Window

_PAGE_BYTES = 4 << 20
_PAGE_ROWS = 20_000
_ROW_BYTES = 32


def read_page(broker: Broker, request: Read) -> Page:
    """The next part of what is asked for."""
    engine = broker.engine
    with engine.lock:
        if engine.closed:
            raise BrokerClosed("the broker is closed")
        topic = engine.topic(request.topic)
        if not 0 <= request.partition < len(topic.partitions):
            last = len(topic.partitions) - 1
            raise TopicNotFound(f"{request.topic} has no partition {request.partition}: it has 0 to {last}")
        partition = topic.partitions[request.partition]
        withdrawn = Offsets(partition.delivery_state().withdrawn) if request.replay else Offsets()
    window = _window(request)
    if request.form == "events":
        return Page() if partition.events is None else _events(LogReader(engine, partition.events), window, request)
    reader = LogReader(engine, partition.messages, request.include_deleted or request.replay)
    if request.form == "arrow":
        return _arrow(reader, window)
    if request.form != "rows":
        raise InvalidArgument(f"{request.form!r} is not a form: give 'rows', 'arrow' or 'events'")
    return _rows(reader, partition.messages, window, request.limit, withdrawn)


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
        some = _first(columns, left_rows, left_bytes)
        if some.offsets:
            page.rows.append(_to_wire(log, some))
            page.count += len(some.offsets)
            left_rows -= len(some.offsets)
            left_bytes -= len(page.rows[-1].payload) + _ROW_BYTES * len(some.offsets)
        if len(some.offsets) < len(columns.offsets) or left_rows <= 0 or left_bytes <= 0:
            page.next_offset = some.offsets[-1] + 1 if some.offsets else columns.offsets[0]
            break
    return page


def _to_wire(log: Log, columns: Columns) -> Rows:
    return rows_of(log.topic.name, log.partition, columns.offsets, columns.timestamps_us, columns.batch)


def _first(columns: Columns, rows_max: int, bytes_max: int) -> Columns:
    """As many as fit, and at least one if any is wanted."""
    fitting = min(len(columns.offsets), rows_max)
    sizes = itertools.accumulate(len(value) + _ROW_BYTES for value in columns.batch.values[:fitting])
    fitting = min(fitting, max(1, sum(1 for size in sizes if size <= bytes_max)))
    if fitting == len(columns.offsets):
        return columns
    batch: Batch = columns.batch.slice(0, fitting)
    return Columns(columns.offsets[:fitting], columns.timestamps_us[:fitting], batch)


def _without(found: Iterator[Columns], withdrawn: Offsets) -> Iterator[Columns]:
    for columns in found:
        if not withdrawn:
            yield columns
            continue
        places = [place for place, offset in enumerate(columns.offsets) if offset not in withdrawn]
        if places:
            times = [columns.timestamps_us[place] for place in places]
            yield Columns([columns.offsets[place] for place in places], times, columns.batch.select(places))


def _events(reader: LogReader, window: Window, request: Read) -> Page:
    wanted = min(request.limit or _PAGE_ROWS, _PAGE_ROWS)
    events = list(itertools.islice(reader.events(window), wanted))
    following = request.offset + len(events) if len(events) == wanted else None
    return Page(events=events, next_offset=following, count=len(events))


def _arrow(reader: LogReader, window: Window) -> Page:
    """Whole record batches, as an Arrow IPC stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    writer = None
    next_offset: int | None = None
    count = 0
    for batch in reader.arrow(window):
        if not batch.num_rows:
            continue
        count += batch.num_rows
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
        if sink.tell() >= _PAGE_BYTES:
            next_offset = int(batch.column("offset")[-1].as_py()) + 1
            break
    if writer is not None:
        writer.close()
    body = sink.getvalue().to_pybytes() if writer is not None else None
    return Page(arrow=body, next_offset=next_offset, count=count)
