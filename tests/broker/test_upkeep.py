"""Checkpoints, closing, forks and tidying: what happens beside publishing harms nothing that was acknowledged."""

from __future__ import annotations

import enum
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.journal.layout import FILE_HEADER_BYTES
from penstock.model.message import Message
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Engine
from penstock.shard.upkeep import retention
from penstock.shard.upkeep.retention import retain
from penstock.shard.upkeep.settling import Settler
from penstock.shard.upkeep.tidying import tidy
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock

EngineOn = Callable[..., Engine]


def publish(engine: Engine, value: bytes, topic: str = "t") -> None:
    _, commit = engine.publish(topic, Message(value))
    assert commit is not None
    engine.journal.wait(commit)


def values(engine: Engine, topic: str = "t") -> list[bytes]:
    log = engine.topic(topic).partitions[0].messages
    return [message.value for message in LogReader(engine, log).messages(Window())]


def test_L4_a_retry_is_stored_when_a_checkpoint_came_before_the_first_try_was_committed(engine_on: EngineOn) -> None:
    storage = FaultyStorage()
    engine = engine_on(storage)
    publish(engine, b"before")
    engine.publish("t", Message(b"one", dedupe_id="a"))
    engine.publish_many("t", [b"two"], "p", 7)
    engine.checkpoint()
    again = engine_on(storage.crash())
    for retry in (
        again.publish("t", Message(b"one", dedupe_id="a"))[1],
        again.publish_many("t", [b"two"], "p", 7)[1],
    ):
        assert retry is not None
        again.journal.wait(retry)
    assert values(again) == [b"before", b"one", b"two"]


def test_L3_F2_a_topic_whose_creation_was_refused_does_not_come_back_beside_its_successor(engine_on: EngineOn) -> None:
    storage = FaultyStorage()
    engine = engine_on(storage)
    publish(engine, b"x", "other")
    commit = engine.create_topic("t", {})
    engine.checkpoint()
    storage.fail("write", errno.ENOSPC)
    with pytest.raises(penstock.DiskFull):
        engine.journal.wait(commit)
    publish(engine, b"first")
    again = engine_on(storage.crash())
    assert [topic.name for topic in again.catalog.by_id.values()] == ["other", "t"]
    again.journal.wait(again.delete_topic("t"))
    identity, _ = engine_on(storage_of(again).crash()).publish("t", Message(b"second"))
    assert identity.offset == 1


def storage_of(engine: Engine) -> FaultyStorage:
    assert isinstance(engine.storage, FaultyStorage)
    return engine.storage


class Name(enum.StrEnum):
    ORDER = "order 7"


class Number(enum.IntEnum):
    SEVEN = 7


def test_arguments_of_derived_types_are_stored_as_what_they_are(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish(Name.ORDER.replace(" ", "-"), Name.ORDER, key=Name.ORDER, headers={Name.ORDER: Name.ORDER})
        message = penstock.Message(b"x", dedupe_id=Name.ORDER, priority=Number.SEVEN, partition=Number.SEVEN)
        broker.create_topic("wide", partitions=8)
        broker.publish_many("wide", [message])
        broker.publish_many("wide", ["x"], producer=Name.ORDER, sequence=Number.SEVEN)
        with pytest.raises(penstock.InvalidArgument, match="whole number"):
            broker.publish_many("wide", ["x"], producer="p", sequence=True)
    with penstock.open(tmp_path) as broker:
        (stored,) = broker.read("order-7")
        assert (stored.value, stored.key, stored.headers) == (b"order 7", b"order 7", {"order 7": "order 7"})
        (seventh,) = broker.read("wide", 7, limit=1)
        assert (seventh.dedupe_id, seventh.priority) == ("order 7", 7)


def test_flushing_and_closing_end_while_others_go_on_publishing(tmp_path: Path) -> None:
    broker = penstock.open(tmp_path, journal_file_bytes="256KiB")
    acknowledged: list[int] = []

    def work() -> None:
        try:
            while True:
                acknowledged.append(broker.publish("t", b"x" * 200).offset)
        except penstock.BrokerClosed:
            pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        broker.settle()
    broker.close()
    for thread in threads:
        thread.join()
    with penstock.open(tmp_path) as again:
        assert [message.offset for message in again.read("t")] == sorted(acknowledged)


def test_a_closed_broker_never_touches_the_directory_again(tmp_path: Path) -> None:
    old = penstock.open(tmp_path)
    old.publish("t", "old")
    old.close()
    with penstock.open(tmp_path) as broker:
        broker.publish("t", "new")
        for use in (old.settle, old.retain, old.engine.checkpoint):
            with pytest.raises(penstock.BrokerClosed):
                use()
        old.close()
    with penstock.open(tmp_path) as broker:
        assert [message.value for message in broker.read("t")] == [b"old", b"new"]


def test_a_fork_owns_nothing_of_the_broker(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish("t", "before")
        child = os.fork()
        if child == 0:
            try:
                broker.publish("t", "child")
            except penstock.BrokerClosed:
                broker.close()
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert broker.publish("t", "parent").offset == 1
    with penstock.open(tmp_path) as broker:
        assert [message.value for message in broker.read("t")] == [b"before", b"parent"]


def test_a_sync_that_failed_at_a_checkpoint_frees_no_journal_file(engine_on: EngineOn) -> None:
    storage = FaultyStorage()
    engine = engine_on(storage, sync="never", journal_file_bytes=4096, segment_min_bytes=2000)
    publish(engine, b"small", "small")
    for n in range(20):
        publish(engine, bytes([n]) * 400)
    engine.journal.sync()
    storage.fail("sync", errno.EIO, always=True, name_contains="journal/")
    with pytest.raises((penstock.StorageFailed, OSError)):
        Settler(engine).settle()
    storage.heal()
    again = engine_on(storage.crash(), sync="never")
    assert values(again, "small") == [b"small"]
    assert values(again)[:10] == [bytes([n]) * 400 for n in range(10)]


def test_R5_a_sync_that_finds_the_disk_full_freezes_like_any_other(engine_on: EngineOn) -> None:
    storage = FaultyStorage()
    engine = engine_on(storage, sync="never", journal_file_bytes=4096)
    publish(engine, b"first")
    storage.fail("sync", errno.ENOSPC, name_contains="0001.journal")
    with pytest.raises(penstock.StorageFailed):
        for n in range(20):
            publish(engine, bytes([n]) * 400)


def test_a_crash_between_carrying_and_the_checkpoint_leaves_no_file_behind(engine_on: EngineOn) -> None:
    storage = FaultyStorage()
    options = {"journal_file_bytes": 4096, "segment_min_bytes": 1000}
    engine = engine_on(storage, **options)
    publish(engine, b"small", "small")
    for n in range(12):
        publish(engine, bytes([n]) * 400)
    storage.fail("create", errno.EIO, name_contains="checkpoint")
    with pytest.raises(OSError, match="Input/output"):
        Settler(engine).settle()
    again = engine_on(storage.crash(), **options)
    for n in range(12):
        publish(again, bytes([n]) * 400)
    Settler(again).settle()
    with again.lock:
        assert len(again.journal.sealed_files()) <= 1
    assert values(again, "small") == [b"small"]


def test_one_failing_archive_holds_up_no_other_topic(
    engine_on: EngineOn, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FaultyStorage()
    engine = engine_on(storage)
    archive = storage.elsewhere("cold")
    assert isinstance(archive, FaultyStorage)
    engine.journal.wait(engine.create_topic("a", {"retention_age": "1d", "archive": "cold"}))
    engine.journal.wait(engine.create_topic("b", {"retention_age": "1d"}))
    publish(engine, b"x", "a")
    publish(engine, b"x", "b")
    Settler(engine).settle(everything=True)
    clock.advance(3 * 86400)
    archive.fail("create", errno.EROFS)
    assert retain(engine) == 1
    assert "retention of a will be tried again" in caplog.text
    assert (values(engine, "a"), values(engine, "b")) == ([b"x"], [])
    assert retain(engine) == 1


def test_retention_of_a_topic_that_is_deleted_meanwhile_disturbs_nothing(
    engine_on: EngineOn, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_on(MemoryStorage())
    engine.journal.wait(engine.create_topic("t", {"retention_age": "1d"}))
    publish(engine, b"x")
    Settler(engine).settle(everything=True)
    clock.advance(3 * 86400)
    let_go = retention._let_go

    def delete_first(*arguments: object) -> None:
        engine.journal.wait(engine.delete_topic("t"))
        let_go(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(retention, "_let_go", delete_first)
    assert retain(engine) == 0
    Settler(engine).settle(everything=True)
    assert engine.catalog.by_name == {}


def test_event_segments_of_a_topic_made_again_never_take_the_names_of_the_old_ones(
    engine_on: EngineOn, clock: VirtualClock
) -> None:
    storage = MemoryStorage()
    engine = engine_on(storage)
    names: list[str] = []
    for _ in range(2):
        engine.journal.wait(engine.create_topic("t", {"retention_age": "1d"}))
        publish(engine, b"x")
        Settler(engine).settle(everything=True)
        clock.advance(3 * 86400)
        retain(engine)
        Settler(engine).settle(everything=True)
        names += [name for name in storage.contents if "/events/" in name]
        engine.journal.wait(engine.delete_topic("t"))
        engine.checkpoint()
    assert len(set(names)) == 2


def test_files_that_no_checkpoint_ever_named_are_removed_after_a_crash(engine_on: EngineOn) -> None:
    storage = FaultyStorage(seed=3)
    engine = engine_on(storage)
    publish(engine, b"x")
    storage.fail("create", errno.EIO, name_contains="checkpoint")
    with pytest.raises(OSError, match="Input/output"):
        Settler(engine).settle(everything=True)
    again = engine_on(storage.crash())
    assert again.untidy
    assert tidy(again) == 1
    assert values(again) == [b"x"]
    again.close()
    assert not engine_on(storage_of(again)).untidy


def test_R4_a_failed_open_leaves_no_descriptor_and_no_lock(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish("t", "x")
    journal = next((tmp_path / "journal").iterdir())
    content = bytearray(journal.read_bytes())
    content[100] ^= 1
    journal.write_bytes(content)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(penstock.CorruptData):
            penstock.open(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_position_of_a_checkpoint_moves_with_the_state_and_not_with_the_disk(
    engine_on: EngineOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one that is taken between the two would claim a deletion that it does not hold."""
    engine = engine_on(MemoryStorage())
    publish(engine, b"x")
    place, before = engine.journal._place, engine.journal.position()
    seen: list[tuple[int, int, int]] = []

    def look_first(*arguments: object) -> None:
        seen.append(engine.journal.position())
        place(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.journal, "_place", look_first)
    engine.journal.wait(engine.delete_topic("t"))
    assert seen == [before]
    assert engine.journal.position() > before


def test_a_file_that_is_just_not_cleanable_has_logs_to_settle(engine_on: EngineOn) -> None:
    engine = engine_on(MemoryStorage(), journal_file_bytes="64KiB")
    publish(engine, bytes(70_000))
    engine.journal.seal()
    with engine.lock:
        (file,) = engine.journal.sealed_files()
    for short_of_cleanable in range(1, 40):
        engine.state.usage.of(file.sequence).live_bytes = (file.end - FILE_HEADER_BYTES) // 4 + short_of_cleanable
        assert Settler(engine)._largest_logs(file) == [engine.topic("t").partitions[0].messages], short_of_cleanable


def test_only_something_old_in_the_file_being_written_seals_it_for_age(
    engine_on: EngineOn, clock: VirtualClock
) -> None:
    engine = engine_on(MemoryStorage(), settle_after="1h")
    publish(engine, b"sealed")
    engine.journal.seal()
    publish(engine, b"current")
    for sequence in engine.journal.files:
        engine.state.usage.of(sequence).oldest_us = 0  # of a block that is no longer there
    assert not Settler(engine)._is_old()
    clock.advance(3601)
    assert Settler(engine)._is_old()


def test_R1_a_limit_on_the_journal_that_could_never_be_met_is_refused(tmp_path: Path) -> None:
    with pytest.raises(penstock.InvalidArgument, match=r"max_unsettled_bytes \(1 MiB\) is less than .* 640 MiB"):
        penstock.open(tmp_path, max_unsettled_bytes="1MiB")
