"""What runs in a child process: `python -m benchmarks.jobs JOB ARGUMENTS`, arguments and answers in JSON.

A job answers and then waits with its broker open: for the word to close it, or to be killed.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import penstock
from benchmarks.bench import SETTLING_OFF
from benchmarks.load import batch, values
from benchmarks.publishers import pipelined, singles_from_tasks
from benchmarks.verify import count_of
from penstock import Broker

Answer = dict[str, Any]


def fill_batches(path: str, batches: int) -> tuple[Broker, Answer]:
    """Publish batches with settling off."""
    broker = penstock.open(path, **SETTLING_OFF)
    return broker, {"seconds": pipelined(broker, ["orders"], range(batches))}


def fill_singles(path: str, messages: int, tasks: int) -> tuple[Broker, Answer]:
    """Publish message by message from many tasks, with settling off."""
    broker = penstock.open(path, **SETTLING_OFF)
    return broker, {"seconds": singles_from_tasks(broker, ["orders"], range(messages), tasks)}


def reopen(path: str) -> tuple[Broker, Answer]:
    """Open a directory and say how long it took and what is in it."""
    start = perf_counter()
    broker = penstock.open(path, **SETTLING_OFF)
    seconds = perf_counter() - start
    return broker, {
        "seconds": seconds,
        "messages": count_of(broker),
        "topics": len(broker.topics()),
        "groups": broker.recovery.groups,
        "resident": _taken(broker)["resident"],
        "resident_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def topics(path: str, count: int, size: int, shards: int = 1) -> tuple[Broker, Answer]:
    """Make topics, then publish a batch to each; what they take of memory and descriptors."""
    broker = penstock.open(path, shards=shards, **SETTLING_OFF)
    for number in range(100):
        broker.create_topic(f"warm-{number}")
        broker.publish_many(f"warm-{number}", batch(number, size))
    before = _taken(broker)
    for number in range(count):
        broker.create_topic(f"topic-{number}")
    made = _taken(broker)
    pipelined(broker, [f"topic-{number}" for number in range(count)], range(count), size)
    return broker, {"before": before, "made": made, "published": _taken(broker), "messages": count_of(broker)}


def open_delayed(path: str, count: int) -> tuple[Broker, Answer]:
    """Open a directory with delayed messages and have the first consumer look at them: seconds and memory."""
    start = perf_counter()
    broker = penstock.open(path, **SETTLING_OFF)
    opened = perf_counter() - start
    broker.consumer("plain", "g").receive(1)
    before = _taken(broker)["resident"]
    start = perf_counter()
    consumer = broker.consumer("delayed", "g")
    found = consumer.receive(1)
    seconds = opened + perf_counter() - start
    taken = _taken(broker)["resident"] - before
    delayed = broker.group("delayed", "g").delayed + len(found)
    return broker, {"seconds": seconds, "bytes": max(taken, 1), "delayed": delayed, "expected": count}


def _taken(broker: Broker) -> Answer:
    """Resident bytes, and open descriptors beside those of the journal's files."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    of_journals = sum(len(shard.journal.files) for shard in broker.shards)
    return {"resident": resident, "descriptors": len(os.listdir("/proc/self/fd")) - of_journals}


_JOBS: dict[str, Callable[..., tuple[Broker, Answer]]] = {
    "fill_batches": fill_batches,
    "fill_singles": fill_singles,
    "open_delayed": open_delayed,
    "reopen": reopen,
    "topics": topics,
}


def main(job: str, arguments: str) -> None:
    values()
    broker, answer = _JOBS[job](**json.loads(arguments))
    print(json.dumps(answer), flush=True)
    if not sys.stdin.readline():
        os._exit(0)
    start = perf_counter()
    broker.close()
    print(json.dumps({"seconds": perf_counter() - start}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
