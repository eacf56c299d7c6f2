"""What a broker does on a virtual clock: paces that take no real time, and the same bytes from the same seed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

import penstock
from penstock.delivery.index import Columns, PartitionIndex
from penstock.delivery.partition import PartitionState
from penstock.embedded.consumer import Consumer
from penstock.model.config import BrokerConfig
from penstock.model.message import Message
from penstock.segments.window import Window
from penstock.shard.operations.burying import bury
from penstock.shard.operations.dead_letters import redrive
from penstock.shard.operations.replay import replay_to_function, replay_to_group
from penstock.shard.shard import Shard
from penstock.shard.upkeep.retention import retain
from penstock.shard.upkeep.settling import Settler
from penstock.testing import MemoryStorage, VirtualClock
from tests.shard.staging_harness import publish, stage
from tests.sharding import alone

COUNT = 3000


def shard_on(storage: MemoryStorage, clock: VirtualClock) -> Shard:
    config = {"min_free_bytes": 0, "journal_file_bytes": "64KiB", "segment_min_bytes": "4KiB"}
    return Shard(storage, BrokerConfig.parse(config), clock)


def with_dead_letters(clock: VirtualClock, count: int = COUNT) -> Shard:
    shard = shard_on(MemoryStorage(), clock)
    shard.journal.wait(shard.publish_many("t", [f"{n}" for n in range(count)])[1])  # type: ignore[arg-type]
    consumer = Consumer(alone(shard), "t", "g", max_in_flight=count)
    while messages := consumer.receive(1000):
        consumer.kill(messages, "no")
        bury(shard)
    return shard


# Paces.


@pytest.mark.parametrize(
    ("rate", "steps"),
    [
        (2, COUNT),  # one by one
        (0.25, COUNT),
        (3, COUNT),  # no whole number of microseconds
        (50, COUNT // 5),  # what is due in a tenth of a second goes together
    ],
)
def test_a_paced_redrive_takes_the_virtual_seconds_of_its_pace_and_no_real_ones(
    clock: VirtualClock, rate: float, steps: int
) -> None:
    shard = with_dead_letters(clock)
    begun_us, real_s = clock.wall_us(), time.monotonic()
    times_us: list[int] = []
    report = redrive(shard, "t", rate=rate, progress=lambda _: times_us.append(clock.wall_us()))
    assert (report.redriven, len(times_us)) == (COUNT, steps)
    at_once = COUNT // steps
    assert [time_us - begun_us for time_us in times_us] == [
        round(step * at_once / rate * 1_000_000) for step in range(steps)
    ]
    assert time.monotonic() - real_s < COUNT / rate / 2
    shard.close()


@pytest.mark.parametrize("rate", [2, 0.25, 3, 50])
def test_a_paced_replay_to_a_function_takes_the_virtual_seconds_of_its_pace_and_no_real_ones(
    clock: VirtualClock, rate: float
) -> None:
    shard = shard_on(MemoryStorage(), clock)
    shard.journal.wait(shard.publish_many("t", [f"{n}" for n in range(COUNT)])[1])  # type: ignore[arg-type]
    begun_us, real_s = clock.wall_us(), time.monotonic()
    times_us: list[int] = []
    done = replay_to_function(shard, "t", Window(), None, lambda _: times_us.append(clock.wall_us()), None, rate)
    assert done == COUNT
    assert [time_us - begun_us for time_us in times_us] == [round(n / rate * 1_000_000) for n in range(COUNT)]
    assert time.monotonic() - real_s < COUNT / rate / 2
    shard.close()


def test_work_that_takes_longer_than_its_pace_is_not_held_back(clock: VirtualClock) -> None:
    shard = shard_on(MemoryStorage(), clock)
    shard.journal.wait(shard.publish_many("t", [f"{n}" for n in range(100)])[1])  # type: ignore[arg-type]
    begun_s = clock.monotonic_s()
    replay_to_function(shard, "t", Window(), None, lambda _: clock.advance(1), None, 10)
    assert clock.monotonic_s() - begun_s == 100
    shard.close()


class OnlyTime:
    """A clock of a user, from before clocks could sleep; it stands still."""

    def wall_us(self) -> int:
        return VirtualClock.START_US

    def monotonic_s(self) -> float:
        return 5.0


def test_a_clock_that_only_tells_the_time_still_works_and_a_pace_on_it_takes_real_seconds() -> None:
    with penstock.open(storage=MemoryStorage(), clock=OnlyTime()) as broker:
        broker.publish_many("t", [f"{n}" for n in range(41)])
        seen: list[penstock.StoredMessage] = []
        real_s = time.monotonic()
        assert broker.replay("t", seen.append, rate=100) == 41
        took_s = time.monotonic() - real_s
        assert 0.4 <= took_s < 4, "the sum of all waits, were they counted from the beginning, is 8 seconds"
        assert {message.timestamp_us for message in seen} == {VirtualClock.START_US}
        broker.stage_many("s", "t", ["staged"])
        assert uuid.UUID(broker.status().broker_id).version == 4


def test_threads_that_sleep_on_one_clock_all_move_it(clock: VirtualClock) -> None:
    def sleep_often() -> None:
        for _ in range(5000):
            clock.sleep_s(0.001)

    threads = [threading.Thread(target=sleep_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.monotonic_s() == 20.0
    assert clock.wall_us() - VirtualClock.START_US == 20_000_000


# The same bytes.


def life(storage: MemoryStorage, clock: VirtualClock) -> None:
    """Two runs of a broker in which everything is written that a broker writes."""
    shard = shard_on(storage, clock)
    settler = Settler(shard)
    shard.journal.wait(shard.create_topic("t", {"partitions": 3}))
    shard.journal.wait(shard.create_topic("keyed", {"order": "key", "retention_age": "1h"}))
    with shard.lock:
        shard.schedules.put("hourly", "0 * * * *", "UTC", "t", Message("tick"))
    for turn in range(24):
        messages = [
            Message(
                f"{turn}-{n}" * 20,
                key=f"key {n}",
                headers={"turn": str(turn), "n": str(n)},
                priority=1 + n % 9,
                delay=60 if n == 7 else None,
                dedupe_id=f"{turn}-{n}",
            )
            for n in range(20)
        ]
        for name in ("t", "keyed"):
            _, commit = shard.publish_many(name, messages)
            assert commit is not None
            shard.journal.wait(commit)
        consumers = [Consumer(alone(shard), ["keyed", "t"], group, name="c", max_in_flight=100) for group in ("g", "h")]
        for consumer in consumers:
            received = consumer.receive(30)
            consumer.ack(received[::2])
            consumer.fail(received[1::4], "not now")
            consumer.kill(received[3::4], "never")
            consumer.close()
        clock.advance(200)
        with shard.lock:
            shard.keep_time()
        bury(shard)
        settler.settle(everything=turn % 8 == 7)
        retain(shard)
        stage(shard, "s", "staged", f"in {turn}")
        if turn % 2:
            publish(shard, "s", sequence=turn)
        else:
            shard.stages.drop_staged(["s"])
        if turn == 12:
            shard.close()
            shard = shard_on(storage, clock)
            settler = Settler(shard)
    stage(shard, "left", "staged, and never published")
    redrive(shard, "t", rate=5)
    replay_to_group(shard, "t", Window(), None, "again", None, 10)
    shard.close()


def files_of(seed: int) -> dict[str, bytes]:
    storage = MemoryStorage()
    life(storage, VirtualClock(seed))
    return {name: bytes(content) for name, content in storage.contents.items()}


def digest_of(seed: int) -> str:
    files = files_of(seed)
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()


def test_the_same_seed_and_the_same_operations_make_the_same_bytes() -> None:
    first, second, other = files_of(7), files_of(7), files_of(8)
    kinds = {name.partition("/")[0] for name in first}
    assert kinds == {"checkpoint-a", "checkpoint-b", "journal", "staging", "topics"}
    assert sum(name.endswith(".parquet") for name in first) > 10
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    assert other["checkpoint-a"] != first["checkpoint-a"], "another seed is another broker"


def key_numbers() -> list[int]:
    """The numbers that stand for some keys in an index."""
    index = PartitionIndex(0, PartitionState(), by_key=True)
    keys = [b"", b"a", b"b", b"customer 17", b"customer 71", bytes(range(256)), None]
    index.add(Columns(0, len(keys), 5, keys=keys))
    return [index.key_of(offset) for offset in range(len(keys))]


@pytest.mark.parametrize("function", ["digest_of(7)", "key_numbers()"])
def test_the_bytes_and_the_numbers_of_keys_do_not_depend_on_the_process_either(function: str) -> None:
    """The order of sets, and whatever else hashes of text decide, is another one in every process."""
    program = f"from tests.shard.test_virtual_time import *; print({function})"
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


def test_without_a_seed_every_broker_has_an_id_of_its_own() -> None:
    ids = {shard_on(MemoryStorage(), VirtualClock()).broker_id for _ in range(10)}
    assert len(ids) == 10
    assert {uuid.UUID(bytes=identity).version for identity in ids} == {4}


def test_a_stage_of_the_same_name_is_another_file_also_after_a_restart() -> None:
    clock, storage = VirtualClock(seed=7), MemoryStorage()
    names: set[str] = set()
    for _ in range(3):
        shard = shard_on(storage, clock)
        stage(shard, "s", "v")
        names |= set(storage.list("staging"))
        shard.stages.drop_staged(["s"])
        shard.close()
    assert len(names) == 3
