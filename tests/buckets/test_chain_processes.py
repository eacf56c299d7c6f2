"""Processes that own a chain in turn on a real bucket are killed and stopped, and nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from penstock.journal.chain import Chain, Fenced, Found, read
from penstock.journal.chain_layout import Piece
from penstock.journal.conversing import carry_out
from penstock.storage.buckets import open_objects
from penstock.storage.objects import ObjectStore
from penstock.testing.seaweed import BUCKET, Seaweed
from tests.buckets.chain_process import Value, pause, values_of

pytestmark = pytest.mark.crash
PROCESSES, DISTURBANCES = 3, 12
CLAIMERS, CLAIMS = 8, 3


class Processes:
    """Those that run, and what they have noted."""

    def __init__(self, path: Path, address: str) -> None:
        self._path, self._address = path, address
        self._born = 0
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._born += 1
        command = [sys.executable, "-m", "tests.buckets.chain_process", str(self._born), self._address]
        self._running.append(subprocess.Popen([*command, str(self._path / f"{self._born}.notes")]))

    def kill(self, chance: random.Random) -> None:
        """End one at once, and start another."""
        victim = self._running.pop(chance.randrange(len(self._running)))
        victim.kill()
        victim.wait()
        self.start()

    def stop(self, chance: random.Random) -> None:
        """Have one do nothing until others have gone on without it."""
        victim = chance.choice(self._running)
        victim.send_signal(signal.SIGSTOP)
        self.wait_for_more(100)
        victim.send_signal(signal.SIGCONT)

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more values were acknowledged."""
        before, until_s = len(self.acked()), time.monotonic() + 60
        while len(self.acked()) < before + count:
            assert time.monotonic() < until_s, "nobody writes any more"
            assert all(process.poll() is None for process in self._running)
            time.sleep(0.02)

    def acked(self) -> list[Value]:
        """What was acknowledged, as far as it is noted."""
        notes = [file.read_bytes().split(b"\n")[:-1] for file in sorted(self._path.glob("*.notes"))]
        found = [tuple(map(int, line.split())) for lines in notes for line in lines]
        return [(number, epoch, written) for number, epoch, written in found]

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


@pytest.mark.parametrize("kind", ["bucket", "directory"])
def test_C1_C2_C4_processes_take_over_from_one_another_and_nothing_is_lost(
    kind: str, store: Seaweed, bucket: Seaweed, tmp_path: Path
) -> None:
    assert os.environ["AWS_ENDPOINT_URL"] == store.environment["AWS_ENDPOINT_URL"]
    address = f"s3://{BUCKET}/chain" if kind == "bucket" else (tmp_path / "bucket").as_uri()
    processes, chance = Processes(tmp_path, address), random.Random(5)
    try:
        for _ in range(PROCESSES):
            processes.start()
        for number in range(DISTURBANCES):
            processes.wait_for_more(50)
            act: Callable[[random.Random], None] = processes.stop if number % 2 else processes.kill
            act(chance)
    finally:
        processes.end()
    _check(open_objects(address), processes.acked())


def test_C1_of_eight_that_claim_for_one_dead_owner_at_once_one_has_the_chain(bucket: Seaweed) -> None:
    objects = open_objects(f"s3://{BUCKET}/claimed-at-once")
    for epoch in range(1, CLAIMS + 1):
        chains = [Chain(0, (CLAIMERS * epoch + number).to_bytes(16), str(number)) for number in range(CLAIMERS)]
        with ThreadPoolExecutor(CLAIMERS) as threads:
            fenced = list(threads.map(partial(_claim, objects, epoch - 1), chains))
        assert fenced.count(None) == 1
        owner = chains[fenced.index(None)]
        assert owner.epoch == epoch
        assert {seal.incarnation for seal in fenced if seal is not None} == {owner.incarnation}, "all know who it is"
        carry_out(owner.append(1, 0, b"it writes"), objects, pause)
    assert len(carry_out(read(0), objects, pause).pieces) == CLAIMS


def _claim(objects: ObjectStore, dead_epoch: int, chain: Chain) -> Piece | None:
    """Claim a chain; the seal of somebody else who was quicker."""
    try:
        carry_out(chain.claim(dead_epoch), objects, pause)
    except Fenced as error:
        return error.seal
    return None


def _check(objects: ObjectStore, acked: list[Value]) -> None:
    found: Found = carry_out(read(0), objects, pause)
    values = values_of(found)
    assert set(acked) <= set(values), "C2: nothing that was acknowledged is lost"
    assert len(set(values)) == len(values), "C3: nothing is there twice"
    owners = {epoch: number for number, epoch, _ in values}
    assert all(owners[epoch] == number for number, epoch, _ in values), "C1: an epoch has one owner"
    epochs = [epoch for _, epoch, _ in values]
    assert epochs == sorted(epochs)
    assert len(owners) > PROCESSES
    seals = [name for name in objects.list("journal/") if b"process" in (objects.get(name) or b"")]
    assert len(seals) >= found.end.epoch, "C4: every seal is there"
