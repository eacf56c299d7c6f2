"""Reading by offset and by time, over segments and journal, as messages and as Arrow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock.delivery.offsets import from_range
from penstock.model.batch import decode_payload
from penstock.segments import writer
from penstock.segments.window import Rows, Window
from penstock.shard.reading.contents import Contents, Unreadable
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.shard.upkeep.settling import Settler
from penstock.testing import MemoryStorage, VirtualClock

START_S = VirtualClock.START_US / 1_000_000


@pytest.fixture
def mixed(clock: VirtualClock) -> Iterator[penstock.Broker]:
    """A topic whose first 60 messages are in two segments and whose last 40 are in the journal, a second apart."""
    with penstock.open(storage=MemoryStorage(), clock=clock) as broker:
        for n in range(100):
            broker.publish("t", f"{n}")
            clock.advance(1)
            if n in (29, 59):
                broker.settle()
        yield broker


def offsets(messages: Iterator[penstock.StoredMessage]) -> list[int]:
    return [message.offset for message in messages]


def test_L14_a_full_scan_by_every_path_returns_every_offset(mixed: penstock.Broker) -> None:
    assert offsets(mixed.read("t")) == list(range(100))
    table = pa.Table.from_batches(mixed.read_arrow("t"))
    assert table.column("offset").to_pylist() == list(range(100))
    assert table.column("value").to_pylist() == [b"%d" % n for n in range(100)]


def test_reading_starts_at_any_offset_and_stops_at_any_limit(mixed: penstock.Broker) -> None:
    for start in (0, 1, 29, 30, 31, 59, 60, 61, 99, 100, 1000):
        for limit in (0, 1, 35, None):
            expected = list(range(start, 100))[:limit]
            assert offsets(mixed.read("t", offset=start, limit=limit)) == expected


def test_a_window_of_time_holds_its_start_and_not_its_end(mixed: penstock.Broker) -> None:
    for start, end in ((0, 100), (10, 20), (25, 65), (70, 71), (50, 50), (99, 200), (-5, 1)):
        window = mixed.read("t", from_time=START_S + start, to_time=START_S + end)
        assert offsets(window) == [n for n in range(100) if start <= n < end]


def test_times_are_given_as_datetime_seconds_or_text(mixed: penstock.Broker) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=90)
    for time in (moment, moment.timestamp(), moment.isoformat()):
        assert offsets(mixed.read("t", from_time=time)) == list(range(90, 100))
    with pytest.raises(penstock.InvalidArgument, match="with a time zone"):
        mixed.read("t", from_time="2026-01-01T00:00:00")


def test_L12_seeking_by_time_finds_the_first_message_at_or_after_it(mixed: penstock.Broker) -> None:
    for second in (0, 0.5, 29, 29.5, 30, 59.5, 60, 75, 98.5):
        assert mixed.offset_at("t", START_S + second) == int(-(-second // 1))
    assert mixed.offset_at("t", START_S + 99.5) == 100


def test_L12_seeking_by_time_equals_a_scan_when_the_clock_stepped_back(clock: VirtualClock) -> None:
    with penstock.open(storage=MemoryStorage(), clock=clock) as broker:
        for n in range(60):
            broker.publish("t", f"{n}")
            clock.advance(1)
            if n % 20 == 10:
                clock.step_wall(-13)
            if n % 15 == 14:
                broker.settle()
        stored = list(broker.read("t"))
        for second in range(-1, 60):
            time_us = VirtualClock.START_US + second * 1_000_000
            scanned = next((m.offset for m in stored if m.timestamp_us >= time_us), 60)
            assert broker.offset_at("t", time_us / 1_000_000) == scanned
            window = broker.read("t", from_time=time_us / 1_000_000, to_time=time_us / 1_000_000 + 5)
            assert list(window) == [m for m in stored if time_us <= m.timestamp_us < time_us + 5_000_000]


def test_a_window_reads_no_more_than_the_row_groups_it_touches(
    shard_on: Callable[..., Shard], clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", 100)
    shard = shard_on(MemoryStorage())
    for n in range(50):
        shard.publish_many("t", [b"%d" % n] * 100)
        shard.journal.flush()
        clock.advance(1)
    Settler(shard).settle(everything=True)
    log = shard.topic("t").partitions[0].messages
    reader = LogReader(shard, log)
    start_us = VirtualClock.START_US + 20_000_000
    assert len(list(reader.messages(Window(from_us=start_us, to_us=start_us + 2_000_000)))) == 200
    assert reader.row_groups_read == 2
    assert len(list(reader.messages(Window(start=4950)))) == 50
    assert reader.row_groups_read == 3


def test_all_partitions_are_read_one_after_the_other(broker: penstock.Broker) -> None:
    broker.create_topic("wide", partitions=3)
    for n in range(30):
        broker.publish("wide", f"{n}", partition=n % 3)
    assert [(m.partition, m.offset) for m in broker.read("wide")] == [(p, o) for p in range(3) for o in range(10)]
    assert [m.offset for m in broker.read("wide", 1)] == list(range(10))
    with pytest.raises(penstock.TopicNotFound, match="no partition 3: it has 0 to 2"):
        broker.read("wide", 3)


@pytest.mark.parametrize(
    ("argument", "value"), [("offset", -1), ("offset", "1"), ("limit", -1), ("from_time", "yesterday"), ("to_time", -5)]
)
def test_wrong_bounds_are_refused(broker: penstock.Broker, argument: str, value: object) -> None:
    broker.publish("t", "x")
    with pytest.raises(penstock.InvalidArgument):
        broker.read("t", **{argument: value})  # type: ignore[arg-type]


def test_a_read_ends_at_what_was_there_when_it_began(broker: penstock.Broker) -> None:
    broker.publish("t", "0")
    seen = 0
    for message in broker.read("t"):
        broker.publish("t", "more")
        seen += 1
        assert message.offset == 0
    assert seen == 1


def test_L2_every_read_path_gives_the_same_value_for_an_offset(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish_many("t", [penstock.Message(f"{n}", key=f"k{n}", headers={"n": str(n)}) for n in range(10)])
        live = list(broker.read("t"))
        arrow_live = pa.Table.from_batches(broker.read_arrow("t"))
        broker.settle()
        assert list(broker.read("t")) == live
        assert pa.Table.from_batches(broker.read_arrow("t")).equals(arrow_live)
    with penstock.open(tmp_path) as broker:
        assert list(broker.read("t")) == live


def test_L14_a_segment_that_vanished_is_said_and_not_skipped(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish("t", "x")
        broker.settle()
        next(tmp_path.rglob("*.parquet")).unlink()
        with pytest.raises(penstock.CorruptData, match="missing"):
            list(broker.read("t"))


class Door:
    """A lock that tells when so many have come to it."""

    def __init__(self, count: int) -> None:
        self._lock, self._count = threading.Lock(), count
        self._arrived = iter(range(1, count + 1))
        self.all_here = threading.Event()

    def __enter__(self) -> None:
        if next(self._arrived) == self._count:
            self.all_here.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_threads_that_come_to_a_row_group_together_decode_it_once(
    mixed: penstock.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = mixed.shards.of("t").topic("t").partitions[0].messages
    contents, door, loaded = Contents(mixed.shards.of("t").core), Door(8), list[int]()
    contents._loading = [door] * len(contents._loading)  # type: ignore[list-item]
    chunk = LogReader.chunk

    def decode(reader: LogReader, window: Window) -> tuple[Rows, int] | None:
        loaded.append(window.start)
        assert window.start >= 60 or door.all_here.wait(30)
        return chunk(reader, window)

    def read(start: int, end: int) -> list[int]:
        return [offset for rows in contents.rows(log, from_range(start, end), []) for offset in rows.offsets]

    monkeypatch.setattr(LogReader, "chunk", decode)
    with ThreadPoolExecutor(8) as threads:
        reading = [threads.submit(read, 0, 10 + n) for n in range(7)]
        assert read(60, 65) == list(range(60, 65)), "what is in the journal waits for no row group"
        reading.append(threads.submit(read, 0, 17))
        for n, future in enumerate(reading):
            assert future.result(30) == list(range(10 + n))
    assert sorted(loaded) == [0, 60, 61, 62, 63, 64]
    assert read(0, 30) == list(range(30))
    assert len(loaded) == 6


def sent(
    broker: penstock.Broker, start: int, end: int, bytes_max: int = 1 << 20
) -> list[tuple[int, bool, list[bytes]]]:
    """What is sent of these offsets: the first of each part, whether it was left encoded, and its values."""
    shard = broker.shards.of("t")
    log, unreadable = shard.topic("t").partitions[0].messages, Unreadable()
    rows = list(Contents(shard.core).rows_to_send(log, from_range(start, end), bytes_max, unreadable))
    assert not unreadable
    return [(part.offsets[0], not part.batch.values, decode_payload(part.batch.encode_payload())[1]) for part in rows]


def test_whole_blocks_are_sent_as_they_were_written_and_parts_of_them_are_decoded() -> None:
    values = [b"%d" % n for n in range(30)]
    with penstock.open(storage=MemoryStorage()) as broker:
        for start in (0, 10, 20):
            broker.publish_many("t", values[start : start + 10])
        assert sent(broker, 0, 30) == [(start, True, values[start : start + 10]) for start in (0, 10, 20)]
        assert sent(broker, 0, 15) == [(0, True, values[:10]), (10, False, values[10:15])]
        assert sent(broker, 5, 20) == [(5, False, values[5:10]), (10, False, values[10:20])]
        broker.settle()
        assert sent(broker, 0, 30) == [(0, False, values)]


def test_a_block_that_does_not_fit_is_decoded_so_that_some_of_it_can_be_sent() -> None:
    values = [b"%d" % n for n in range(20)]
    with penstock.open(storage=MemoryStorage()) as broker:
        broker.publish_many("t", values[:10])
        broker.publish_many("t", values[10:])
        assert sent(broker, 0, 20, bytes_max=500) == [(0, True, values[:10]), (10, False, values[10:])]
        assert sent(broker, 0, 20, bytes_max=100) == [(0, False, values[:10]), (10, False, values[10:])]


def test_a_damaged_block_is_found_when_it_is_sent_too() -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage) as broker:
        broker.publish_many("t", [b"first"] * 10)
        broker.publish_many("t", [b"second"] * 10)
        log = broker.shards.of("t").topic("t").partitions[0].messages
        broker.shards.of("t").journal.files[log.block(0).sequence].handle.write(log.block(0).position + 5, [b"damage"])
        unreadable = Unreadable()
        rows = list(Contents(broker.shards.of("t").core).rows_to_send(log, from_range(0, 20), 1 << 20, unreadable))
        assert [list(part.offsets) for part in rows] == [list(range(10, 20))]
        assert [list(lost) for lost, _ in unreadable] == [list(range(10))]


def test_a_rescheduled_message_is_sent_with_its_new_time(clock: VirtualClock) -> None:
    with penstock.open(storage=MemoryStorage(), clock=clock) as broker:
        identity = broker.publish("t", "later", delay=10)
        due_us = clock.wall_us() + 60_000_000
        broker.reschedule_delayed(identity, delay=60)
        log = broker.shards.of("t").topic("t").partitions[0].messages
        (rows,) = Contents(broker.shards.of("t").core).rows_to_send(log, from_range(0, 1), 1 << 20, [])
        assert not rows.batch.values
        assert rows.batch.deliver_at is not None
        assert list(rows.batch.deliver_at) == [due_us]
