"""Settling: what becomes a segment, what is carried on, and that nothing changes for readers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.journal.layout import file_name
from penstock.model.errors import StorageFailed
from penstock.model.message import Message
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Engine
from penstock.shard.upkeep import settling
from penstock.shard.upkeep.settling import Settler
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock

EngineOn = Callable[..., Engine]


def publish(engine: Engine, topic: str, *values: bytes) -> None:
    _, commit = engine.publish_many(topic, list(values))
    assert commit is not None
    engine.journal.wait(commit)


def offsets(engine: Engine, topic: str) -> list[int]:
    log = engine.topic(topic).partitions[0].messages
    return [message.offset for message in LogReader(engine, log).messages(Window())]


def segments(storage: MemoryStorage) -> list[str]:
    return [name for name in storage.contents if name.endswith(".parquet")]


def test_L13_settling_changes_nothing_that_a_reader_sees(engine_on: EngineOn) -> None:
    engine = engine_on(MemoryStorage())
    log = None
    for n in range(50):
        message = Message(b"%d" % n, key=b"k", headers={"n": str(n)}, priority=n, delay=n or None, dedupe_id=str(n))
        message.expires_in = n or None
        engine.publish("t", message)
        if n % 7 == 0:
            engine.journal.flush()
    engine.journal.flush()
    log = engine.topic("t").partitions[0].messages
    before = list(LogReader(engine, log).messages(Window()))
    Settler(engine).settle(everything=True)
    assert len(log) == 0
    assert len(log.segments) == 1
    assert list(LogReader(engine, log).messages(Window())) == before


def test_L6_a_reader_sees_no_seam_when_settling_happens_in_the_middle(engine_on: EngineOn) -> None:
    engine = engine_on(MemoryStorage())
    for n in range(20):
        publish(engine, "t", *[b"%d" % (n * 10 + m) for m in range(10)])
    reader = LogReader(engine, engine.topic("t").partitions[0].messages).messages(Window(start=5))
    seen = [next(reader).offset for _ in range(37)]
    Settler(engine).settle(everything=True)
    publish(engine, "t", b"later")
    assert seen + [message.offset for message in reader] == list(range(5, 200))


def test_small_partitions_are_carried_on_and_not_made_into_tiny_files(engine_on: EngineOn) -> None:
    storage = MemoryStorage()
    engine = engine_on(storage, journal_file_bytes="64KiB", segment_min_bytes="16KiB")
    settler = Settler(engine)
    for turn in range(20):
        for n in range(30):
            publish(engine, f"small-{n}", b"%d" % turn)
        publish(engine, "big", *[bytes(1000)] * 60)
        settler.settle()
    assert all("/big/" in name for name in segments(storage))
    assert settler.blocks_carried > 0
    with engine.lock:
        assert len(engine.journal.sealed_files()) <= 1
    for n in range(30):
        assert offsets(engine, f"small-{n}") == list(range(20))
    again = engine_on_again(engine, storage, engine_on)
    for n in range(30):
        assert offsets(again, f"small-{n}") == list(range(20))


def engine_on_again(engine: Engine, storage: MemoryStorage, engine_on: EngineOn) -> Engine:
    engine.close()
    return engine_on(storage, journal_file_bytes="64KiB", segment_min_bytes="16KiB")


def test_many_partitions_that_share_the_journal_evenly_stay_within_the_budget_of_files(engine_on: EngineOn) -> None:
    storage = MemoryStorage()
    engine = engine_on(storage, journal_file_bytes="32KiB", segment_min_bytes="1MiB", journal_files_max=4)
    settler = Settler(engine)
    for turn in range(40):
        for n in range(50):
            publish(engine, f"even-{n}", bytes([turn]) * 200)
        settler.settle()
        with engine.lock:
            assert len(engine.journal.sealed_files()) <= 5
    assert len(segments(storage)) < 40 * 50 / 4
    for n in range(50):
        assert offsets(engine, f"even-{n}") == list(range(40))


def test_whatever_is_old_is_settled_however_little_it_is(engine_on: EngineOn, clock: VirtualClock) -> None:
    storage = MemoryStorage()
    engine = engine_on(storage, settle_after="1h")
    settler = Settler(engine)
    publish(engine, "t", b"x")
    clock.advance(3500)
    settler.settle()
    assert segments(storage) == []
    clock.advance(200)
    settler.settle()
    assert segments(storage) == ["topics/t/messages/0/00000000000000000000.parquet"]


def test_a_large_backlog_becomes_several_segments(engine_on: EngineOn) -> None:
    storage = MemoryStorage()
    engine = engine_on(storage, segment_max_bytes="64KiB")
    for _ in range(40):
        publish(engine, "t", bytes(10_000))
    Settler(engine).settle(everything=True)
    assert 6 <= len(segments(storage)) <= 9
    assert len(engine.topic("t").partitions[0].messages) == 0
    assert offsets(engine, "t") == list(range(40))


def test_L1_a_crash_at_every_step_of_settling_loses_nothing_and_doubles_nothing(engine_on: EngineOn) -> None:
    for step in range(60):
        storage = FaultyStorage(seed=step)
        options = {"journal_file_bytes": 4096, "segment_min_bytes": 600}
        engine = engine_on(storage, **options)
        for n in range(12):
            publish(engine, "big", bytes([n]) * 400)
            publish(engine, f"small-{n % 3}", b"%d" % n)
        settler = Settler(engine)
        storage.cut_power_after(step)
        try:
            settler.settle()
            settler.settle(everything=True)
        except (OSError, StorageFailed):
            pass  # the power went
        again = engine_on(storage.crash(), **options)
        assert offsets(again, "big") == list(range(12)), step
        for n in range(3):
            assert offsets(again, f"small-{n}") == list(range(4)), step
        Settler(again).settle(everything=True)
        assert offsets(again, "big") == list(range(12)), step


def test_a_reader_keeps_its_journal_file_while_it_is_settled_and_reused(engine_on: EngineOn) -> None:
    storage = MemoryStorage()
    engine = engine_on(storage, journal_file_bytes=4096)
    publish(engine, "t", b"first")
    publish(engine, "t", b"second")
    log = engine.topic("t").partitions[0].messages
    place = LogReader(engine, log)._next_place(Window())
    assert place is not None
    Settler(engine).settle(everything=True)
    assert [name for name in storage.contents if name.endswith(".spare")] == []
    place.file.unpin()  # type: ignore[union-attr]
    assert offsets(engine, "t") == [0, 1]


def test_a_rotten_block_keeps_nobody_else_from_being_settled(
    engine_on: EngineOn, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FaultyStorage()
    engine = engine_on(storage, journal_file_bytes=4096, journal_files_max=1)
    publish(engine, "rotten", b"the bad one")
    storage.flip_bit(file_name(1), engine.journal.position()[1] - 1)
    for n in range(30):
        publish(engine, f"healthy-{n % 2}", bytes([n]) * 900)
        Settler(engine).settle()
    Settler(engine).settle(everything=True)
    assert "rotten/0 cannot be settled: journal file 1 at byte" in caplog.text
    assert offsets(engine, "healthy-0") == list(range(15))
    assert len(engine.topic("healthy-1").partitions[0].messages) == 0
    assert len(engine.journal.files) == 1


def test_settling_now_makes_no_file_for_each_of_very_many_tiny_topics(
    engine_on: EngineOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "_TINY_FILES_MAX", 20)
    storage = MemoryStorage()
    engine = engine_on(storage)
    for n in range(30):
        publish(engine, f"tiny-{n}", b"x", b"y")
    publish(engine, "large", bytes(100_000))
    settler = Settler(engine)
    for _ in range(12):  # the files that this seals are cleaned, and do not pile up
        settler.settle(everything=True)
        publish(engine, "large", bytes(100_000))
    assert {name.split("/")[1] for name in segments(storage)} == {"large"}
    with engine.lock:
        assert len(engine.journal.sealed_files()) <= 1
    again = engine_on_again(engine, storage, engine_on)
    assert [offsets(again, f"tiny-{n}") for n in range(30)] == [[0, 1]] * 30


def test_settling_now_makes_files_of_tiny_topics_that_are_few_or_old(
    engine_on: EngineOn, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "_TINY_FILES_MAX", 20)
    storage = MemoryStorage()
    engine = engine_on(storage, settle_after="1h")
    for n in range(10):
        publish(engine, f"old-{n}", b"x")
    Settler(engine).settle(everything=True)
    assert len(segments(storage)) == 10
    for n in range(10):
        publish(engine, f"old-{n}", b"y")
    clock.advance(7200)
    for n in range(30):
        publish(engine, f"new-{n}", b"x")
    Settler(engine).settle(everything=True)
    assert len(segments(storage)) == 20
    assert {name.split("/")[1] for name in segments(storage)} == {f"old-{n}" for n in range(10)}
