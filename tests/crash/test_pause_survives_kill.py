"""`kill -9` while a group is paused and resumed: what was acknowledged holds."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

import penstock
from tests.sharding import ROOT, command

CHANGER = """
import sys, penstock
broker = penstock.open(sys.argv[1], journal_file_bytes="16KiB")
if not broker.topics():
    broker.publish("t", "x")
    broker.create_group("t", "g")
paused = broker.group("t", "g").settings.paused
for number in range(1_000_000):
    paused = not paused
    change = broker.pause_group if paused else broker.resume_group
    assert change("t", "g").settings.paused is paused
    if number % 50 == 0:
        broker.settle()
    print(int(paused), flush=True)
"""


@pytest.mark.crash
def test_Q12_a_pause_that_was_acknowledged_holds_after_a_kill(tmp_path: Path) -> None:
    chance = random.Random(7)
    known = 0
    for _ in range(5):
        child = subprocess.Popen(command(CHANGER, str(tmp_path)), stdout=subprocess.PIPE, cwd=ROOT, text=True)
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(chance.randrange(1, 200))]
        child.kill()
        lines += [line for line in child.stdout if line.endswith("\n")]
        child.stdout.close()
        assert child.wait() == -9
        with penstock.open(tmp_path) as broker, broker.consumer("t", "g") as consumer:
            changes = [event for event in broker.events("t") if event.kind == penstock.EventKind.CONFIGURED]
            paused = broker.group("t", "g").settings.paused
            assert (consumer.receive() == []) is paused
        assert len(changes) - known in (len(lines), len(lines) + 1), "at most one was written and not acknowledged"
        assert paused is bool(len(changes) % 2)
        known = len(changes)
