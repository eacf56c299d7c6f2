"""What the index of a log knows of its blocks without reading them, and the events that speak of one message."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.journal.files import JournalFile
from penstock.log.partition_log import BlockRef, Log, missing_runs
from penstock.log.topics import Topic
from penstock.log.usage import Usage
from penstock.model.batch import DELIVER_AT, EXPIRES, PRIORITIES, TAGS
from penstock.model.config import BrokerConfig, TopicConfig
from penstock.model.events import Event, EventKind, span_of
from penstock.model.message import Message
from penstock.segments import writer
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.shard.upkeep.settling import Settler
from penstock.testing import FaultyStorage, MemoryStorage

ShardOn = Callable[..., Shard]

BATCHES = [
    ([Message(b"v")], 0, 128),
    ([Message(b"v", priority=7), Message(b"v", priority=7)], 0, 7),
    ([Message(b"v", priority=0), Message(b"v", priority=255)], PRIORITIES, 128),
    ([Message(b"v", delay="1h", priority="low")], DELIVER_AT, 192),
    ([Message(b"v", dedupe_id="one")], TAGS, 128),
    ([Message(b"v"), Message(b"v", expires_in="1h")], EXPIRES, 128),
    (
        [Message(b"v", 255 * b"k", delay=1, expires_in=2, dedupe_id="two"), Message(b"w", priority=255)],
        PRIORITIES | DELIVER_AT | TAGS | EXPIRES,
        128,
    ),
]


def log_of(shard: Shard) -> Log:
    return shard.topic("t").partitions[0].messages


def known(log: Log) -> list[tuple[int, int, int]]:
    return [(block.count, block.flags, block.priority) for block in log.blocks()]


@pytest.mark.parametrize("singly", [False, True], ids=["batches", "one by one"])
def test_the_index_knows_the_columns_and_the_priority_of_every_block_live_and_recovered(
    singly: bool, shard_on: ShardOn
) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    for messages, _, _ in BATCHES:
        if singly:
            for message in messages:
                shard.publish("t", message)
        else:
            shard.publish_many("t", list(messages))
        shard.journal.flush()
    expected = [(len(messages), flags, priority) for messages, flags, priority in BATCHES]
    assert known(log_of(shard)) == expected
    shard.close()
    assert known(log_of(shard_on(storage))) == expected


def test_blocks_that_are_carried_on_keep_what_is_known_of_them(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage, journal_file_bytes=4096, segment_min_bytes=2000, journal_files_max=1)
    shard.publish_many("t", [Message(b"v", priority=9, expires_in=60), Message(b"w", priority=9)])
    shard.journal.flush()
    happened(shard, [Event(EventKind.ACKED, 1, 40, 3)])
    for _ in range(4):
        shard.publish_many("large", [b"x" * 1500] * 2)
        shard.journal.flush()
    settler = Settler(shard)
    settler.settle()
    assert settler.blocks_carried >= 2
    assert known(log_of(shard)) == [(2, EXPIRES, 9)]
    assert spans(shard) == [(40, 42)]
    shard = reopened(shard, storage, shard_on)
    assert known(log_of(shard)) == [(2, EXPIRES, 9)]
    assert spans(shard) == [(40, 42)]


def spans(shard: Shard) -> list[tuple[int, int]]:
    log = shard.topic("t").partitions[0].events
    assert log is not None
    return [(block.low, block.high) for block in log.blocks()]


def reopened(shard: Shard, storage: MemoryStorage, shard_on: ShardOn) -> Shard:
    shard.close()
    return shard_on(storage)


# Spans.


def happened(shard: Shard, events: list[Event]) -> None:
    with shard.lock:
        commit = shard.log_events(shard.topic("t"), [(0, event) for event in events])
    shard.journal.wait(commit)


def add(log: Log, usage: Usage, block: BlockRef) -> None:
    place = (block.sequence, block.position, block.length, block.crc)
    content = (block.flags, block.priority, block.low, block.high)
    log.add(usage, block.base, block.count, place, block.timestamp_us, content)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(0, 9)), max_size=40), st.integers(0, 9))
def test_the_spans_of_blocks_stay_in_step_with_the_blocks(moves: list[tuple[int, int, int]], dropped: int) -> None:
    """Blocks come in any order and again, as carried ones do; the first are dropped, as settled ones are."""
    log = Log(Topic(1, "t", TopicConfig()), "events", 0)
    usage = Usage()
    expected: dict[int, BlockRef] = {}
    for base, low, more in moves:
        expected[base] = BlockRef(base, 1, 1, 72, 10, 5, 99, 0, 128, low, low + more)
        add(log, usage, expected[base])
    blocks = [expected[base] for base in sorted(expected)]
    assert list(log.blocks()) == blocks
    log.drop(usage, min(dropped, len(blocks)))
    left = blocks[dropped:]
    assert list(log.blocks()) == left
    for offset in range(20):
        assert [log.block(i) for i in log.places_about(offset, offset)] == [
            block for block in left if block.low <= offset <= block.high
        ]
    log.close(usage)
    assert (len(log), list(log.places_about(3, 3))) == (0, [])


@given(st.lists(st.integers(0, 9), max_size=10, unique=True), st.booleans(), st.integers(0, 9))
def test_what_is_missing_of_a_log_is_what_no_block_holds(tens: list[int], in_order: bool, dropped: int) -> None:
    """Blocks of ten, with gaps between them as a repair leaves them, and in any order, as recovery may find them."""
    log = Log(Topic(1, "t", TopicConfig()), "messages", 0)
    usage = Usage()
    for ten in sorted(tens) if in_order else tens:
        add(log, usage, BlockRef(ten * 10, 10, 1, 72, 10, 5, 99))
    log.drop(usage, min(dropped, len(tens)))
    held = {ten * 10 + n for ten in sorted(tens)[dropped:] for n in range(10)}
    for start in range(110):
        missing = {offset for first, end in missing_runs(log, start) for offset in range(first, end)}
        assert missing == set(range(start, log.committed_end)) - held


BLOCKS = st.lists(st.tuples(st.just(0) | st.integers(0, 5), st.just(10) | st.integers(1, 40)), max_size=12)


@given(BLOCKS, st.integers(0, 12))
def test_the_block_of_an_offset_is_found_among_blocks_of_one_size_or_many(
    shapes: list[tuple[int, int]], dropped: int
) -> None:
    """Each block begins some offsets behind the one before: none is missing, or a repair left a gap."""
    log = Log(Topic(1, "t", TopicConfig()), "messages", 0)
    usage, blocks, base = Usage(), list[BlockRef](), 7
    for gap, count in shapes:
        blocks.append(BlockRef(base + gap, count, 1, 72, 10, 5, 99))
        base = blocks[-1].end
    for block in blocks:
        add(log, usage, block)
    log.drop(usage, min(dropped, len(blocks)))
    left = blocks[dropped:]
    for offset in range(base + 10):
        assert log.find(offset) == sum(block.end <= offset for block in left)


def test_the_index_of_messages_holds_the_largest_numbers_there_are() -> None:
    log = Log(Topic(1, "t", TopicConfig()), "messages", 0)
    usage = Usage()
    block = BlockRef(2**62, 2**32 - 1, 7, 2**30, 2**32 - 1, 2**32 - 1, 2**62, 255, 255)
    add(log, usage, block)
    add(log, usage, block._replace(base=block.end, flags=0, priority=0))
    assert [log.block(0), log.block(1).base, log.find(block.end)] == [block, block.end, 1]
    assert list(log.places_about(0, 0)) == []


# The events of one message.


def run(offset: int, count: int) -> Event:
    return Event(EventKind.ACKED, 1, offset, count, "g")


def scattered(offsets: set[int]) -> Event:
    return Event(EventKind.FAILED, 1, min(offsets), len(offsets), "g", offsets=sorted(offsets))


EVENTS = st.builds(run, st.integers(0, 40), st.integers(0, 5)) | st.builds(
    scattered, st.sets(st.integers(0, 40), min_size=1, max_size=4)
)
STEPS = st.lists(st.lists(EVENTS, min_size=1, max_size=5) | st.sampled_from(["settle", "restart"]), max_size=12)


@settings(max_examples=60)
@given(STEPS)
def test_the_events_about_a_message_are_those_of_a_scan_that_speak_of_it(steps: list[list[Event] | str]) -> None:
    storage = MemoryStorage()
    config = BrokerConfig.parse({"min_free_bytes": 0})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "ROW_GROUP_ROWS", 2)
        shard = Shard(storage, config)
        shard.publish_many("t", [b"v"])
        happened(shard, [run(0, 1)])
        every = [run(0, 1)]
        for step in steps:
            if step == "settle":
                Settler(shard).settle(everything=True)
            elif step == "restart":
                shard.close()
                shard = Shard(storage, config)
            else:
                assert isinstance(step, list)
                happened(shard, step)
                every += step
        log = shard.topic("t").partitions[0].events
        assert log is not None
        reader = LogReader(shard, log)
        assert list(reader.events(Window())) == every
        for offset in range(46):
            assert list(reader.events_about(offset)) == [event for event in every if event.speaks_of(offset)]
        shard.close()


def test_the_events_about_a_message_are_found_without_reading_the_others(
    shard_on: ShardOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", 10)
    shard = shard_on(MemoryStorage())
    shard.publish_many("t", [b"v"])
    for start in (0, 1000):
        happened(shard, [run(start + place, 1) for place in range(100)])
        Settler(shard).settle(everything=True)
    for offset in range(2000, 2050):
        happened(shard, [run(offset, 1)])
    log = shard.topic("t").partitions[0].events
    assert log is not None
    assert [(segment.low, segment.high) for segment in log.segments] == [(0, 99), (1000, 1099)]
    reads: list[int] = []
    read_body = shard.journal.read_body

    def counted(file: JournalFile, position: int, length: int, crc: int) -> bytes:
        reads.append(position)
        return read_body(file, position, length, crc)

    monkeypatch.setattr(shard.journal, "read_body", counted)
    begun = LogReader(shard, log).events_about(2040)
    for offset, row_groups, blocks in [(1055, 1, 0), (2030, 0, 1), (500, 0, 0)]:
        reads.clear()
        reader = LogReader(shard, log)
        assert list(reader.events_about(offset)) == ([run(offset, 1)] if row_groups or blocks else [])
        assert (reader.row_groups_read, len(reads)) == (row_groups, blocks)
    Settler(shard).settle(everything=True)  # a reader that began before goes on without a seam
    assert list(begun) == [run(2040, 1)]
    assert all(file._pins == 0 for file in shard.journal.files.values())


def test_events_of_delivery_leave_segments_alone_also_in_recovery(shard_on: ShardOn) -> None:
    storage = FaultyStorage(0)
    shard = shard_on(storage)
    shard.publish_many("t", [b"v"] * 3)
    Settler(shard).settle(everything=True)
    assert len(log_of(shard).segments) == 1
    happened(shard, [Event(kind, 1, 0, 3) for kind in EventKind if kind not in ("archived", "removed")])
    recovered = shard_on(storage.crash())
    assert len(log_of(recovered).segments) == 1
    assert len(list(LogReader(recovered, log_of(recovered)).messages(Window()))) == 3


def test_an_array_of_spans_is_kept_for_events_only(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage())
    shard.publish_many("t", [b"v"])
    happened(shard, [run(5, 2), scattered({1, 9})])
    partition = shard.topic("t").partitions[0]
    assert partition.events is not None
    assert partition.messages._spans is None
    assert partition.events._spans == array("Q", span_of([run(5, 2), scattered({1, 9})])) == array("Q", [1, 9])
