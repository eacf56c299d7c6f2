"""Staged publishing in the middle of trouble: refusals, power cuts, many at once; each message is there once."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.model.errors import (
    InvalidArgument,
    LimitExceeded,
    Overloaded,
    PenstockError,
    TopicNotFound,
)
from penstock.model.message import Message
from penstock.shard.checking import check_directory
from penstock.shard.shard import Shard
from penstock.storage import FileStorage
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from tests.shard.staging_harness import files, publish, stage, values

ShardOn = Callable[..., Shard]


# Refusals in the middle, and steps.


def test_a_refused_publish_does_nothing_and_can_be_repeated(shard_on: ShardOn, clock: VirtualClock) -> None:
    shard = shard_on(MemoryStorage())
    shard.journal.wait(shard.create_topic("full", {"max_backlog": 1}))
    stage(shard, "a", "1", topic="new")
    stage(shard, "b", "2", "3", topic="full")
    with pytest.raises(LimitExceeded, match="max_backlog"):
        publish(shard, "a", "b")
    assert "new" not in shard.catalog.by_name
    assert shard.journal.unwritten_bytes == 0
    ids, commit = shard.publish_many("full", ["first"])
    assert commit is not None
    shard.journal.wait(commit)
    assert next(iter(ids)).offset == 0, "offsets were given back"
    assert publish(shard, "a") == 1
    assert values(shard, "new") == ["1"]


def test_a_publish_larger_than_a_step_goes_in_order_and_goes_on_after_a_refusal(
    shard_on: ShardOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.shard.staging.staged_publishing.STEP_BYTES", 1000)
    storage = MemoryStorage()
    shard = shard_on(storage)
    shard.journal.wait(shard.create_topic("t", {"max_backlog": 7}))
    for name in ("a", "b"):
        for number in range(5):
            shard.stages.stage_many(name, "t", [f"{name}{number}".ljust(400)])
        shard.stages.seal_stage(name)
    with pytest.raises(Overloaded):
        publish(shard, "a", "b")
    assert len(values(shard)) == 6
    shard.stages.drop_staged(["a", "b"])
    stage(shard, "other", "x")
    with pytest.raises(Overloaded):
        publish(shard, "other")
    with pytest.raises(Overloaded):
        publish(shard, "other", sequence=2)
    with pytest.raises(Overloaded):
        shard.staging.keep_house()
    shard.close()
    again = shard_on(storage)
    again.catalog.by_name["t"].configure(again.config.topic_defaults)
    assert publish(again, "other") == 10
    assert [value.strip() for value in values(again)] == [f"{name}{n}" for name in "ab" for n in range(5)]
    assert (files(storage), next(iter(again.state.staged.values())).files) == ([], ())


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_more_than_32_mib_is_published_in_a_few_commits_and_survives_a_power_cut(shard_on: ShardOn, sync: str) -> None:
    storage = FaultyStorage(5)
    shard = shard_on(storage, sync=sync)
    for name in ("a", "b"):
        for number in range(5):
            shard.stages.stage_many(name, "t", [f"{name}{number}".ljust(1 << 20)] * 4)
        shard.stages.seal_stage(name)
    commits = shard.journal.commits
    assert publish(shard, "a", "b") == 40
    assert shard.journal.commits == commits + 2
    again = shard_on(storage.crash())
    assert [value[:2] for value in values(again)] == [f"{name}{n}" for name in "ab" for n in range(5) for _ in range(4)]
    assert next(iter(again.state.staged.values())).messages == 40


# Crashes.


def run_epoch(shard: Shard, attempt: str) -> None:
    """Two tasks of an attempt, which write to two topics, and the driver behind them."""
    for task in ("1", "2"):
        for number in range(4):
            value = f"{task}.{number}".ljust(300)
            shard.stages.stage_many(f"{attempt}-{task}", "t" if number % 2 else "u", [value, f"{attempt}.{value}"])
        shard.stages.seal_stage(f"{attempt}-{task}")
    publish(shard, f"{attempt}-1", f"{attempt}-2", sequence=5)


@pytest.mark.parametrize("step_bytes", [32 << 20, 1500])
def test_S5_a_power_cut_at_any_moment_of_an_epoch_leaves_it_published_once(
    shard_on: ShardOn, monkeypatch: pytest.MonkeyPatch, step_bytes: int
) -> None:
    """Cut the power at every change of the disk, open, perhaps finish (not quite), and repeat with other attempts."""
    monkeypatch.setattr("penstock.shard.staging.staged_publishing.STEP_BYTES", step_bytes)
    finished_by_the_broker = cuts = 0
    for seed in range(5):
        for cut in range(200):
            storage = FaultyStorage(1000 * seed + cut)
            shard = shard_on(storage, journal_file_bytes=8192)
            storage.cut_power_after(cut)
            try:
                run_epoch(shard, "first")
                was_done = True
            except PenstockError:
                was_done = False
            storage = storage.crash()
            shard = shard_on(storage, journal_file_bytes=8192)
            unfinished = any(record.next_file is not None for record in shard.state.staged.values())
            if cut % 2:
                storage.cut_power_after(storage.random.randrange(16))
                with contextlib.suppress(PenstockError):
                    shard.staging.keep_house()
                    finished_by_the_broker += unfinished
                storage = storage.crash()
                shard = shard_on(storage, journal_file_bytes=8192)
            run_epoch(shard, "second")
            found = Counter(value.strip() for topic in ("t", "u") for value in values(shard, topic))
            attempt = "first" if any(value.startswith("first") for value in found) else "second"
            plain = [f"{task}.{number}" for task in "12" for number in range(4)]
            assert found == Counter(plain + [f"{attempt}.{value}" for value in plain]), (seed, cut)
            assert attempt == "first" or not (was_done or unfinished), (seed, cut)
            assert not [name for name in files(storage) if name.startswith("second") or was_done], (seed, cut)
            shard.close()
            assert not check_directory(storage).problems
            cuts += 1
            if was_done:
                break
        else:
            pytest.fail("the epoch never came to its end")
    assert cuts > 5 * 20
    assert finished_by_the_broker or step_bytes > 1500


def test_stages_of_the_same_name_are_told_apart_after_a_crash(shard_on: ShardOn) -> None:
    """The journal still names the file of the first when the second, of the same name, waits to be published."""
    for seed in range(20):
        storage = FaultyStorage(seed)
        shard = shard_on(storage)
        for sequence in range(3):
            stage(shard, "a", f"{sequence}")
            if sequence < 2:
                publish(shard, "a", sequence=sequence)
        again = shard_on(storage.crash())
        again.staging.keep_house()
        assert publish(again, "a", sequence=2) == 1
        assert values(again) == ["0", "1", "2"]


def test_many_threads_that_publish_the_same_epoch_publish_it_once(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        results: list[int] = []

        def work(number: int) -> None:
            for epoch in range(5):
                name = f"{epoch}-{number}"
                broker.stage_many(name, "t", [f"{epoch}"] * 100)
                broker.seal_stage(name)
                results.append(broker.publish_staged([name], producer="q", sequence=epoch))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(message.value for message in broker.read("t")) == {b"%d" % epoch: 100 for epoch in range(5)}
        assert set(results) <= {100, 0}
    assert FileStorage(tmp_path).list("staging") == []


def test_an_open_broker_finishes_by_itself_what_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.shard.staging.staged_publishing.STEP_BYTES", 1000)
    with penstock.open(tmp_path) as broker:
        broker.create_topic("t", max_backlog=3)
        for number in range(6):
            broker.stage_many("a", "t", [f"{number}".ljust(600)])
        broker.seal_stage("a")
        with pytest.raises(Overloaded):
            broker.publish_staged(["a"], producer="q", sequence=1)
        assert len(list(broker.read("t"))) == 3
        broker.configure_topic("t", max_backlog=None)
    with penstock.open(tmp_path) as broker:
        done = threading.Event()
        for _ in range(1000):
            if len(list(broker.read("t"))) == 6:
                break
            done.wait(0.01)
        assert broker.publish_staged([], producer="q", sequence=1) == 6
        assert [message.value.strip() for message in broker.read("t")] == [b"%d" % number for number in range(6)]


def test_limits_of_a_topic_that_was_made_anew_are_told_and_nothing_is_lost(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage())
    shard.journal.wait(shard.create_topic("t", {"partitions": 2, "max_delay": 100}))
    shard.stages.stage_many("a", "t", [Message("x", partition=1, delay=50)])
    shard.stages.seal_stage("a")
    shard.journal.wait(shard.delete_topic("t"))
    shard.journal.wait(shard.create_topic("t", {"max_delay": 10, "partitions": 2}))
    with pytest.raises(InvalidArgument, match="max_delay"):
        publish(shard, "a")
    delete = shard.delete_topic("t")
    with pytest.raises(TopicNotFound, match="is being deleted"):
        publish(shard, "a")
    shard.journal.wait(delete)
    shard.journal.wait(shard.create_topic("t", {"partitions": 2}))
    assert publish(shard, "a") == 1
