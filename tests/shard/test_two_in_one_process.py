"""Two brokers in one process know nothing of each other: no state is shared, and one that dies takes nothing along."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest

import penstock
from penstock.testing import FaultyStorage, MemoryStorage
from tests.patience import until
from tests.shard.load import GROUPS, OPTIONS, TOPIC, AlmostNextMinute, Load, Told
from tests.shard.test_simulation import SEED, Simulation, Worker
from tests.sharding import ROOT, command


class Watched(Simulation):
    """A simulation that notes what it is given."""

    def __init__(self, seed: int) -> None:
        self.receipts: list[str] = []
        super().__init__(seed)

    def receive(self, worker: Worker) -> None:
        super().receive(worker)
        self.receipts += [message.receipt for message in worker.held]

    def told(self) -> dict[str, object]:
        """Its files, its receipts, and what its broker has counted."""
        told: dict[str, object] = {"receipts": self.receipts}
        for number, (shard, contents) in enumerate(zip(self.shards, self.shards.contents(), strict=True)):
            told |= {f"{number}/{name}": bytes(content) for name, content in contents.items()}
            meters = shard.meters
            counts = (meters.commits, meters.published, meters.written_bytes, meters.totals, meters.settled_segments)
            told[f"{number} counts"] = counts
        return told


def test_R7_two_brokers_that_take_turns_do_and_write_what_each_does_alone() -> None:
    alone, together = ([Watched(seed) for seed in (SEED, SEED + 1)] for _ in range(2))
    for simulation in alone:
        for _ in range(10):
            simulation.run(80)
    for _ in range(10):
        for simulation in together:
            simulation.run(80)
    assert sum(simulation.crashes for simulation in together) > 0
    for simulation, other in zip(together, alone, strict=True):
        found, expected = simulation.told(), other.told()
        assert found.keys() == expected.keys()
        assert [name for name in expected if found[name] != expected[name]] == []


THREADS = ("penstock-commit", "penstock-settle", "penstock-time")


def background_threads() -> Counter[str]:
    """Those of brokers, by name; clients of other tests have threads too."""
    return Counter(thread.name for thread in threading.enumerate() if thread.name in THREADS)


@pytest.mark.parametrize("seed", range(3))
def test_L1_Q2_R7_a_broker_that_loses_its_disk_under_load_disturbs_no_other_of_its_process(seed: int) -> None:
    before = background_threads()
    storages = [FaultyStorage(seed), FaultyStorage(seed + 100)]
    clocks = [AlmostNextMinute(0.5), AlmostNextMinute(1.0, days=400)]
    brokers = [
        penstock.open(storage=storage, clock=clock, **OPTIONS) for storage, clock in zip(storages, clocks, strict=True)
    ]
    told = [Told(), Told()]
    loads = [Load(broker, "load", one.note) for broker, one in zip(brokers, told, strict=True)]
    until(lambda: all(len(one.published) > 500 and all(len(d) > 200 for d in one.done.values()) for one in told))

    storages[0].cut_power_after(random.Random(seed).randrange(20))
    loads[0].join()
    assert loads[0].errors
    known, done = len(told[1].published), {group: len(told[1].done[group]) for group in GROUPS}
    with contextlib.suppress(penstock.PenstockError, OSError):
        brokers[0].close()
    until(lambda: len(told[1].published) > known + 300)
    until(lambda: all(len(told[1].done[group]) > done[group] + 300 for group in GROUPS))
    until(lambda: any(topic.name == "ticks" for topic in brokers[1].topics()), "its schedule")

    survivor = storages[0].crash()
    again = penstock.open(storage=survivor, clock=clocks[0], **OPTIONS)  # while the other is under load
    assert (again.status().epoch, brokers[1].status().epoch) == (2, 1)
    assert again.status().broker_id != brokers[1].status().broker_id
    told[0].check(again)
    loads[1].stop()
    assert loads[1].errors == []
    assert not any(told[1].unsure.values())
    told[1].check(brokers[1])
    for group in GROUPS:
        info, done_by = brokers[1].group(TOPIC, group), Counter(told[1].done[group].values())
        assert (info.acked, info.dead) == (done_by["acked"], done_by["dead"]), "it counts its own"
    for broker, clock in zip((again, brokers[1]), clocks, strict=True):
        stamped = next(broker.read(TOPIC)).timestamp_us
        assert 0 <= clock.wall_us() - stamped < 3600e6, "each has a clock of its own"
    per_shard = 2 * len(again.shards)
    assert background_threads() - before == dict(zip(THREADS, (2, per_shard, per_shard), strict=True))
    for broker in (again, brokers[1]):
        broker.close()
    assert background_threads() == before


def test_T2_R7_an_idle_broker_wakes_up_for_its_own_timers_beside_one_under_load() -> None:
    told = Told()
    with penstock.open(storage=MemoryStorage()) as idle, penstock.open(storage=MemoryStorage(), **OPTIONS) as busy:
        for number in range(5):
            idle.create_topic(f"before-{number}")  # so that its topics have numbers that the other has not
        load = Load(busy, "load", told.note)
        with idle.consumer("t", "g", visibility_timeout=0.2) as consumer:
            for _ in range(3):
                idle.publish("t", "later", delay=0.2)
                assert [message.deliveries for message in consumer.receive(wait=20)] == [1]
                (message,) = consumer.receive(wait=20)  # its lease ran out
                assert message.deliveries == 2
                message.ack()
        load.stop()
        assert load.errors == []
        told.check(busy)


def test_R7_a_fork_owns_no_broker_of_the_process(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "one") as one, penstock.open(tmp_path / "two") as two:
        for broker in (one, two):
            broker.publish("t", "before")
        child = os.fork()
        if child == 0:
            refused = 0
            for broker in (one, two):
                try:
                    broker.publish("t", "child")
                except penstock.BrokerClosed:
                    refused += 1
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert [broker.publish("t", "parent").offset for broker in (one, two)] == [1, 1]


@pytest.mark.crash
def test_L1_Q2_both_directories_of_a_killed_process_hold_what_was_confirmed(tmp_path: Path) -> None:
    chance = random.Random(3)
    paths = [str(tmp_path / name) for name in ("one", "two")]
    told = {path: Told() for path in paths}
    for _ in range(3):
        for line in lines_until_killed(chance.randrange(500, 3000), *paths):
            path, word, identity, of = line.split(" ")
            told[path].note(word, identity, of)
    for path in paths:
        assert len(told[path].published) > 200
        with penstock.open(path, **OPTIONS) as broker:
            assert broker.status().epoch == 4
            told[path].check(broker)


def lines_until_killed(count: int, *paths: str) -> list[str]:
    """Start a process that hosts these directories, kill it after so many lines; all that it managed to say."""
    program = "import sys\nfrom tests.shard.load import main\nmain(*sys.argv[1:])"
    with subprocess.Popen(
        command(program, *paths), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        lines: list[str] = []
        for line in child.stdout:
            lines.append(line)
            if len(lines) == count:
                child.kill()
        errors = child.stderr.read()
    assert child.returncode == -9, errors
    return [line.rstrip("\n") for line in lines if line.endswith("\n")]
