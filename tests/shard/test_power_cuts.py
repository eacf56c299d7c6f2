"""Power cuts and damage at bad moments: the directory opens with what was promised, or says why it does not."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import pytest

from penstock.journal.layout import SEQUENCE_MAX, file_name
from penstock.model.errors import CorruptData, StorageFailed
from penstock.segments.window import Window
from penstock.shard.checking import check_directory, repair_directory
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.shard.upkeep.settling import Settler
from penstock.testing import FaultyStorage, MemoryStorage

ShardOn = Callable[..., Shard]

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SMALL_FILES = {"journal_file_bytes": 4096, "segment_min_bytes": 0}


def publish(shard: Shard, value: bytes, topic: str = "t") -> int:
    """The offset of a message that is acknowledged."""
    ids, commit = shard.publish_many(topic, [value])
    assert commit is not None
    shard.journal.wait(commit)
    return next(iter(ids)).offset


def settle(shard: Shard) -> None:
    Settler(shard).settle(everything=True)


def messages(shard: Shard) -> dict[int, bytes]:
    """The messages of the only partition there is, by offset."""
    topic = shard.catalog.by_name.get("t")
    if topic is None:
        return {}
    found = LogReader(shard, topic.partitions[0].messages).messages(Window())
    return {message.offset: message.value for message in found}


def copy_of(storage: MemoryStorage) -> dict[str, bytes]:
    return {name: bytes(content) for name, content in storage.contents.items()}


def goes_on(storage: FaultyStorage, shard_on: ShardOn) -> dict[int, bytes]:
    """Open a storage, find its messages, and make sure that it takes one more and keeps it."""
    shard = shard_on(storage)
    found = messages(shard)
    offset = publish(shard, b"one more")
    again = shard_on(storage.crash())
    assert messages(again) == found | {offset: b"one more"}
    return found


@pytest.mark.parametrize("sync", ["interval", "never"])
def test_a_power_cut_after_a_checkpoint_keeps_what_it_synced_when_publishing_syncs_nothing(
    shard_on: ShardOn, sync: str
) -> None:
    for seed in range(60):
        storage = FaultyStorage(seed)
        shard = shard_on(storage, sync=sync)
        sent = [b"%d" % n * 300 for n in range(8)]
        for value in sent[:5]:
            publish(shard, value)
        shard.checkpoint()
        for value in sent[5:]:
            publish(shard, value)
        found = goes_on(storage.crash(), shard_on)
        assert len(found) >= 5, seed
        assert found == dict(enumerate(sent[: len(found)])), seed


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_a_power_cut_at_any_moment_leaves_everything_up_to_some_message(shard_on: ShardOn, sync: str) -> None:
    for seed in range(40):
        choice = random.Random(seed)
        storage = FaultyStorage(seed)
        sent: list[bytes] = []
        safe = 0
        shard = shard_on(storage, sync=sync, **SMALL_FILES)
        storage.cut_power_after(choice.randrange(100))
        try:
            while True:
                sent.append(b"%d" % len(sent) * choice.randrange(1, 400))
                publish(shard, sent[-1])
                step = choice.choice([None, None, None, shard.journal.sync, shard.checkpoint, partial(settle, shard)])
                if step is not None:
                    step()
                if shard.journal.frozen is None and (step is not None or sync == "always"):
                    safe = len(sent)
        except (OSError, StorageFailed):
            survivor = storage.crash()
        assert check_directory(survivor).problems == [], seed
        found = goes_on(survivor, shard_on)
        assert safe <= len(found), seed
        assert found == dict(enumerate(sent[: len(found)])), seed


def test_a_power_cut_at_any_moment_of_the_first_start_leaves_a_directory_that_opens(shard_on: ShardOn) -> None:
    started = False
    for operations in itertools.count():
        for seed in range(10):
            storage = FaultyStorage(seed)
            storage.cut_power_after(operations)
            try:
                shard_on(storage)
                started = True
            except OSError:
                assert not started
            assert goes_on(storage.crash(), shard_on) == {}, (operations, seed)
        if started:
            return


def prepare(shard: Shard, file: str) -> list[bytes]:
    """Bring a shard to where the next publish begins a journal file; what is published then."""
    if file == "first":
        return []
    publish(shard, b"before" * 600)
    if file == "next":
        shard.journal.seal()
    else:
        settle(shard)
        assert any(name.endswith(".spare") for name in shard.storage.list("journal"))
    return [b"before" * 600]


@pytest.mark.parametrize("sync", ["always", "never"])
@pytest.mark.parametrize("file", ["first", "next", "recycled"])
def test_a_journal_file_torn_in_its_header_or_its_first_group_opens(shard_on: ShardOn, file: str, sync: str) -> None:
    acknowledged = False
    for operations in itertools.count():
        for seed in range(12):
            storage = FaultyStorage(seed)
            shard = shard_on(storage, sync=sync)
            sent = prepare(shard, file)
            storage.cut_power_after(operations)
            try:
                publish(shard, b"torn" * 900)
                acknowledged = True
            except StorageFailed:
                assert not acknowledged
            found = list(goes_on(storage.crash(), shard_on).values())
            kept = [sent, [*sent, b"torn" * 900]]
            assert found in (kept[1:] if acknowledged and sync == "always" else kept), (operations, seed)
        if acknowledged:
            return


@pytest.mark.parametrize("left", ["journal/", "topics/", ".spare", ""])
def test_data_without_any_checkpoint_is_refused_and_nothing_is_overwritten(shard_on: ShardOn, left: str) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    publish(shard, b"settled")
    shard.journal.seal()
    publish(shard, b"settled too")
    settle(shard)
    publish(shard, b"in the journal")
    shard.close()
    for name in list(storage.contents):
        if name.startswith("checkpoint") or left not in name:
            storage.remove(name)
    before = copy_of(storage)
    assert before
    with pytest.raises(CorruptData, match="checkpoint-a at byte 0: it is missing, although there is data"):
        shard_on(storage)
    assert copy_of(storage) == before


def test_L3_newest_offsets_that_a_repair_lost_are_never_given_again(shard_on: ShardOn) -> None:
    for rotten in range(10):
        storage = MemoryStorage()
        shard = shard_on(storage)
        given = [publish(shard, b"value %d" % n) for n in range(10)]
        shard.close()
        content = storage.contents[file_name(1)]
        for n in range(rotten, 10):
            content[content.index(b"value %d" % n)] ^= 1
        report = repair_directory(storage, check_directory(storage), NOW)
        assert report.losses == [f"t/0 offsets {n}..{n}" for n in given[rotten:]]
        for _ in range(2):
            shard_on(storage).close()
        shard = shard_on(storage)
        assert list(messages(shard)) == given[:rotten]
        for _ in range(2):
            given.append(publish(shard, b"new"))
            shard.close()
            shard = shard_on(storage)
        assert given == list(range(12))
        assert list(messages(shard)) == [*range(rotten), 10, 11]


@pytest.mark.parametrize("sequence", [3, 99_999_999, SEQUENCE_MAX])
def test_a_stray_journal_file_with_a_huge_number_is_refused_within_a_megabyte(shard_on: ShardOn, sequence: int) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    publish(shard, b"value")
    shard.close()
    storage.create(file_name(sequence))
    before = copy_of(storage)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match=r"0002\.journal at byte 0: the journal file is missing"):
            shard_on(storage)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert copy_of(storage) == before
    repair_directory(storage, check_directory(storage), NOW)
    assert messages(shard_on(storage)) == {0: b"value"}


@pytest.fixture
def damaged(shard_on: ShardOn) -> FaultyStorage:
    """Two segments and several journal files behind them, with every kind of damage that a repair knows."""
    storage = FaultyStorage()
    shard = shard_on(storage, **SMALL_FILES)
    for n in range(60):
        publish(shard, b"value %03d" % n * 20)
        if n in (10, 20):
            settle(shard)
    shard.close()
    storage = storage.crash()
    segment = min(name for name in storage.contents if name.startswith("topics/"))
    rotten, headless, missing, *_ = sorted(name for name in storage.contents if name.endswith(".journal"))
    storage.flip_bit(rotten, 500)
    storage.flip_bit(headless, 20)
    storage.remove(missing)
    storage.create(file_name(99_999_999))
    storage.sync_directory("journal")
    storage.flip_bit(segment, 100)
    storage.flip_bit("checkpoint-a", 30)
    return storage


def test_a_power_cut_at_any_moment_of_a_repair_leaves_a_directory_that_another_repair_makes_whole(
    shard_on: ShardOn, damaged: FaultyStorage
) -> None:
    def repaired(storage: FaultyStorage) -> dict[int, bytes]:
        repair_directory(storage, check_directory(storage), NOW)
        assert check_directory(storage).problems == []
        return messages(shard_on(storage.crash()))

    found = check_directory(damaged)
    assert len(found.problems) == 6
    originals = {problem.file: bytes(damaged.contents.get(problem.file, b"")) for problem in found.problems}
    expected = repaired(damaged.crash())
    assert len(expected) > 30
    for operations in itertools.count():
        for _ in range(2):
            storage = damaged.crash()
            storage.cut_power_after(operations)
            try:
                finished = not repair_directory(storage, found, NOW).failed
            except OSError:
                finished = False
            storage = storage.crash()
            assert repaired(storage) == expected, operations
            set_aside = [content for name, content in storage.contents.items() if name.startswith("quarantine/")]
            assert all(original in set_aside for original in originals.values() if original), operations
        if finished:
            return


@pytest.mark.parametrize("known", [False, True], ids=["topic behind the checkpoint", "topic in the checkpoint"])
def test_L3_offsets_that_only_the_damaged_group_knew_of_are_not_given_again_after_a_repair(
    shard_on: ShardOn, known: bool
) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    if known:
        publish(shard, b"first", topic="a")
        shard.close()
        shard = shard_on(storage)
    for number in range(10):
        publish(shard, b"value %d" % number, topic="a")
    end = shard.topic("a").partitions[0].messages.committed_end
    publish(shard, b"behind it", topic="b")
    storage.close()
    journal = storage.contents[file_name(1)]
    journal[journal.find(b"value 9")] ^= 1
    report = check_directory(storage)
    assert repair_directory(storage, report, NOW).losses == [f"a/0 offsets {end - 1}..{end - 1}"]
    assert check_directory(storage).problems == []
    for _ in range(2):
        again = shard_on(storage)
        assert publish(again, b"new", topic="a") == end
        end += 1
        again.close()
