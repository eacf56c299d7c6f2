"""Staged publishing: what several hand in, in parts, is seen by nobody, and then published together, once."""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock.model.errors import (
    BrokerClosed,
    CorruptData,
    DiskFull,
    InvalidArgument,
    Overloaded,
    StageNotFound,
    StorageFailed,
)
from penstock.model.message import Message
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.shard.staging import stages as staging
from penstock.shard.upkeep.settling import Settler
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from tests.shard.staging_harness import files, publish, stage, values

ShardOn = Callable[..., Shard]


# What it does.


def test_nothing_staged_is_seen_before_it_is_published_and_then_all_of_it_in_one_commit(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    stage(shard, "a", "1", "2")
    stage(shard, "b", "3")
    stage(shard, "c", "x", topic="u")
    assert values(shard) == values(shard, "u") == []
    commits = shard.journal.commits
    assert publish(shard, "b", "a", "c") == 4
    assert shard.journal.commits == commits + 1
    assert (values(shard), values(shard, "u")) == (["3", "1", "2"], ["x"])
    assert files(storage) == []
    assert len(shard.stages) == 0


def test_S5_a_retried_epoch_writes_once_also_with_other_attempts_and_after_a_restart(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    for attempt in ("0", "1", "2", "3"):
        stage(shard, f"task-{attempt}", attempt, attempt)
    assert publish(shard, "task-0", sequence=7) == 2
    assert publish(shard, "task-1", sequence=7) == 2
    assert publish(shard, "task-2", sequence=6) == 0
    assert publish(shard, "nobody-knows", sequence=7) == 2
    assert sorted(name.split("~")[0] for name in files(storage)) == ["task-3"]
    shard.close()
    again = shard_on(storage)
    assert publish(again, "task-3", sequence=7) == 2
    assert (values(again), files(storage)) == (["0", "0"], [])
    stage(again, "task-0", "next")
    assert publish(again, "task-0", sequence=8) == 1
    assert values(again) == ["0", "0", "next"]


def test_what_was_published_is_remembered_after_settling_and_without_the_topic(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    stage(shard, "a", "1", "2", "3")
    assert publish(shard, "a") == 3
    Settler(shard).settle(everything=True)
    shard.journal.wait(shard.delete_topic("t"))
    shard.checkpoint()
    assert 1 not in shard.journal.files
    stage(shard, "b", "1", "2", "3")
    assert publish(shard, "b") == 3
    again = shard_on(_closed(shard, storage))
    stage(again, "b", "1", "2", "3")
    assert publish(again, "b") == 3
    assert values(again) == []


def _closed(shard: Shard, storage: MemoryStorage) -> MemoryStorage:
    shard.close()
    return storage


def test_producers_are_independent_and_the_one_silent_for_longest_is_forgotten_first(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage(), max_producers=2)
    for producer in ("a", "b", "a", "c"):
        publish(shard, producer=producer, sequence=shard.journal.commits)
    assert [record.producer for record in shard.state.staged.values()] == ["a", "c"]


def test_a_topic_that_was_deleted_meanwhile_is_made_again(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage())
    shard.journal.wait(shard.create_topic("t", {}))
    stage(shard, "a", "1")
    shard.journal.wait(shard.delete_topic("t"))
    assert publish(shard, "a") == 1
    assert values(shard) == ["1"]


def test_everything_about_a_message_is_kept_and_delays_count_from_staging(
    shard_on: ShardOn, clock: VirtualClock
) -> None:
    shard = shard_on(MemoryStorage())
    shard.journal.wait(shard.create_topic("t", {"partitions": 3}))
    message = Message(b"v", b"k", {"h": "x"}, 7, delay=10, partition=2, dedupe_id="d", expires_in=60)
    shard.stages.stage_many("a", "t", [message, Message("twice", dedupe_id="d"), "plain"])
    shard.stages.seal_stage("a")
    staged_us = clock.wall_us()
    clock.advance(5)
    assert publish(shard, "a") == 3
    log = shard.catalog.by_name["t"].partitions[2].messages
    found = next(LogReader(shard, log).messages(Window()))
    assert (found.value, found.key, found.headers, found.priority) == (b"v", b"k", {"h": "x"}, 7)
    assert (found.deliver_at_us, found.expires_at_us) == (staged_us + 10_000_000, staged_us + 60_000_000)
    assert (found.timestamp_us, found.dedupe_id) == (clock.wall_us(), "d")
    assert Counter(values(shard)) == {"v": 1, "plain": 1}, "a dedupe id works as always"


def test_a_consumer_that_waits_gets_what_is_published(broker: penstock.Broker) -> None:
    with broker.consumer("t", "g") as consumer:
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.extend(m.value for m in consumer.receive(10, wait=30)))
        thread.start()
        broker.stage_many("a", "t", (value for value in ["1", "2"]))
        broker.seal_stage("a")
        assert broker.publish_staged(["a"], producer="q", sequence=1) == 2
        thread.join(30)
        assert got == [b"1", b"2"]


# What is refused.


def test_a_batch_is_checked_when_it_is_staged_as_publish_many_checks_it(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage(), max_value_bytes=100, max_batch_bytes=1000, topic_defaults={"max_delay": 10})
    bad: list[tuple[str, Any]] = [
        ("no/name", ["x"]),
        ("penstock.schedules", ["x"]),
        ("t", ["x" * 101]),
        ("t", ["x" * 99] * 11),
        ("t", "text"),
        ("t", [7]),
        ("t", [Message("x", partition=1)]),
        ("t", [Message("x", delay=11)]),
        ("t", [Message("x", priority=256)]),
    ]
    for topic, messages in bad:
        with pytest.raises(InvalidArgument) as published:
            shard.publish_many(topic, messages)
        with pytest.raises(InvalidArgument) as staged:
            shard.stages.stage_many("a", topic, messages)
        assert (type(staged.value), str(staged.value)) == (type(published.value), str(published.value))
    assert len(shard.stages) == 0
    assert shard.stages.stage_many("a", "t", []) == 0


def test_names_producers_and_sequences_are_checked(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage())
    wrong: list[Any] = ["", "a/b", "a~b", "x" * 201, "é", 7, None]
    for name in wrong:
        with pytest.raises(InvalidArgument, match="is not the name of a stage"):
            shard.stages.stage_many(name, "t", ["x"])
        with pytest.raises(InvalidArgument, match="is not the name of a stage"):
            shard.stages.seal_stage(name)
        with pytest.raises(InvalidArgument, match="is not the name of a stage"):
            shard.stages.drop_staged([name])
    others: list[tuple[Any, Any, Any]] = [("a", "p", 1), (["a", "a"], "p", 1), (7, "p", 1), ([], "", 1), ([], None, 1)]
    others += [([], "p", None), ([], "p", -1), ([], "p", True), ([], 7, 1)]
    for stages, producer, sequence in others:
        with pytest.raises(InvalidArgument):
            shard.staging.publish_staged(stages, producer, sequence)
    stage(shard, "x" * 200, "1")
    stage(shard, "..", "2")
    assert publish(shard, "x" * 200, "..") == 2


def test_a_sealed_stage_takes_no_more_and_one_that_is_not_sealed_is_not_published(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    shard.stages.stage_many("a", "t", ["1"])
    with pytest.raises(InvalidArgument, match="'a' is not sealed: nothing was published"):
        publish(shard, "a")
    assert shard.stages.seal_stage("a") == shard.stages.seal_stage("a") == 1
    with pytest.raises(InvalidArgument, match="'a' is sealed: it takes no more"):
        shard.stages.stage_many("a", "t", ["2"])
    with pytest.raises(StageNotFound, match="there is no stage 'b'"):
        publish(shard, "a", "b")
    assert shard.stages.seal_stage("b") == 0
    shard.close()
    again = shard_on(storage)
    assert (again.stages.seal_stage("a"), again.stages.seal_stage("b")) == (1, 0)
    assert publish(again, "a", "b") == 1


def test_a_stage_that_was_not_sealed_when_the_broker_stopped_is_lost_and_says_so(shard_on: ShardOn) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    shard.stages.stage_many("a", "t", ["1"])
    shard.close()
    with pytest.raises(BrokerClosed):
        shard.stages.stage_many("a", "t", ["1"])
    again = shard_on(storage)
    acts: list[Callable[[], object]] = [
        lambda: again.stages.stage_many("a", "t", ["2"]),
        lambda: again.stages.seal_stage("a"),
        lambda: publish(again, "a"),
    ]
    for act in acts:
        with pytest.raises(StageNotFound, match="not sealed when the broker stopped"):
            act()
    again.stages.drop_staged(["a"])
    assert files(storage) == []
    stage(again, "a", "1")
    assert publish(again, "a") == 1


def test_dropped_stages_are_gone_and_those_that_are_not_there_are_no_error(shard_on: ShardOn) -> None:
    storage = FaultyStorage(3)
    shard = shard_on(storage)
    stage(shard, "a", "1")
    shard.stages.stage_many("b", "t", ["2"])
    shard.stages.drop_staged(["a", "b", "c"])
    assert files(storage) == []
    with pytest.raises(StageNotFound):
        publish(shard, "a")
    assert files(storage.crash()) == [], "they do not come back"


def test_stages_that_nobody_touched_for_a_day_are_dropped(shard_on: ShardOn, clock: VirtualClock) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    stage(shard, "old", "1")
    shard.stages.stage_many("filled", "t", ["1"])
    clock.advance(80_000)
    shard.stages.stage_many("filled", "t", ["2"])
    clock.advance(10_000)
    shard.staging.keep_house()
    assert [name.split("~")[0] for name in files(storage)] == ["filled"]


def test_there_are_limits_on_stages_handles_and_the_disk(shard_on: ShardOn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "STAGES_MAX", 150)
    shard = shard_on(MemoryStorage(1 << 20), min_free_bytes=900_000)
    for number in range(300):
        shard.stages.stage_many(f"{number % 150}", "t", [f"{number}"])
    assert len(shard.stages._handles) == staging._HANDLES_MAX
    with pytest.raises(Overloaded, match="150 stages already"):
        shard.stages.stage_many("one-more", "t", ["x"])
    with pytest.raises(DiskFull, match="min_free_bytes"):
        shard.stages.stage_many("1", "t", ["x" * 150_000])
    assert [shard.stages.seal_stage(f"{number}") for number in range(150)] == [2] * 150
    assert publish(shard, *(f"{number}" for number in range(150))) == 300
    assert sorted(map(int, values(shard))) == list(range(300))


def test_a_full_disk_leaves_the_stage_as_it_was(shard_on: ShardOn) -> None:
    storage = FaultyStorage(1)
    shard = shard_on(storage)
    shard.stages.stage_many("a", "t", ["1"])
    for _ in range(3):
        storage.fail("write", errno.ENOSPC, name_contains="staging")
        with pytest.raises(DiskFull, match="nothing was added"):
            shard.stages.stage_many("a", "t", ["x" * 5000])
    storage.fail("write", errno.ENOSPC, name_contains="staging")
    with pytest.raises(DiskFull):
        shard.stages.seal_stage("a")
    shard.stages.stage_many("a", "t", ["2"])
    assert shard.stages.seal_stage("a") == 2
    assert publish(shard, "a") == 2
    assert values(shard) == ["1", "2"]


def test_a_failed_sync_loses_the_stage_and_nothing_else(shard_on: ShardOn) -> None:
    storage = FaultyStorage(1)
    shard = shard_on(storage)
    shard.stages.stage_many("a", "t", ["1"])
    storage.fail("sync", errno.EIO, name_contains="staging")
    with pytest.raises(StorageFailed, match="the stage 'a' is lost"):
        shard.stages.seal_stage("a")
    with pytest.raises(StageNotFound):
        shard.stages.seal_stage("a")
    stage(shard, "b", "2")
    assert publish(shard, "b") == 1


def test_damage_is_found_before_anything_is_published(shard_on: ShardOn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.shard.staging.staged_publishing.STEP_BYTES", 3000)
    for size in (100, 5000):
        storage = FaultyStorage(1)
        shard = shard_on(storage)
        for name in ("a", "b"):
            shard.stages.stage_many(name, "t", ["x" * size])
            shard.stages.stage_many(name, "t", ["y"])
            shard.stages.seal_stage(name)
        length = len(storage.contents[f"staging/{files(storage)[1]}"])
        for position in (0, 13, 20, 60, length - 30, length - 5):
            storage.flip_bit(f"staging/{files(storage)[1]}", position)
            with pytest.raises(CorruptData, match=r"staging/b~.* at byte"):
                publish(shard, "a", "b")
            storage.flip_bit(f"staging/{files(storage)[1]}", position)
        assert values(shard) == []
        assert publish(shard, "a", "b") == 4
