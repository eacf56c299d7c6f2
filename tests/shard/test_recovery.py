"""Opening a directory again: after a clean close, after a crash, after rot."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.journal.layout import file_name
from penstock.model.errors import CorruptData, DirectoryLocked, DiskFull
from penstock.model.message import Message
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.shard.upkeep.settling import Settler
from penstock.testing import FaultyStorage, MemoryStorage

ShardOn = Callable[..., Shard]


def publish(shard: Shard, *values: bytes, topic: str = "t") -> None:
    _, commit = shard.publish_many(topic, list(values))
    assert commit is not None
    shard.journal.wait(commit)


def values(shard: Shard, topic: str = "t") -> list[bytes]:
    return [
        message.value
        for partition in shard.topic(topic).partitions
        for message in LogReader(shard, partition.messages).messages(Window())
    ]


def test_L1_everything_is_there_after_a_clean_restart(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.create_topic("orders", partitions=3)
        sent = [broker.publish("orders", f"order {n}", key=f"customer {n % 5}") for n in range(50)]
    with penstock.open(tmp_path) as broker:
        assert {message.id for message in broker.read("orders")} == set(sent)
        assert broker.recovery.messages == 50
        assert broker.recovery.torn_bytes == 0


def test_the_epoch_grows_with_every_start_and_the_identity_stays(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    first = shard_on(storage)
    first.close()
    second = shard_on(storage)
    assert second.broker_id == first.broker_id
    assert second.epoch == first.epoch + 1


def test_L8_a_torn_tail_is_cut_and_counted(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    publish(shard, b"first")
    end = shard.journal.position()[1]
    publish(shard, b"second" * 10)
    storage.close()
    content = storage.contents[file_name(1)]
    del content[end + 70 :]
    again = shard_on(storage)
    assert values(again) == [b"first"]
    assert again.recovery.torn_bytes == 70
    publish(again, b"third")
    assert values(again) == [b"first", b"third"]


def test_L8_a_whole_directory_cut_at_every_byte_of_its_journal_opens_with_the_commits_before(
    shard_on: ShardOn,
) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    publish(shard, b"settled")
    Settler(shard).settle(everything=True)
    ends = []
    for n in range(3):
        publish(shard, b"%d" % n, b"with %d" % n)
        ends.append(shard.journal.position()[1])
    name = file_name(shard.journal.position()[0])
    written = bytes(storage.contents[name][: ends[-1]])
    for cut in range(len(written) + 1):
        copy = MemoryStorage()
        copy.contents = {other: bytearray(content) for other, content in storage.contents.items()}
        copy.contents[name] = bytearray(written[:cut])
        expected = [b"settled"]
        for n, end in enumerate(ends):
            if end <= cut:
                expected += [b"%d" % n, b"with %d" % n]
        assert values(shard_on(copy)) == expected, cut


def test_L9_rot_in_the_journal_stops_recovery_with_file_and_position(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage)
    publish(shard, b"first")
    end = shard.journal.position()[1]
    publish(shard, b"second")
    publish(shard, b"third")
    storage.flip_bit(file_name(1), end + 40)
    survivor = storage.crash()
    before = {name: bytes(content) for name, content in survivor.contents.items()}
    with pytest.raises(CorruptData, match=rf"journal at byte {end}: .*penstock check"):
        shard_on(survivor)
    assert {name: bytes(content) for name, content in survivor.contents.items()} == before


def test_L9_rot_in_the_last_group_of_a_sealed_file_is_corruption_too(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage, journal_file_bytes=4096)
    while len(shard.journal.files) < 2:
        publish(shard, bytes(1000))
        last = shard.journal.files[1].end
    storage.flip_bit(file_name(1), last - 1)
    with pytest.raises(CorruptData, match=r"0001\.journal"):
        shard_on(storage.crash())


def test_L9_rot_after_a_clean_close_is_corruption_even_at_the_very_end(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage)
    publish(shard, b"the last one")
    end = shard.journal.position()[1]
    shard.close()
    storage.flip_bit(file_name(1), end - 1)
    with pytest.raises(CorruptData):
        shard_on(storage)


def test_L9_rot_found_while_reading_is_never_served(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage)
    publish(shard, b"good")
    publish(shard, b"rotten")
    storage.flip_bit(file_name(1), shard.journal.position()[1] - 1)
    reader = LogReader(shard, shard.topic("t").partitions[0].messages).messages(Window())
    assert next(reader).value == b"good"
    with pytest.raises(CorruptData, match="checksum"):
        next(reader)


def test_one_rotten_copy_of_the_checkpoint_is_no_harm(shard_on: ShardOn) -> None:
    for name in ("checkpoint-a", "checkpoint-b"):
        storage = FaultyStorage()
        shard = shard_on(storage)
        publish(shard, b"value")
        shard.close()
        storage.flip_bit(name, 30)
        assert values(shard_on(storage)) == [b"value"]


def test_two_rotten_copies_of_the_checkpoint_are_said(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    shard_on(storage).close()
    storage.flip_bit("checkpoint-a", 30)
    storage.flip_bit("checkpoint-b", 30)
    with pytest.raises(CorruptData, match="checkpoint"):
        shard_on(storage)


def test_a_missing_journal_file_is_said(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    publish(shard, b"value")
    shard.close()
    storage.remove(file_name(1))
    with pytest.raises(CorruptData, match="missing"):
        shard_on(storage)


def test_L10_recovery_reads_only_what_is_behind_the_checkpoint(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage, journal_file_bytes=4096, segment_min_bytes=0)
    settler = Settler(shard)
    for n in range(100):
        publish(shard, b"%d" % n * 100)
        settler.settle()
    shard.close()
    again = shard_on(storage, journal_file_bytes=4096, segment_min_bytes=0)
    assert again.recovery.journal_bytes < 3 * 4096
    assert values(again) == [b"%d" % n * 100 for n in range(100)]


def test_what_was_written_unsynced_and_cut_never_comes_back(shard_on: ShardOn) -> None:
    """A valid group behind a lost one must not return when the hole is filled with one of the same length."""
    storage = MemoryStorage()
    shard = shard_on(storage, sync="never")
    kept, lost, late, following = (bytes([n]) * 100_000 for n in range(4))
    publish(shard, kept)
    hole = shard.journal.position()[1]
    publish(shard, lost)
    behind = shard.journal.position()[1]
    publish(shard, late)
    storage.close()
    content = storage.contents[file_name(1)]
    content[hole : hole + 8] = bytes(8)
    again = shard_on(storage, sync="never")
    assert values(again) == [kept]
    publish(again, following)
    assert again.journal.position()[1] == behind
    storage.close()
    assert values(shard_on(storage)) == [kept, following]


@pytest.mark.parametrize("seed", range(6))
def test_L1_a_journal_file_whose_name_was_never_synced_is_so_before_a_checkpoint_needs_it(
    shard_on: ShardOn, seed: int
) -> None:
    storage = FaultyStorage(seed)
    shard = shard_on(storage, journal_file_bytes=4096, min_free_bytes=0)
    publish(shard, b"x" * 4096)
    storage.fail("sync_directory", errno.ENOSPC, name_contains="journal")
    with pytest.raises(DiskFull):  # the file is there, and its name may go with the power
        publish(shard, b"refused")
    shard.close()
    shard_on(storage)
    again = shard_on(storage.crash())
    assert values(again) == [b"x" * 4096]


@pytest.mark.parametrize("seed", range(6))
def test_L2_what_a_start_has_found_is_there_after_a_power_cut_too(shard_on: ShardOn, seed: int) -> None:
    storage = FaultyStorage(seed)
    shard = shard_on(storage, sync="never")
    publish(shard, b"written", b"and not synced")
    storage.close()  # the process is killed: the system still has what it wrote
    found = values(shard_on(storage, sync="never"))
    assert found == [b"written", b"and not synced"]
    assert values(shard_on(storage.crash())) == found


def test_R3_a_directory_on_a_full_disk_opens_and_can_be_read(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage)
    publish(shard, b"value")
    survivor = storage.crash()
    survivor.capacity_bytes = sum(map(len, survivor.contents.values()))
    assert values(shard_on(survivor)) == [b"value"]


def test_a_second_broker_on_the_same_directory_gets_a_clear_error(tmp_path: Path) -> None:
    with penstock.open(tmp_path), pytest.raises(DirectoryLocked, match="in use by another broker"):
        penstock.open(tmp_path)
    penstock.open(tmp_path).close()


def test_a_topic_whose_beginning_was_lost_is_kept_under_another_name(shard_on: ShardOn) -> None:
    from penstock.journal.layout import encode_void, mark_of

    storage = MemoryStorage()
    shard = shard_on(storage)
    start = shard.journal.position()[1] or 72
    shard.journal.wait(shard.create_topic("t", {}))
    end = shard.journal.position()[1]
    publish(shard, b"value")
    storage.close()
    void = encode_void(mark_of(shard.broker_id, 1), start, end)
    storage.contents[file_name(1)][start : start + len(void)] = void
    assert values(shard_on(storage), "recovered-1") == [b"value"]


def test_published_message_is_found_through_every_start(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    for n in range(10):
        shard = shard_on(storage)
        identity, commit = shard.publish("t", Message(b"%d" % n))
        assert commit is not None
        shard.journal.wait(commit)
        assert identity.offset == n
        shard.close()
    assert len(storage.list("journal")) == 1
