"""Segments: what was written is read back, only where it is needed, and never wrong."""

from __future__ import annotations

import io
import threading
from array import array
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.batch import Batch
from penstock.model.errors import CorruptData
from penstock.model.events import Event, EventKind, span_of
from penstock.model.stored import SegmentInfo, segment_name
from penstock.segments import writer
from penstock.segments.reader import SegmentReader, _CheckedBytes
from penstock.segments.schema import events_from_arrow, events_to_arrow, messages_from_arrow, messages_to_arrow
from penstock.segments.window import Rows, Window
from penstock.segments.writer import write_segment
from penstock.storage import FileStorage, put_file
from penstock.testing import MemoryStorage

NAME = segment_name("orders", "messages", 2, 45_678)
TIMES = st.integers(0, 2**52)
TEXT = st.text(max_size=8)

Row = tuple[int, int, bytes, bytes | None, dict[str, str] | None, int, int, int, str | None]


@st.composite
def columns(draw: st.DrawFn, first: int = 0) -> Rows:
    """Some messages with any of the columns there or not, at offsets that may have gaps."""
    count = draw(st.integers(1, 6))

    def maybe(cells: st.SearchStrategy[object]) -> list[object] | None:
        return draw(st.none() | st.lists(cells, min_size=count, max_size=count))

    due, expiry = maybe(st.just(0) | TIMES), maybe(st.just(0) | TIMES)
    steps = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    batch = Batch(
        values=draw(st.lists(st.binary(max_size=12), min_size=count, max_size=count)),
        keys=maybe(st.none() | st.binary(max_size=4)),  # type: ignore[arg-type]
        headers=maybe(st.none() | st.dictionaries(TEXT, TEXT, max_size=3)),  # type: ignore[arg-type]
        priority=draw(st.integers(0, 255)),
        priorities=draw(st.none() | st.binary(min_size=count, max_size=count)),
        deliver_at=None if due is None else array("q", due),  # type: ignore[arg-type]
        expires_at=None if expiry is None else array("q", expiry),  # type: ignore[arg-type]
        dedupe_ids=maybe(st.none() | st.text(min_size=1, max_size=8)),  # type: ignore[arg-type]
    )
    offsets = [first + sum(steps[: place + 1]) for place in range(count)]
    return Rows(offsets, draw(st.lists(TIMES, min_size=count, max_size=count)), batch)


def by_row(rows: Rows) -> list[Row]:
    """Columns message by message, so that it does not matter which columns are left out."""
    batch, count = rows.batch, len(rows.offsets)
    nothing = [None] * count
    return list(
        zip(
            rows.offsets,
            rows.timestamps_us,
            batch.values,
            batch.keys or nothing,
            [headers or None for headers in batch.headers or nothing],
            batch.priorities or [batch.priority] * count,
            batch.deliver_at or [0] * count,
            batch.expires_at or [0] * count,
            batch.dedupe_ids or nothing,
            strict=True,
        )
    )


def numbered(times_us: list[int], first: int = 0) -> Rows:
    offsets = range(first, first + len(times_us))
    return Rows(offsets, times_us, Batch([b"value %d" % offset for offset in offsets], keys=[b"k"] * len(times_us)))


def segment(*parts: Rows, storage: MemoryStorage | FileStorage | None = None) -> tuple[SegmentReader, SegmentInfo]:
    storage = storage or MemoryStorage()
    chunks, info = write_segment("messages", "orders", 2, [messages_to_arrow(part, 2) for part in parts])
    put_file(storage, NAME, chunks)
    return SegmentReader(storage, NAME, "messages", info), info


def found(reader: SegmentReader, window: Window | None = None) -> list[Row]:
    return [row for table in reader.tables(window or Window()) for row in by_row(messages_from_arrow(table))]


@pytest.fixture
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", 10)


# There and back.


@settings(max_examples=50)
@given(columns(), columns(first=100), columns(first=200))
def test_L13_messages_come_back_from_a_segment_as_they_were_written(one: Rows, two: Rows, three: Rows) -> None:
    reader, info = segment(one, two, three)
    rows = [*by_row(one), *by_row(two), *by_row(three)]
    with reader:
        assert found(reader) == rows
        list(reader.tables(Window()))
    times = [row[1] for row in rows]
    assert (info.base, info.end, info.rows) == (rows[0][0], rows[-1][0] + 1, len(rows))
    assert (info.first_us, info.last_us) == (min(times), max(times))
    assert info.due_us == max(row[6] for row in rows)
    assert info.expires == any(row[7] for row in rows)
    assert info.priority == (rows[0][5] if len({row[5] for row in rows}) == 1 else None)
    assert (info.low, info.high) == (0, 0)
    assert not info.archived


def test_L13_messages_of_mixed_priorities_come_back_with_their_own() -> None:
    for priorities in (b"\x00\xff\x80", b"\x01\x02", bytes(range(256))):
        rows = Rows(
            range(len(priorities)), [1] * len(priorities), Batch([b"v"] * len(priorities), priorities=priorities)
        )
        with segment(rows)[0] as reader:
            assert [row[5] for row in found(reader)] == list(priorities)


def test_L13_an_empty_key_is_not_a_missing_key_and_an_empty_value_is_a_value() -> None:
    batch = Batch([b"", b"\0", b""], keys=[None, b"", b"\0"], headers=[{"": ""}, {"grüße": "☕\0"}, None])
    with segment(Rows([5, 6, 7], [1, 2, 3], batch))[0] as reader:
        (table,) = reader.tables(Window())
        assert table.column("key").to_pylist() == [None, b"", b"\0"]
        assert table.column("value").to_pylist() == [b"", b"\0", b""]
        assert table.column("headers").to_pylist() == [[("", "")], [("grüße", "☕\0")], None]
        assert table.column("partition").to_pylist() == [2, 2, 2]


NUMBERS = st.integers(0, 2**63 - 1)
NAMES = st.none() | st.text(max_size=8)
RUNS = st.tuples(NUMBERS, NUMBERS, st.none()).map(lambda run: (run[0], min(run[1], 2**63 - run[0]), None))
SCATTERED = st.lists(NUMBERS, min_size=1, max_size=5, unique=True).map(lambda at: (min(at), len(at), sorted(at)))


@st.composite
def events(draw: st.DrawFn) -> Event:
    """An event of a run, or of offsets that are not one."""
    offset, count, offsets = draw(RUNS | SCATTERED)
    return Event(
        draw(st.sampled_from(EventKind)),
        draw(TIMES),
        offset,
        min(count, 2**63 - 1),
        group=draw(NAMES),
        consumer=draw(NAMES),
        attempt=draw(st.integers(0, 2**31 - 1)),
        detail=draw(NAMES),
        due_us=draw(st.just(0) | TIMES),
        offsets=offsets,
    )


EVENTS = events()


@settings(max_examples=50)
@given(st.lists(EVENTS, min_size=1, max_size=6), st.lists(EVENTS, min_size=1, max_size=6), st.integers(0, 1000))
def test_L13_events_come_back_from_a_segment_as_they_were_written(
    one: list[Event], two: list[Event], base: int
) -> None:
    storage = MemoryStorage()
    batches = [events_to_arrow(base, one, 2), events_to_arrow(base + len(one), two, 2)]
    chunks, info = write_segment("events", "orders", 2, batches)
    put_file(storage, NAME, chunks)
    with SegmentReader(storage, NAME, "events", info) as reader:
        assert [event for table in reader.tables(Window()) for event in events_from_arrow(table)] == one + two
        later = Window(start=base + len(one))
        assert [event for table in reader.tables(later) for event in events_from_arrow(table)] == two
    assert (info.base, info.end, info.rows, info.due_us) == (base, base + len(one + two), len(one + two), 0)
    assert (info.low, info.high) == span_of(one + two)
    assert (info.priority, info.expires) == (None, False)


def event_segment(*parts: list[Event]) -> SegmentReader:
    bases = [sum(map(len, parts[:number])) for number in range(len(parts))]
    batches = [events_to_arrow(base, part, 2) for base, part in zip(bases, parts, strict=True)]
    storage = MemoryStorage()
    chunks, info = write_segment("events", "orders", 2, batches)
    put_file(storage, NAME, chunks)
    return SegmentReader(storage, NAME, "events", info)


def test_an_event_segment_tells_the_last_offset_and_leaves_out_what_is_not_there() -> None:
    acked = Event(EventKind.ACKED, 1, 5, 3, "g")
    failed = Event(EventKind.FAILED, 2, 5, 2, "g", "c", 1, "no", 9_000_000, [5, 8])
    with event_segment([acked, failed]) as reader:
        (table,) = reader.tables(Window())
    assert table.column("last").to_pylist() == [7, 8]
    assert table.column("offsets").to_pylist() == [None, [5, 8]]
    assert table.column("due_at").cast(pa.int64()).to_pylist() == [None, 9_000_000]


@pytest.mark.usefixtures("small_row_groups")
def test_events_about_a_message_are_read_from_the_row_groups_that_can_speak_of_it() -> None:
    rows = [Event(EventKind.ACKED, 1, 10 * place, 10) for place in range(100)]
    for about, groups, found_rows in [(0, 1, [0]), (555, 1, [55]), (999, 1, [99]), (1000, 0, [])]:
        with event_segment(rows) as reader:
            tables = list(reader.tables(Window(), (about, about)))
            assert [event for table in tables for event in events_from_arrow(table)] == [rows[at] for at in found_rows]
            assert reader.row_groups_read == groups
    with event_segment(rows) as reader:
        assert list(reader.tables(Window(start=60), about=(555, 555))) == []


def test_some_columns_are_read_without_the_others() -> None:
    batch = Batch([b"v"] * 4, priority=7, expires_at=array("q", [0, 0, 9, 0]))
    rows = Rows(range(4), [1, 2, 3, 4], batch)
    for window, offsets in [(Window(), [0, 1, 2, 3]), (Window(2), [2, 3]), (Window(from_us=2, to_us=4), [1, 2])]:
        for names in (["priority", "offset"], ["expires_at"], ["timestamp", "headers"]):
            with segment(rows)[0] as reader:
                (table,) = reader.tables(window, columns=names)
                (whole,) = reader.tables(window)
            assert table.equals(whole.select(names))
            assert whole.column("offset").to_pylist() == offsets
    with event_segment([Event(EventKind.ACKED, 1, 5, 3, "g"), Event(EventKind.ACKED, 1, 9, 1, "h")]) as reader:
        (table,) = reader.tables(Window(), about=(9, 9), columns=["group"])
        assert table.to_pydict() == {"group": ["h"]}


def test_a_segment_of_an_older_checkpoint_is_known_without_the_newer_fields() -> None:
    info = segment(numbered([1, 2, 3]))[1]
    older = msgspec.msgpack.encode(msgspec.to_builtins(info)[:10])
    known = msgspec.msgpack.decode(older, type=SegmentInfo)
    assert known == msgspec.structs.replace(info, priority=None)


def test_a_segment_is_a_parquet_file_that_says_whose_it_is() -> None:
    chunks, info = write_segment("messages", "orders", 2, [messages_to_arrow(numbered([1, 2, 3]), 2)])
    whole = b"".join(chunks)
    assert (len(whole), whole[:4], whole[-4:]) == (info.size_bytes, b"PAR1", b"PAR1")
    metadata = pq.read_schema(pa.BufferReader(whole)).metadata
    assert (metadata[b"penstock.topic"], metadata[b"penstock.partition"]) == (b"orders", b"2")
    assert pq.read_table(io.BytesIO(whole), page_checksum_verification=True).num_rows == 3


def test_the_name_of_a_segment_sorts_by_its_first_offset() -> None:
    assert NAME == "topics/orders/messages/2/00000000000000045678.parquet"
    names = [segment_name("orders", "messages", 2, base) for base in (0, 9, 10, 99, 2**63 - 1)]
    assert names == sorted(names)


# Windows.


@pytest.mark.usefixtures("small_row_groups")
def test_a_window_of_offsets_reads_only_the_row_groups_that_meet_it() -> None:
    for window, groups in [
        (Window(), 10),
        (Window(0, 10), 1),
        (Window(9, 11), 2),
        (Window(42, 43), 1),
        (Window(95), 1),
        (Window(100), 0),
        (Window(30, 60), 3),
    ]:
        with segment(numbered(list(range(1000, 1100))))[0] as reader:
            offsets = [row[0] for row in found(reader, window)]
            assert offsets == list(range(window.start, min(window.end, 100)))
            assert reader.row_groups_read == groups, (window.start, window.end)


@pytest.mark.usefixtures("small_row_groups")
def test_a_window_of_time_reads_only_the_row_groups_that_meet_it() -> None:
    for window, groups in [
        (Window(from_us=1000), 10),
        (Window(from_us=1090), 1),
        (Window(from_us=1095, to_us=1096), 1),
        (Window(to_us=1010), 1),
        (Window(to_us=1011), 2),
        (Window(from_us=1100), 0),
        (Window(to_us=1000), 0),
        (Window(start=20, end=40, from_us=1030, to_us=1060), 1),
    ]:
        with segment(numbered(list(range(1000, 1100))))[0] as reader:
            times = [row[1] for row in found(reader, window)]
            first, last = max(1000 + window.start, window.from_us), min(1000 + window.end, window.to_us, 1100)
            assert times == list(range(first, last))
            assert reader.row_groups_read == groups, (window.from_us, window.to_us)


@pytest.mark.usefixtures("small_row_groups")
def test_rows_that_are_not_looked_at_are_not_read_from_the_disk() -> None:
    storage = MemoryStorage()
    segment(numbered(list(range(100))), storage=storage)[0].__exit__()
    _, info = segment(numbered(list(range(100))), storage=storage)
    start = storage.contents[NAME].index(b"PAR1") + 4
    storage.contents[NAME][start] ^= 1  # the first row group is damaged
    with SegmentReader(storage, NAME, "messages", info) as reader:
        assert [row[0] for row in found(reader, Window(50))] == list(range(50, 100))
        with pytest.raises(CorruptData, match="row group 0 does not match its checksum"):
            found(reader, Window(0, 1))


STEPS = st.lists(st.integers(-30, 40), min_size=1, max_size=60)
NEAR_US = st.integers(900, 1200)  # where such clocks are


def wandering(steps: list[int]) -> list[int]:
    """Timestamps of a clock that also steps back."""
    now_us, times = 1000, []
    for step in steps:
        now_us = max(0, now_us + step)
        times.append(now_us)
    return times


@settings(max_examples=60)
@given(STEPS, NEAR_US, st.integers(1, 40))
def test_L12_the_first_row_at_or_after_a_time_equals_a_linear_scan_also_when_the_clock_steps_back(
    steps: list[int], time_us: int, group: int
) -> None:
    times = wandering(steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "ROW_GROUP_ROWS", group)
        reader, info = segment(numbered(times, first=500))
    assert (info.first_us, info.last_us) == (min(times), max(times))
    with reader:
        rows = next((messages_from_arrow(table) for table in reader.tables(Window(from_us=time_us))), None)
    first = None if rows is None else rows.offsets[0]
    assert first == next((500 + place for place, time in enumerate(times) if time >= time_us), None)


@settings(max_examples=60)
@given(STEPS, st.integers(0, 5), st.integers(5, 80), st.just(0) | NEAR_US, st.just(5000) | NEAR_US)
def test_L12_any_window_equals_a_linear_scan_also_when_the_clock_steps_back(
    steps: list[int], start: int, end: int, from_us: int, to_us: int
) -> None:
    times = wandering(steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "ROW_GROUP_ROWS", 7)
        reader, _ = segment(numbered(times))
    with reader:
        offsets = [row[0] for row in found(reader, Window(start, end, from_us, to_us))]
    assert offsets == [at for at, time in enumerate(times) if start <= at < end and from_us <= time < to_us]


# Row groups.


def sizes(reader: SegmentReader) -> list[int]:
    return [len(table) for table in reader.tables(Window())]


@pytest.mark.usefixtures("small_row_groups")
def test_small_batches_share_a_row_group_and_large_ones_are_cut() -> None:
    parts = [numbered([1] * 3, first=3 * number) for number in range(5)]
    with segment(*parts)[0] as reader:
        assert sizes(reader) == [9, 6]
    with segment(numbered([1] * 25))[0] as reader:
        assert sizes(reader) == [10, 10, 5]


def test_large_values_cut_row_groups_by_bytes() -> None:
    values = [b"v" * (3 << 20)] * 7
    parts = [Rows([offset], [1], Batch([value])) for offset, value in enumerate(values)]
    with segment(*parts)[0] as reader:
        assert sizes(reader) == [2, 2, 2, 1]
        assert [row[2] for row in found(reader)] == values


def test_a_value_larger_than_a_row_group_has_one_of_its_own() -> None:
    large = bytes(range(256)) * (36 << 10)  # 9 MiB
    parts = [Rows([offset], [1], Batch([value])) for offset, value in enumerate([b"a", large, b"b"])]
    with segment(*parts)[0] as reader:
        assert sizes(reader) == [1, 1, 1]
        assert [row[2] for row in found(reader, Window(1, 2))] == [large]


# Damage.


def test_L9_a_bit_flipped_at_every_byte_of_a_segment_is_detected_and_never_served() -> None:
    storage = MemoryStorage()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "ROW_GROUP_ROWS", 2)
        reader, info = segment(numbered([1000, 2000, 3000]), storage=storage)
    rows = found(reader)
    content = storage.contents[NAME]
    assert info.size_bytes == len(content) < 8192
    opened = 0
    for position in range(len(content)):
        content[position] ^= 1 << position % 8
        try:
            reader = SegmentReader(storage, NAME, "messages", info)
        except CorruptData as damage:
            assert damage.position == len(content) - info.footer_bytes <= position
        else:
            opened += 1
            with pytest.raises(CorruptData, match=f"^{NAME} at byte .*: row group . does not match") as found_damage:
                list(reader.tables(Window()))
            assert found_damage.value.position <= position
            served: list[Row] = []
            with pytest.raises(CorruptData, match="does not match its checksum"):
                served.extend(row for table in reader.tables(Window()) for row in by_row(messages_from_arrow(table)))
            assert served == rows[: len(served)]
        content[position] ^= 1 << position % 8
    assert opened == len(content) - info.footer_bytes
    with SegmentReader(storage, NAME, "messages", info) as reader:
        list(reader.tables(Window()))


def test_L9_a_segment_cut_anywhere_is_detected() -> None:
    storage = MemoryStorage()
    _, info = segment(numbered([1, 2, 3]), storage=storage)
    whole = bytes(storage.contents[NAME])
    for cut in range(0, len(whole), 97):
        put_file(storage, NAME, [whole[:cut]])
        with pytest.raises(CorruptData, match="the footer does not match its checksum"):
            SegmentReader(storage, NAME, "messages", info)


def test_L9_another_segment_in_its_place_is_detected() -> None:
    storage = MemoryStorage()
    _, info = segment(numbered([1, 2, 3]), storage=storage)
    segment(numbered([1, 2, 4]), storage=storage)
    with pytest.raises(CorruptData):
        SegmentReader(storage, NAME, "messages", info)


def test_a_segment_that_is_not_there_is_a_missing_file() -> None:
    _, info = segment(numbered([1]))
    with pytest.raises(FileNotFoundError):
        SegmentReader(MemoryStorage(), NAME, "messages", info)


def test_a_segment_is_read_by_the_thread_that_asks_so_that_none_of_arrows_outlives_the_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: set[int] = set()
    load = _CheckedBytes.read

    def watched(file: _CheckedBytes, size: int = -1) -> bytes:
        threads.add(threading.get_ident())
        return load(file, size)

    monkeypatch.setattr(_CheckedBytes, "read", watched)
    reader, _ = segment(numbered([1] * 100))
    with reader:
        assert len(found(reader)) == 100
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("damaged", ["nothing", "a row group", "the footer"])
def test_R4_no_descriptor_stays_open_after_a_segment_was_read_or_found_damaged(damaged: str, tmp_path: Path) -> None:
    descriptors = Path("/proc/self/fd")
    storage = FileStorage(tmp_path)
    reader, info = segment(numbered([1, 2, 3]), storage=storage)
    reader.__exit__()
    if damaged != "nothing":
        content = bytearray((tmp_path / NAME).read_bytes())
        content[10 if damaged == "a row group" else -10] ^= 1
        (tmp_path / NAME).write_bytes(content)
    before = len(list(descriptors.iterdir()))
    failures = 0
    for _ in range(20):
        try:
            with SegmentReader(storage, NAME, "messages", info) as reader:
                list(reader.tables(Window()))
        except CorruptData:
            failures += 1
    assert failures == (0 if damaged == "nothing" else 20)
    assert len(list(descriptors.iterdir())) == before
