"""`kill -9` of a real process, again and again, while somebody keeps the list of what was acknowledged."""

from __future__ import annotations

import random
import signal
import subprocess
from collections import Counter
from pathlib import Path
from time import perf_counter

import pytest

import penstock
from tests.sharding import ROOT, command

PUBLISHER = "import sys\nfrom tests.crash.publisher import main\nmain(*sys.argv[1:])"


def publish_until_killed(path: Path, run: str, acknowledgements: int) -> list[str]:
    """Start the publisher, kill it after so many acknowledgements; all that it managed to say."""
    child = subprocess.Popen(
        command(PUBLISHER, str(path), run), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert child.stdout is not None
    assert child.stderr is not None
    lines: list[str] = []
    for line in child.stdout:
        lines.append(line)
        if len(lines) == acknowledgements:
            child.kill()
    errors = child.stderr.read()
    child.stdout.close()
    child.stderr.close()
    child.wait()
    assert child.returncode == -9, errors
    return [line.rstrip("\n") for line in lines if line.endswith("\n")]


@pytest.mark.crash
def test_L1_L4_L5_nothing_acknowledged_is_missing_and_nothing_is_doubled_after_kills(tmp_path: Path) -> None:
    chance = random.Random(7)
    acknowledged: dict[str, str] = {}
    for run in range(8):
        for line in publish_until_killed(tmp_path / "data", str(run), chance.randrange(1, 4000)):
            identity, value = line.split(" ")
            assert identity not in acknowledged, "L3: an offset was given twice"
            acknowledged[identity] = value
        with penstock.open(tmp_path / "data") as broker:
            stored = {str(m.id): m.value.decode() for name in ("singles", "wide") for m in broker.read(name)}
        missing = {identity for identity, value in acknowledged.items() if stored.get(identity) != value}
        assert not missing, f"{len(missing)} acknowledged messages are missing"
        doubled = [value for value, count in Counter(stored.values()).items() if count > 1]
        assert not doubled
        batches = Counter(value.rsplit(".", 1)[0] for identity, value in stored.items() if identity.startswith("wide"))
        assert set(batches.values()) <= {50}, "L5: a batch is all or nothing"
    assert len(acknowledged) > 5000


@pytest.mark.crash
def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    publish_until_killed(tmp_path, "0", 1)
    with penstock.open(tmp_path) as broker:
        assert broker.topics()


INTERRUPTED = """
import itertools, sys, penstock
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it may be ignored
broker = penstock.open(sys.argv[1])
acknowledged, interrupts = [], 0
while interrupts < 1500:
    try:
        print("ready", flush=True)
        for number in itertools.count(len(acknowledged)):
            acknowledged.append(broker.publish("t", f"{number}"))
            if number % 10 == 0:
                acknowledged.extend(broker.publish_many("t", ["x"] * 7))
    except KeyboardInterrupt:
        interrupts += 1
broker.close()
print(len(acknowledged), flush=True)
"""


@pytest.mark.crash
def test_ctrl_c_at_any_moment_leaves_the_broker_whole(tmp_path: Path) -> None:
    child = subprocess.Popen(command(INTERRUPTED, str(tmp_path)), stdout=subprocess.PIPE, cwd=ROOT, text=True)
    assert child.stdout is not None
    chance = random.Random(7)
    for _ in range(1500):
        assert child.stdout.readline() == "ready\n"
        moment = perf_counter() + chance.random() / 1500
        while perf_counter() < moment:
            pass
        child.send_signal(signal.SIGINT)
    acknowledged = int(child.stdout.readline())
    child.stdout.close()
    assert child.wait() == 0
    with penstock.open(tmp_path) as broker:
        offsets = [message.offset for message in broker.read("t")]
    assert offsets == list(range(len(offsets)))
    assert acknowledged <= len(offsets) <= acknowledged + 1500 * 7
