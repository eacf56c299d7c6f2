"""The journal at work: group commit, rotation, recycling, and what a failing disk does to it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.journal import Commit
from penstock.journal.layout import file_name
from penstock.model.errors import BrokerClosed, DiskFull, Overloaded, StorageFailed
from penstock.model.events import Event, EventKind
from penstock.model.message import Message
from penstock.shard.operations.groups import create_group, group
from penstock.shard.shard import Shard
from penstock.shard.upkeep.settling import Settler
from penstock.testing import FaultyStorage, MemoryStorage

ShardOn = Callable[..., Shard]


def publish(shard: Shard, value: bytes, topic: str = "t") -> int:
    identity, commit = shard.publish(topic, Message(value))
    assert commit is not None
    shard.journal.wait(commit)
    return identity.offset


def values(shard: Shard, topic: str = "t") -> list[bytes]:
    from penstock.segments.window import Window
    from penstock.shard.reading.log_reader import LogReader

    log = shard.topic(topic).partitions[0].messages
    return [message.value for message in LogReader(shard, log).messages(Window())]


def test_whatever_gathers_is_committed_with_one_sync(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage())
    commits = [shard.publish(f"topic-{n % 7}", Message(b"x"))[1] for n in range(100)]
    assert len(set(commits)) == 1
    before = shard.journal.commits
    shard.journal.flush()
    assert shard.journal.commits == before + 1
    assert all(commit is not None and commit.done for commit in commits)


def test_the_singles_of_one_commit_are_merged_into_one_block(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage())
    for n in range(50):
        shard.publish("t", Message(b"%d" % n))
    shard.journal.flush()
    log = shard.topic("t").partitions[0].messages
    assert len(log) == 1
    assert values(shard) == [b"%d" % n for n in range(50)]


def test_L3_singles_and_batches_of_one_commit_keep_their_order(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage())
    shard.publish("t", Message(b"0"))
    shard.publish("t", Message(b"1"))
    shard.publish_many("t", [b"2", b"3"])
    shard.publish("t", Message(b"4"))
    shard.journal.flush()
    assert values(shard) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_message_cannot_be_read_before_it_is_committed(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage())
    publish(shard, b"committed")
    shard.publish("t", Message(b"gathered"))
    assert values(shard) == [b"committed"]
    shard.journal.flush()
    assert values(shard) == [b"committed", b"gathered"]


def test_a_full_file_is_sealed_and_the_next_one_says_where_it_ended(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage, journal_file_bytes=4096)
    for n in range(20):
        publish(shard, bytes([n]) * 500)
    assert len(shard.journal.files) > 2
    assert values(shard) == [bytes([n]) * 500 for n in range(20)]
    shard.close()
    again = shard_on(storage, journal_file_bytes=4096)
    assert values(again) == [bytes([n]) * 500 for n in range(20)]


def test_settled_files_are_used_again(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage, journal_file_bytes=4096, segment_min_bytes=0)
    settler = Settler(shard)
    for n in range(200):
        publish(shard, bytes([n]) * 500)
        if n % 10 == 0:
            settler.settle()
    spares = [name for name in storage.list("journal") if name.endswith(".spare")]
    assert 1 <= len(spares) <= 2
    assert len(storage.list("journal")) < 8
    assert values(shard) == [bytes([n]) * 500 for n in range(200)]


def test_R5_an_fsync_error_freezes_writes_until_the_broker_is_opened_again(shard_on: ShardOn) -> None:
    storage = FaultyStorage(seed=1)
    shard = shard_on(storage)
    publish(shard, b"safe")
    storage.fail("sync", errno.EIO)
    with pytest.raises(StorageFailed, match="may or may not be there"):
        publish(shard, b"unknown")
    storage.heal()
    for _ in range(3):
        with pytest.raises(StorageFailed, match="opened again"):
            publish(shard, b"after")
    assert values(shard) == [b"safe"]
    shard.close()
    again = shard_on(storage.crash())
    assert values(again) in ([b"safe"], [b"safe", b"unknown"])
    assert publish(again, b"goes on") >= 1


def test_R5_a_write_error_freezes_writes_too(shard_on: ShardOn) -> None:
    storage = FaultyStorage(seed=1)
    shard = shard_on(storage)
    publish(shard, b"safe")
    storage.fail("write", errno.EIO)
    with pytest.raises(StorageFailed):
        publish(shard, b"unknown")
    with pytest.raises(StorageFailed):
        publish(shard, b"after")
    assert values(shard) == [b"safe"]


def test_Q2_what_happens_while_a_shard_closes_is_committed_and_what_comes_later_refused(
    shard_on: ShardOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FaultyStorage(seed=1)
    shard = shard_on(storage)
    publish(shard, b"v")
    create_group(shard, "t", "g")
    commits: list[Commit] = []

    def ack() -> None:
        with shard.lock:
            acked = Event(EventKind.ACKED, shard.clock.wall_us(), 0, 1, "g")
            commits.append(shard.core.log_events(shard.topic("t"), [(0, acked)]))

    noted = shard.checkpoints.write

    def note_late(*, clean: bool) -> None:
        noted(clean=clean)
        ack()

    with monkeypatch.context() as patched:
        patched.setattr(shard, "checkpoint", note_late)
        shard.close()
    assert commits[0].done
    assert not commits[0].failed
    with pytest.raises(BrokerClosed):
        ack()
    again = shard_on(storage.crash())
    assert group(again, "t", "g").acked == 1


@pytest.mark.parametrize("seed", range(20))
def test_R3_L4_a_full_disk_refuses_publishes_and_loses_nothing(shard_on: ShardOn, seed: int) -> None:
    storage = FaultyStorage(seed=seed)
    shard = shard_on(storage)
    acknowledged = [publish_value(shard, b"before %d" % n) for n in range(5)]
    storage.capacity_bytes = sum(map(len, storage.contents.values())) + 1_300_000 + seed * 37
    refused = 0
    for n in range(60):
        try:
            acknowledged.append(publish_value(shard, b"%d" % n * 30_000))
        except DiskFull as error:
            assert "nothing of this was written" in str(error)
            refused += 1
            assert values(shard) == acknowledged
    assert refused
    storage.capacity_bytes *= 4
    acknowledged.append(publish_value(shard, b"room again"))
    assert values(shard) == acknowledged
    again = shard_on(storage.crash())
    assert values(again) == acknowledged


def publish_value(shard: Shard, value: bytes) -> bytes:
    publish(shard, value)
    return value


def test_R3_publishes_are_refused_while_there_is_still_room_for_the_rest(shard_on: ShardOn) -> None:
    storage = MemoryStorage(capacity_bytes=10 << 20)
    shard = shard_on(storage, min_free_bytes="4MiB")
    with pytest.raises(DiskFull, match="min_free_bytes"):
        for _ in range(100):
            publish(shard, bytes(200_000))
    Settler(shard).settle(everything=True)
    assert set(values(shard)) == {bytes(200_000)}


def test_R1_messages_that_wait_for_the_disk_are_bounded(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage(), max_unwritten_bytes="1MiB")
    with pytest.raises(Overloaded, match="max_unwritten_bytes"):
        for _ in range(100):
            shard.publish("t", Message(bytes(100_000)))
    shard.journal.flush()
    accepted = len(values(shard))
    assert 9 <= accepted <= 11
    assert publish(shard, b"room again") == accepted


def test_R1_a_journal_that_is_not_settled_is_bounded(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage(), max_unsettled_bytes="4MiB", journal_file_bytes="1MiB", journal_files_max=2)
    with pytest.raises(Overloaded, match="max_unsettled_bytes"):
        for _ in range(100):
            publish(shard, bytes(100_000))
    Settler(shard).settle(everything=True)
    publish(shard, b"room again")


def test_many_threads_that_wait_are_all_answered(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage())
    shard.journal.wake_flusher = shard.journal.flush
    offsets: list[int] = []

    def work() -> None:
        offsets.extend([publish(shard, b"x") for _ in range(100)])

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offsets) == list(range(1600))


@pytest.mark.parametrize("sync", ["interval", "never"])
def test_a_commit_says_whether_it_was_synced(shard_on: ShardOn, sync: str) -> None:
    shard = shard_on(MemoryStorage(), sync=sync)
    _, commit = shard.publish("t", Message(b"x"))
    assert commit is not None
    shard.journal.wait(commit)
    assert not commit.synced
    always = shard_on(MemoryStorage())
    _, commit = always.publish("t", Message(b"x"))
    assert commit is not None
    always.journal.wait(commit)
    assert commit.synced


def test_every_created_journal_file_is_found_after_a_crash(shard_on: ShardOn) -> None:
    for seed in range(30):
        storage = FaultyStorage(seed=seed)
        shard = shard_on(storage, journal_file_bytes=4096)
        for n in range(20):
            publish(shard, bytes([n]) * 500)
        newest = file_name(max(shard.journal.files))
        survivor = storage.crash()
        assert newest in survivor.contents
        assert values(shard_on(survivor)) == [bytes([n]) * 500 for n in range(20)]


def test_a_publisher_is_served_when_the_disk_was_held_by_somebody_who_commits_nothing(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish("t", b"first")
        journal = broker.shard.journal
        publisher = threading.Thread(target=broker.publish, args=("t", b"second"))
        with journal._disk_lock:
            publisher.start()
            while journal.latest_commit() is None:
                publisher.join(0.001)
            publisher.join(0.05)
        publisher.join(3)
        assert not publisher.is_alive()
