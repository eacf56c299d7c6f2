"""`kill -9` while the options of a topic are being changed: what was acknowledged holds."""

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
topic = broker.configure_topic("t") if broker.topics() else broker.create_topic("t", max_deliveries=1)
for number in range(topic.config.max_deliveries + 1, 1_000_000):
    changed = broker.configure_topic("t", max_deliveries=number, visibility_timeout=number)
    assert changed.config.max_deliveries == number
    if number % 50 == 0:
        broker.settle()
    print(number, flush=True)
"""


@pytest.mark.crash
def test_L1_a_change_of_options_that_was_acknowledged_holds_after_a_kill(tmp_path: Path) -> None:
    chance = random.Random(7)
    last = 1
    for _ in range(5):
        child = subprocess.Popen(command(CHANGER, str(tmp_path)), stdout=subprocess.PIPE, cwd=ROOT, text=True)
        assert child.stdout is not None
        for _ in range(chance.randrange(1, 200)):
            last = int(child.stdout.readline())
        child.kill()
        rest = [line for line in child.stdout if line.endswith("\n")]
        last = int(rest[-1]) if rest else last
        child.stdout.close()
        assert child.wait() == -9
        with penstock.open(tmp_path) as broker:
            config = broker.topics()[0].config
        assert config.max_deliveries in (last, last + 1)
        assert config.max_deliveries == config.visibility_timeout
        last = config.max_deliveries
