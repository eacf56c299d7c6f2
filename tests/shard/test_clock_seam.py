"""Time, sleeping and randomness reach the broker through its clock: the source is searched for other ways."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

SOURCE = Path(penstock.__file__).parent
PACKAGES = ("delivery", "embedded", "journal", "log", "model", "segments", "shard", "storage", "views")

OUTSIDE = (
    "time.", "random.", "secrets.", "uuid.uuid", "os.urandom", "os.getrandom", "asyncio.sleep", "threading.Timer",
    "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today",
    "signal.alarm", "signal.setitimer",
)  # fmt: skip
"""What differs from run to run, or takes real time."""

UNTIMED_ARGUMENTS = {"wait": 0, "wait_for": 1, "acquire": 1, "join": 0}
"""Methods of `threading` that take a timeout, and how many arguments come before it."""

ALLOWED = {
    ("model/clock.py", "time.time_ns"): "the machine's own clock",
    ("model/clock.py", "time.monotonic"): "the machine's own clock",
    ("model/clock.py", "time.sleep"): "the machine's own clock",
    ("model/clock.py", "os.urandom"): "the machine's own randomness",
    ("shard/upkeep/flushing.py", "_wanted.wait"): "a thread, which a shard in a simulation does not have",
    ("shard/upkeep/background.py", "_settle_wanted.wait"): "a thread, as above",
    ("shard/upkeep/background.py", "_alarm.wait"): "a thread, as above",
    (
        "shard/upkeep/background.py",
        "time.sleep",
    ): "a thread, which leaves the lock to others: on a virtual clock it would move it",
    ("embedded/presence.py", "_ended.wait"): "a thread, as above; members in a simulation have none",
    ("embedded/consumer.py", "arrived.acquire"): "a receiver waits for what other threads do; simulations do not wait",
}


def uses(source: str) -> Iterator[str]:
    """What a module uses of the outside, under whatever name it was imported, and its waits that have a timeout."""
    tree = ast.parse(source)
    imported: dict[str, str] = {}
    primitives: set[str] = set()  # variables and attributes that hold a lock, an event, a thread
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {each.asname or each.name.partition(".")[0]: each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if full_name(node.value.func, imported).startswith("threading."):
                primitives |= {last_name(target) for target in targets}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and full_name(node, imported).startswith(OUTSIDE):
            yield full_name(node, imported)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            holder, method = last_name(node.func.value), node.func.attr
            timed = len(node.args) > UNTIMED_ARGUMENTS.get(method, 99) or any(k.arg == "timeout" for k in node.keywords)
            if holder in primitives and timed:
                yield f"{holder}.{method}"


def full_name(node: ast.expr, imported: dict[str, str]) -> str:
    """The name with its module, if that was imported."""
    if isinstance(node, ast.Attribute):
        return f"{full_name(node.value, imported)}.{node.attr}"
    return imported.get(node.id, "") if isinstance(node, ast.Name) else ""


def last_name(node: ast.expr) -> str:
    """The variable, or the attribute of whatever it is an attribute of."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def test_nothing_but_the_clock_knows_the_time_sleeps_or_draws_at_random() -> None:
    files = [file for package in PACKAGES for file in (SOURCE / package).rglob("*.py")]
    assert len(files) > 100
    found = {(file.relative_to(SOURCE).as_posix(), use) for file in files for use in uses(file.read_text())}
    assert found - ALLOWED.keys() == set(), "ask shard.clock instead: it can be simulated"
    assert ALLOWED.keys() - found == set(), "this is not there any more: take it off the list"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time\ntime.sleep(1)", ["time.sleep"]),
        ("import time as t\nstarted_s = t.monotonic()", ["time.monotonic"]),
        ("from time import perf_counter as now_s\nnow_s()", ["time.perf_counter"]),
        ("def f():\n    import secrets\n    return secrets.token_hex(8)", ["secrets.token_hex"]),
        ("import uuid\nfield(default_factory=uuid.uuid4)", ["uuid.uuid4"]),
        ("import uuid\nuuid.UUID(bytes=given, version=4)", []),
        ("from datetime import UTC, datetime\ndatetime.now(UTC)", ["datetime.datetime.now"]),
        ("import datetime\ndatetime.datetime.now()", ["datetime.datetime.now"]),
        ("from datetime import datetime\ndatetime.fromisoformat(text)", []),
        ("import os\nos.urandom(16)", ["os.urandom"]),
        ("import threading\nstop = threading.Event()\nstop.wait(5)", ["stop.wait"]),
        ("import threading\nself.stop = threading.Event()\nself.stop.wait(timeout=5)", ["stop.wait"]),
        ("from threading import Lock\nlock = Lock()\nlock.acquire(True, 5)", ["lock.acquire"]),
        ("import threading\nready = threading.Condition()\nready.wait_for(is_done, 5)", ["ready.wait_for"]),
        ("import threading\nready = threading.Condition()\nready.wait_for(is_done)\nready.wait()", []),
        ("journal.wait(commit)\nclock.sleep_s(5)\nself.time.sleep(5)", []),
    ],
)
def test_the_search_finds_what_it_is_for(source: str, found: list[str]) -> None:
    assert list(uses(source)) == found
