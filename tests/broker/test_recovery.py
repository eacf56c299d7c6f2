"""Opening a directory again: after a clean close, after a crash, after rot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.journal.layout import file_name
from penstock.model.errors import CorruptData, DirectoryLocked
from penstock.model.message import Message
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Engine
from penstock.shard.upkeep.settling import Settler
from penstock.testing import FaultyStorage, MemoryStorage

EngineOn = Callable[..., Engine]


def publish(engine: Engine, *values: bytes, topic: str = "t") -> None:
    _, commit = engine.publish_many(topic, list(values))
    assert commit is not None
    engine.journal.wait(commit)


def values(engine: Engine, topic: str = "t") -> list[bytes]:
    return [
        message.value
        for partition in engine.topic(topic).partitions
        for message in LogReader(engine, partition.messages).messages(Window())
    ]


def test_L1_everything_is_there_after_a_clean_restart(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.create_topic("orders", partitions=3)
        sent = [broker.publish("orders", f"order {n}", key=f"customer {n % 5}") for n in range(50)]
    with penstock.open(tmp_path) as broker:
        assert {message.id for message in broker.read("orders")} == set(sent)
        assert broker.recovery.messages == 50
        assert broker.recovery.torn_bytes == 0


def test_the_epoch_grows_with_every_start_and_the_identity_stays(engine_on: EngineOn) -> None:
    storage = MemoryStorage()
    first = engine_on(storage)
    first.close()
    second = engine_on(storage)
    assert second.broker_id == first.broker_id
    assert second.epoch == first.epoch + 1


def test_L8_a_torn_tail_is_cut_and_counted(engine_on: EngineOn) -> None:
    storage = MemoryStorage()
    engine = engine_on(storage)
    publish(engine, b"first")
    end = engine.journal.position()[1]
    publish(engine, b"second" * 10)
    storage.close()
    content = storage.contents[file_name(1)]
    del content[end + 70 :]
    again = engine_on(storage)
    assert values(again) == [b"first"]
    assert again.recovery.torn_bytes == 70
    publish(again, b"third")
    assert values(again) == [b"first", b"third"]


def test_L8_a_whole_directory_cut_at_every_byte_of_its_journal_opens_with_the_commits_before(
    engine_on: EngineOn,
) -> None:
    storage = MemoryStorage()
    engine = engine_on(storage)
    publish(engine, b"settled")
    Settler(engine).settle(everything=True)
    ends = []
    for n in range(3):
        publish(engine, b"%d" % n, b"with %d" % n)
        ends.append(engine.journal.position()[1])
    name = file_name(engine.journal.position()[0])
    written = bytes(storage.contents[name][: ends[-1]])
    for cut in range(len(written) + 1):
        copy = MemoryStorage()
        copy.contents = {other: bytearray(content) for other, content in storage.contents.items()}
        copy.contents[name] = bytearray(written[:cut])
        expected = [b"settled"]
        for n, end in enumerate(ends):
            if end <= cut:
                expected += [b"%d" % n, b"with %d" % n]
        assert values(engine_on(copy)) == expected, cut


def test_L9_rot_in_the_journal_stops_recovery_with_file_and_position(engine_on: EngineOn) -> None:
    storage = FaultyStorage()
    engine = engine_on(storage)
    publish(engine, b"first")
    end = engine.journal.position()[1]
    publish(engine, b"second")
    publish(engine, b"third")
    storage.flip_bit(file_name(1), end + 40)
    survivor = storage.crash()
    before = {name: bytes(content) for name, content in survivor.contents.items()}
    with pytest.raises(CorruptData, match=rf"journal at byte {end}: .*penstock check"):
        engine_on(survivor)
    assert {name: bytes(content) for name, content in survivor.contents.items()} == before


def test_L9_rot_in_the_last_group_of_a_sealed_file_is_corruption_too(engine_on: EngineOn) -> None:
    storage = FaultyStorage()
    engine = engine_on(storage, journal_file_bytes=4096)
    while len(engine.journal.files) < 2:
        publish(engine, bytes(1000))
        last = engine.journal.files[1].end
    storage.flip_bit(file_name(1), last - 1)
    with pytest.raises(CorruptData, match=r"0001\.journal"):
        engine_on(storage.crash())


def test_L9_rot_after_a_clean_close_is_corruption_even_at_the_very_end(engine_on: EngineOn) -> None:
    storage = FaultyStorage()
    engine = engine_on(storage)
    publish(engine, b"the last one")
    end = engine.journal.position()[1]
    engine.close()
    storage.flip_bit(file_name(1), end - 1)
    with pytest.raises(CorruptData):
        engine_on(storage)


def test_L9_rot_found_while_reading_is_never_served(engine_on: EngineOn) -> None:
    storage = FaultyStorage()
    engine = engine_on(storage)
    publish(engine, b"good")
    publish(engine, b"rotten")
    storage.flip_bit(file_name(1), engine.journal.position()[1] - 1)
    reader = LogReader(engine, engine.topic("t").partitions[0].messages).messages(Window())
    assert next(reader).value == b"good"
    with pytest.raises(CorruptData, match="checksum"):
        next(reader)


def test_one_rotten_copy_of_the_checkpoint_is_no_harm(engine_on: EngineOn) -> None:
    for name in ("checkpoint-a", "checkpoint-b"):
        storage = FaultyStorage()
        engine = engine_on(storage)
        publish(engine, b"value")
        engine.close()
        storage.flip_bit(name, 30)
        assert values(engine_on(storage)) == [b"value"]


def test_two_rotten_copies_of_the_checkpoint_are_said(engine_on: EngineOn) -> None:
    storage = FaultyStorage()
    engine_on(storage).close()
    storage.flip_bit("checkpoint-a", 30)
    storage.flip_bit("checkpoint-b", 30)
    with pytest.raises(CorruptData, match="checkpoint"):
        engine_on(storage)


def test_a_missing_journal_file_is_said(engine_on: EngineOn) -> None:
    storage = MemoryStorage()
    engine = engine_on(storage)
    publish(engine, b"value")
    engine.close()
    storage.remove(file_name(1))
    with pytest.raises(CorruptData, match="missing"):
        engine_on(storage)


def test_L10_recovery_reads_only_what_is_behind_the_checkpoint(engine_on: EngineOn) -> None:
    storage = MemoryStorage()
    engine = engine_on(storage, journal_file_bytes=4096, segment_min_bytes=0)
    settler = Settler(engine)
    for n in range(100):
        publish(engine, b"%d" % n * 100)
        settler.settle()
    engine.close()
    again = engine_on(storage, journal_file_bytes=4096, segment_min_bytes=0)
    assert again.recovery.journal_bytes < 3 * 4096
    assert values(again) == [b"%d" % n * 100 for n in range(100)]


def test_what_was_written_unsynced_and_cut_never_comes_back(engine_on: EngineOn) -> None:
    """A valid group behind a lost one must not return when the hole is filled with one of the same length."""
    storage = MemoryStorage()
    engine = engine_on(storage, sync="never")
    kept, lost, late, following = (bytes([n]) * 100_000 for n in range(4))
    publish(engine, kept)
    hole = engine.journal.position()[1]
    publish(engine, lost)
    behind = engine.journal.position()[1]
    publish(engine, late)
    storage.close()
    content = storage.contents[file_name(1)]
    content[hole : hole + 8] = bytes(8)
    again = engine_on(storage, sync="never")
    assert values(again) == [kept]
    publish(again, following)
    assert again.journal.position()[1] == behind
    storage.close()
    assert values(engine_on(storage)) == [kept, following]


def test_R3_a_directory_on_a_full_disk_opens_and_can_be_read(engine_on: EngineOn) -> None:
    storage = FaultyStorage()
    engine = engine_on(storage)
    publish(engine, b"value")
    survivor = storage.crash()
    survivor.capacity_bytes = sum(map(len, survivor.contents.values()))
    assert values(engine_on(survivor)) == [b"value"]


def test_a_second_broker_on_the_same_directory_gets_a_clear_error(tmp_path: Path) -> None:
    with penstock.open(tmp_path), pytest.raises(DirectoryLocked, match="in use by another broker"):
        penstock.open(tmp_path)
    penstock.open(tmp_path).close()


def test_a_topic_whose_beginning_was_lost_is_kept_under_another_name(engine_on: EngineOn) -> None:
    from penstock.journal.layout import encode_void, mark_of

    storage = MemoryStorage()
    engine = engine_on(storage)
    start = engine.journal.position()[1] or 72
    engine.journal.wait(engine.create_topic("t", {}))
    end = engine.journal.position()[1]
    publish(engine, b"value")
    storage.close()
    void = encode_void(mark_of(engine.broker_id, 1), start, end)
    storage.contents[file_name(1)][start : start + len(void)] = void
    assert values(engine_on(storage), "recovered-1") == [b"value"]


def test_published_message_is_found_through_every_start(engine_on: EngineOn) -> None:
    storage = MemoryStorage()
    for n in range(10):
        engine = engine_on(storage)
        identity, commit = engine.publish("t", Message(b"%d" % n))
        assert commit is not None
        engine.journal.wait(commit)
        assert identity.offset == n
        engine.close()
    assert len(storage.list("journal")) == 1
