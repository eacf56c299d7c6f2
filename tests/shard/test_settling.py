"""Settling: what becomes a segment, what is carried on, and that nothing changes for readers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.journal.layout import file_name
from penstock.model.errors import StorageFailed
from penstock.model.message import Message
from penstock.segments.window import Window
from penstock.shard import checkpoints
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.shard.upkeep import settling
from penstock.shard.upkeep.settling import Settler
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock

ShardOn = Callable[..., Shard]


def publish(shard: Shard, topic: str, *values: bytes) -> None:
    _, commit = shard.publish_many(topic, list(values))
    assert commit is not None
    shard.journal.wait(commit)


def offsets(shard: Shard, topic: str) -> list[int]:
    log = shard.topic(topic).partitions[0].messages
    return [message.offset for message in LogReader(shard, log).messages(Window())]


def segments(storage: MemoryStorage) -> list[str]:
    return [name for name in storage.contents if name.endswith(".parquet")]


def test_L13_settling_changes_nothing_that_a_reader_sees(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage())
    log = None
    for n in range(50):
        message = Message(b"%d" % n, key=b"k", headers={"n": str(n)}, priority=n, delay=n or None, dedupe_id=str(n))
        message.expires_in = n or None
        shard.publish("t", message)
        if n % 7 == 0:
            shard.journal.flush()
    shard.journal.flush()
    log = shard.topic("t").partitions[0].messages
    before = list(LogReader(shard, log).messages(Window()))
    Settler(shard).settle(everything=True)
    assert len(log) == 0
    assert len(log.segments) == 1
    assert list(LogReader(shard, log).messages(Window())) == before


def test_L6_a_reader_sees_no_seam_when_settling_happens_in_the_middle(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage())
    for n in range(20):
        publish(shard, "t", *[b"%d" % (n * 10 + m) for m in range(10)])
    reader = LogReader(shard, shard.topic("t").partitions[0].messages).messages(Window(start=5))
    seen = [next(reader).offset for _ in range(37)]
    Settler(shard).settle(everything=True)
    publish(shard, "t", b"later")
    assert seen + [message.offset for message in reader] == list(range(5, 200))


def test_small_partitions_are_carried_on_and_not_made_into_tiny_files(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage, journal_file_bytes="64KiB", segment_min_bytes="16KiB", journal_files_max=1)
    settler = Settler(shard)
    for turn in range(20):
        for n in range(30):
            publish(shard, f"small-{n}", b"%d" % turn)
        publish(shard, "big", *[bytes(1000)] * 60)
        settler.settle()
    assert all("/big/" in name for name in segments(storage))
    assert settler.blocks_carried > 0
    with shard.lock:
        assert len(shard.journal.sealed_files()) <= 1
    for n in range(30):
        assert offsets(shard, f"small-{n}") == list(range(20))
    again = engine_on_again(shard, storage, shard_on)
    for n in range(30):
        assert offsets(again, f"small-{n}") == list(range(20))


def engine_on_again(shard: Shard, storage: MemoryStorage, shard_on: ShardOn) -> Shard:
    shard.close()
    return shard_on(storage, journal_file_bytes="64KiB", segment_min_bytes="16KiB")


def test_many_partitions_that_share_the_journal_evenly_stay_within_the_budget_of_files(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage, journal_file_bytes="32KiB", segment_min_bytes="1MiB", journal_files_max=4)
    settler = Settler(shard)
    for turn in range(40):
        for n in range(50):
            publish(shard, f"even-{n}", bytes([turn]) * 200)
        settler.settle()
        with shard.lock:
            assert len(shard.journal.sealed_files()) <= 5
    assert len(segments(storage)) < 40 * 50 / 4
    for n in range(50):
        assert offsets(shard, f"even-{n}") == list(range(40))


def test_whatever_is_old_is_settled_however_little_it_is(shard_on: ShardOn, clock: VirtualClock) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage, settle_after="1h")
    settler = Settler(shard)
    publish(shard, "t", b"x")
    clock.advance(3500)
    settler.settle()
    assert segments(storage) == []
    clock.advance(200)
    settler.settle()
    assert segments(storage) == ["topics/t/messages/0/00000000000000000000.parquet"]


def test_a_large_backlog_becomes_several_segments(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage, segment_max_bytes="64KiB")
    for _ in range(40):
        publish(shard, "t", bytes(10_000))
    Settler(shard).settle(everything=True)
    assert 6 <= len(segments(storage)) <= 9
    assert len(shard.topic("t").partitions[0].messages) == 0
    assert offsets(shard, "t") == list(range(40))


def test_L1_a_crash_at_every_step_of_settling_loses_nothing_and_doubles_nothing(shard_on: ShardOn) -> None:
    for step in range(60):
        storage = FaultyStorage(seed=step)
        options = {"journal_file_bytes": 4096, "segment_min_bytes": 600}
        shard = shard_on(storage, **options)
        for n in range(12):
            publish(shard, "big", bytes([n]) * 400)
            publish(shard, f"small-{n % 3}", b"%d" % n)
        settler = Settler(shard)
        storage.cut_power_after(step)
        try:
            settler.settle()
            settler.settle(everything=True)
        except (OSError, StorageFailed):
            pass  # the power went
        again = shard_on(storage.crash(), **options)
        assert offsets(again, "big") == list(range(12)), step
        for n in range(3):
            assert offsets(again, f"small-{n}") == list(range(4)), step
        Settler(again).settle(everything=True)
        assert offsets(again, "big") == list(range(12)), step


def test_a_reader_keeps_its_journal_file_while_it_is_settled_and_reused(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage, journal_file_bytes=4096)
    publish(shard, "t", b"first")
    publish(shard, "t", b"second")
    log = shard.topic("t").partitions[0].messages
    place = LogReader(shard, log)._next_place(Window())
    assert place is not None
    Settler(shard).settle(everything=True)
    assert [name for name in storage.contents if name.endswith(".spare")] == []
    place.file.unpin()  # type: ignore[union-attr]
    assert offsets(shard, "t") == [0, 1]


def test_a_rotten_block_keeps_nobody_else_from_being_settled(
    shard_on: ShardOn, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage, journal_file_bytes=4096, journal_files_max=1)
    publish(shard, "rotten", b"the bad one")
    storage.flip_bit(file_name(1), shard.journal.position()[1] - 1)
    for n in range(30):
        publish(shard, f"healthy-{n % 2}", bytes([n]) * 900)
        Settler(shard).settle()
    Settler(shard).settle(everything=True)
    assert "rotten/0 cannot be settled: journal file 1 at byte" in caplog.text
    assert offsets(shard, "healthy-0") == list(range(15))
    assert len(shard.topic("healthy-1").partitions[0].messages) == 0
    assert len(shard.journal.files) == 1


def test_settling_now_makes_no_file_for_each_of_very_many_tiny_topics(
    shard_on: ShardOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "_TINY_FILES_MAX", 20)
    storage = MemoryStorage()
    shard = shard_on(storage, journal_files_max=1)
    for n in range(30):
        publish(shard, f"tiny-{n}", b"x", b"y")
    publish(shard, "large", bytes(100_000))
    settler = Settler(shard)
    for _ in range(12):  # the files that this seals are cleaned, and do not pile up
        settler.settle(everything=True)
        publish(shard, "large", bytes(100_000))
    assert {name.split("/")[1] for name in segments(storage)} == {"large"}
    with shard.lock:
        assert len(shard.journal.sealed_files()) <= 1
    again = engine_on_again(shard, storage, shard_on)
    assert [offsets(again, f"tiny-{n}") for n in range(30)] == [[0, 1]] * 30


def test_settling_now_makes_files_of_tiny_topics_that_are_few_or_old(
    shard_on: ShardOn, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "_TINY_FILES_MAX", 20)
    storage = MemoryStorage()
    shard = shard_on(storage, settle_after="1h")
    for n in range(10):
        publish(shard, f"old-{n}", b"x")
    Settler(shard).settle(everything=True)
    assert len(segments(storage)) == 10
    for n in range(10):
        publish(shard, f"old-{n}", b"y")
    clock.advance(7200)
    for n in range(30):
        publish(shard, f"new-{n}", b"x")
    Settler(shard).settle(everything=True)
    assert len(segments(storage)) == 20
    assert {name.split("/")[1] for name in segments(storage)} == {f"old-{n}" for n in range(10)}


def test_what_nobody_writes_to_any_more_is_not_carried_again_and_again(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage, journal_file_bytes="64KiB", segment_min_bytes="16KiB")
    settler = Settler(shard)
    for n in range(30):
        publish(shard, f"small-{n}", b"x")
    for _ in range(40):
        publish(shard, "big", *[bytes(1000)] * 60)
        settler.settle()
    assert settler.blocks_carried == 0
    with shard.lock:
        assert len(shard.journal.sealed_files()) <= 2
    for turn in range(40):
        publish(shard, f"small-{turn % 30}", b"y")
        publish(shard, "big", *[bytes(1000)] * 60)
        settler.settle()
        with shard.lock:
            assert len(shard.journal.sealed_files()) <= 5
    assert 0 < settler.blocks_carried < 40 * 30
    again = engine_on_again(shard, storage, shard_on)
    assert sum(len(offsets(again, f"small-{n}")) for n in range(30)) == 70


class CountedStorage(FaultyStorage):
    """Counts the bytes of checkpoints."""

    checkpoint_bytes = 0

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if new.startswith("checkpoint"):
            self.checkpoint_bytes += len(self.contents[new])


def test_a_large_checkpoint_is_written_less_often_than_journal_files_are_sealed(
    shard_on: ShardOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_SMALL_BYTES", 0)
    storage = CountedStorage()
    options = {"journal_file_bytes": "64KiB", "segment_min_bytes": "16KiB", "journal_files_max": 100}
    shard = shard_on(storage, **options)
    settler = Settler(shard)
    for n in range(100):
        publish(shard, f"small-{n}", b"x")
    shard.checkpoint()
    storage.checkpoint_bytes = 0
    for turn in range(60):
        publish(shard, "big", *[bytes([turn]) * 1000] * 60)
        settler.settle()
    published = 60 * 60_000
    assert 0 < storage.checkpoint_bytes < published / 3
    again = shard_on(storage.crash(), **options)
    assert offsets(again, "big") == list(range(3600))
    Settler(again).settle(everything=True)
    assert len(again.topic("big").partitions[0].messages) == 0
    assert offsets(again, "big") == list(range(3600))


def test_a_large_checkpoint_waits_neither_for_more_files_than_there_may_be_nor_with_what_is_old(
    shard_on: ShardOn, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_SMALL_BYTES", 0)
    options = {"journal_file_bytes": "16KiB", "segment_min_bytes": "4KiB", "journal_files_max": 3}
    shard = shard_on(MemoryStorage(), settle_after="1h", **options)
    settler = Settler(shard)
    for n in range(500):
        publish(shard, f"small-{n}", b"x")
    settled = []
    for turn in range(20):
        publish(shard, "big", *[bytes([turn]) * 100] * 100)
        settler.settle()
        settled.append(settler.segments_written)
        with shard.lock:
            assert len(shard.journal.sealed_files()) <= 4
    assert len(set(settled)) < 15
    clock.advance(7200)
    settler.settle()
    assert len(shard.topic("big").partitions[0].messages) == 0
