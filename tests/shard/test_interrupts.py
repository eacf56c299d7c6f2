"""Signals wait for the operation under way, whatever their handlers do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_LOOP = """
import os, random, signal, sys, threading, penstock
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it may be ignored
timer = threading.Timer(random.Random({seed}).uniform(0.05, 0.3), lambda: os.kill(os.getpid(), signal.{name}))
try:
    with penstock.open("data") as broker, broker.consumer("t", "g") as consumer:
        timer.start()
        while True:
            {work}
except (SystemExit, KeyboardInterrupt):
    pass
with penstock.open("data") as broker:
    info = broker.group("t", "g")
    assert info.published == info.acked + info.ready + info.dead + info.retrying, info
print("left cleanly")
"""
_CONSUME = 'broker.publish("t", "x"); [m.ack() for m in consumer.receive(10)]'
_TRACE = 'broker.trace(broker.publish("t", "x")); broker.group("t", "g")'
_REDRIVE = 'broker.publish("t", "x"); [m.kill("no") for m in consumer.receive(10)]; broker.redrive("t")'


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("work", [_CONSUME, _TRACE, _REDRIVE], ids=["consume", "trace", "redrive"])
def test_a_signal_handler_that_raises_leaves_a_broker_that_can_be_closed(
    tmp_path: Path, work: str, name: str, seed: int
) -> None:
    code = _LOOP.format(work=work, name=name, seed=seed)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "left cleanly\n"), done.stderr
