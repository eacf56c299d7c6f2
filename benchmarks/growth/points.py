"""One point in a process of its own: `python -m benchmarks.growth.points LINE SIZE MESSAGES DIRECTORY`.

So the memory of a point is not that of the points before it: its resident bytes, after less before the work. The answer
is JSON.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import penstock
from benchmarks.bench import Bench
from benchmarks.growth.lines import LINES, SMALL_BATCH, Work
from benchmarks.load import batch, values
from benchmarks.publishers import pipelined
from penstock import Broker

_ROOT = Path(__file__).resolve().parents[2]
_QUICK_MESSAGES = 2000

Point = dict[str, Any]
"""The size, how many messages there were, the seconds of each by what was done, and the bytes of memory of all."""


def measure_point(bench: Bench, line: str, size: int, rounds: int) -> Point:
    """The medians of some rounds, each in a new process and a new directory."""
    found = [_in_child(bench, line, size) for _ in range(rounds)]
    return {
        "size": size,
        "messages": found[0]["messages"],
        **{
            kind: {what: median(one[kind][what] for one in found) for what in found[0][kind]}
            for kind in ("times", "processor")
        },
        "memory_bytes": median(one["memory_bytes"] for one in found),
        "rounds": found,
    }


def _in_child(bench: Bench, line: str, size: int) -> Point:
    messages = bench.size(LINES[line].messages, _QUICK_MESSAGES)
    with bench.scratch() as path:
        command = [sys.executable, "-m", "benchmarks.growth.points", line, str(size), str(messages), str(path)]
        done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
    answer: Point = json.loads(done.stdout)
    return answer


def _resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _warm_up(broker: Broker) -> None:
    """Do a little of everything, so that what is loaded once for all is not counted."""
    pipelined(broker, ["warm"], range(20))
    with broker.consumer("warm", "g") as consumer:
        consumer.ack(consumer.receive(1000))
    broker.settle()
    broker.delete_topic("warm")


def main(line: str, size: str, messages: str, directory: str) -> None:
    values()
    batch(0, SMALL_BATCH)  # makes all batches of this size
    with penstock.open(directory) as broker:
        _warm_up(broker)
        before = _resident_bytes()
        work = Work()
        LINES[line].do(work, broker, int(size), int(messages))
        taken = _resident_bytes() - before
    print(json.dumps({**vars(work), "memory_bytes": max(0, taken)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
