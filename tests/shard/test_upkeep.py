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
from penstock.shard.shard import Shard
from penstock.shard.upkeep import retention
from penstock.shard.upkeep.retention import retain
from penstock.shard.upkeep.settling import Settler, tidy
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from tests.folding import assert_folded
from tests.sharding import home_of

ShardOn = Callable[..., Shard]


def publish(shard: Shard, value: bytes, topic: str = "t") -> None:
    _, commit = shard.publish(topic, Message(value))
    assert commit is not None
    shard.journal.wait(commit)


def values(shard: Shard, topic: str = "t") -> list[bytes]:
    log = shard.topic(topic).partitions[0].messages
    return [message.value for message in LogReader(shard, log).messages(Window())]


def test_L4_a_retry_is_stored_when_a_checkpoint_came_before_the_first_try_was_committed(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage)
    publish(shard, b"before")
    shard.publish("t", Message(b"one", dedupe_id="a"))
    shard.publish_many("t", [b"two"], "p", 7)
    shard.checkpoint()
    again = shard_on(storage.crash())
    for retry in (
        again.publish("t", Message(b"one", dedupe_id="a"))[1],
        again.publish_many("t", [b"two"], "p", 7)[1],
    ):
        assert retry is not None
        again.journal.wait(retry)
    assert values(again) == [b"before", b"one", b"two"]


def test_L3_F2_a_topic_whose_creation_was_refused_does_not_come_back_beside_its_successor(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage)
    publish(shard, b"x", "other")
    commit = shard.create_topic("t", {})
    shard.checkpoint()
    storage.fail("write", errno.ENOSPC)
    with pytest.raises(penstock.DiskFull):
        shard.journal.wait(commit)
    publish(shard, b"first")
    again = shard_on(storage.crash())
    assert [topic.name for topic in again.catalog.by_id.values()] == ["other", "t"]
    again.journal.wait(again.delete_topic("t"))
    identity, _ = shard_on(storage_of(again).crash()).publish("t", Message(b"second"))
    assert identity.offset == 1


def storage_of(shard: Shard) -> FaultyStorage:
    assert isinstance(shard.storage, FaultyStorage)
    return shard.storage


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
        for use in (old.settle, old.retain, old.shard.checkpoint):
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


def test_a_sync_that_failed_at_a_checkpoint_frees_no_journal_file(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage, sync="never", journal_file_bytes=4096, segment_min_bytes=2000, journal_files_max=1)
    publish(shard, b"small", "small")
    for n in range(20):
        publish(shard, bytes([n]) * 400)
    shard.journal.sync()
    storage.fail("sync", errno.EIO, always=True, name_contains="journal/")
    with pytest.raises((penstock.StorageFailed, OSError)):
        Settler(shard).settle()
    storage.heal()
    again = shard_on(storage.crash(), sync="never")
    assert values(again, "small") == [b"small"]
    assert values(again)[:10] == [bytes([n]) * 400 for n in range(10)]


def test_R5_a_sync_that_finds_the_disk_full_freezes_like_any_other(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage, sync="never", journal_file_bytes=4096)
    publish(shard, b"first")
    storage.fail("sync", errno.ENOSPC, name_contains="0001.journal")
    with pytest.raises(penstock.StorageFailed):
        for n in range(20):
            publish(shard, bytes([n]) * 400)


def test_a_crash_between_carrying_and_the_checkpoint_leaves_no_file_behind(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    options = {"journal_file_bytes": 4096, "segment_min_bytes": 1000, "journal_files_max": 1}
    shard = shard_on(storage, **options)
    publish(shard, b"small", "small")
    for n in range(12):
        publish(shard, bytes([n]) * 400)
    storage.fail("create", errno.EIO, name_contains="checkpoint")
    with pytest.raises(OSError, match="Input/output"):
        Settler(shard).settle()
    again = shard_on(storage.crash(), **options)
    for n in range(12):
        publish(again, bytes([n]) * 400)
    Settler(again).settle()
    with again.lock:
        assert len(again.journal.sealed_files()) <= 1
    assert values(again, "small") == [b"small"]


def test_one_failing_archive_holds_up_no_other_topic(
    shard_on: ShardOn, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage)
    archive = storage.elsewhere("cold")
    assert isinstance(archive, FaultyStorage)
    shard.journal.wait(shard.create_topic("a", {"retention_age": "1d", "archive": "cold"}))
    shard.journal.wait(shard.create_topic("b", {"retention_age": "1d"}))
    publish(shard, b"x", "a")
    publish(shard, b"x", "b")
    Settler(shard).settle(everything=True)
    clock.advance(3 * 86400)
    archive.fail("create", errno.EROFS)
    assert retain(shard) == 1
    assert "retention of a will be tried again" in caplog.text
    assert (values(shard, "a"), values(shard, "b")) == ([b"x"], [])
    assert retain(shard) == 1


def test_retention_of_a_topic_that_is_deleted_meanwhile_disturbs_nothing(
    shard_on: ShardOn, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = shard_on(MemoryStorage())
    shard.journal.wait(shard.create_topic("t", {"retention_age": "1d"}))
    publish(shard, b"x")
    Settler(shard).settle(everything=True)
    clock.advance(3 * 86400)
    let_go = retention._let_go

    def delete_first(*arguments: object) -> None:
        shard.journal.wait(shard.delete_topic("t"))
        let_go(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(retention, "_let_go", delete_first)
    assert retain(shard) == 0
    Settler(shard).settle(everything=True)
    assert shard.catalog.by_name == {}


def test_event_segments_of_a_topic_made_again_never_take_the_names_of_the_old_ones(
    shard_on: ShardOn, clock: VirtualClock
) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    names: list[str] = []
    for _ in range(2):
        shard.journal.wait(shard.create_topic("t", {"retention_age": "1d"}))
        publish(shard, b"x")
        Settler(shard).settle(everything=True)
        clock.advance(3 * 86400)
        retain(shard)
        Settler(shard).settle(everything=True)
        names += [name for name in storage.contents if "/events/" in name]
        shard.journal.wait(shard.delete_topic("t"))
        shard.checkpoint()
    assert len(set(names)) == 2


def test_files_that_no_checkpoint_ever_named_are_removed_after_a_crash(shard_on: ShardOn) -> None:
    storage = FaultyStorage(seed=3)
    shard = shard_on(storage)
    publish(shard, b"x")
    storage.fail("create", errno.EIO, name_contains="checkpoint")
    with pytest.raises(OSError, match="Input/output"):
        Settler(shard).settle(everything=True)
    again = shard_on(storage.crash())
    assert again.untidy
    assert tidy(again) == 1
    assert values(again) == [b"x"]
    again.close()
    assert not shard_on(storage_of(again)).untidy


def test_R4_a_failed_open_leaves_no_descriptor_and_no_lock(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish("t", "x")
    journal = next((home_of(tmp_path, "t") / "journal").iterdir())
    content = bytearray(journal.read_bytes())
    content[100] ^= 1
    journal.write_bytes(content)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(penstock.CorruptData):
            penstock.open(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_position_of_a_checkpoint_moves_with_the_state_and_not_with_the_disk(
    shard_on: ShardOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one that is taken between the two would claim a deletion that it does not hold."""
    shard = shard_on(MemoryStorage())
    publish(shard, b"x")
    place, before = shard.journal._place, shard.journal.position()
    seen: list[tuple[int, int, int]] = []

    def look_first(*arguments: object) -> None:
        seen.append(shard.journal.position())
        place(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(shard.journal, "_place", look_first)
    shard.journal.wait(shard.delete_topic("t"))
    assert seen == [before]
    assert shard.journal.position() > before


def test_a_file_that_is_just_not_cleanable_has_logs_to_settle(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage(), journal_file_bytes="64KiB")
    publish(shard, bytes(70_000))
    shard.journal.seal()
    with shard.lock:
        (file,) = shard.journal.sealed_files()
    for short_of_cleanable in range(1, 40):
        shard.state.usage.of(file.sequence).live_bytes = (file.end - FILE_HEADER_BYTES) // 4 + short_of_cleanable
        assert Settler(shard)._largest_logs(file) == [shard.topic("t").partitions[0].messages], short_of_cleanable


def test_only_something_old_in_the_file_being_written_seals_it_for_age(shard_on: ShardOn, clock: VirtualClock) -> None:
    shard = shard_on(MemoryStorage(), settle_after="1h")
    publish(shard, b"sealed")
    shard.journal.seal()
    publish(shard, b"current")
    for sequence in shard.journal.files:
        shard.state.usage.of(sequence).oldest_us = 0  # of a block that is no longer there
    assert not Settler(shard)._is_old()
    clock.advance(3601)
    assert Settler(shard)._is_old()


def test_R1_a_limit_on_the_journal_that_could_never_be_met_is_refused(tmp_path: Path) -> None:
    with pytest.raises(penstock.InvalidArgument, match=r"max_unsettled_bytes \(1 MiB\) is less than .* 640 MiB"):
        penstock.open(tmp_path, max_unsettled_bytes="1MiB")


def test_R1_deleted_topics_are_remembered_until_a_checkpoint_has_them(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    for number in range(20):
        publish(shard, b"x", f"gone-{number}")
        shard.journal.wait(shard.delete_topic(f"gone-{number}"))
    assert len(shard.state.deleted) == 20
    shard.checkpoint()
    assert shard.state.deleted == set()
    publish(shard, b"kept", "new")
    assert_folded(shard)
