"""Signals, from the first polite one to SIGKILL, to workers in processes of their own: nothing is lost."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock
from tests.sharding import ROOT, command
from tests.worker.harness import fill, group

PROGRAM = """
import asyncio, logging, os, sys
from penstock.worker import Worker

logging.basicConfig(level="INFO", format="%(message)s")
directory, kind, grace = sys.argv[1:]
worker = Worker(directory=directory)
worker.on_stop(lambda: said("closed"))

def said(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

if kind == "quick":
    @worker.subscribe("t", "g", concurrency=8)
    def handle(message):
        said("handled", message.offset)

elif kind == "thread":
    @worker.subscribe("t", "g", concurrency=2)
    def handle(message):
        said("begun", message.offset)
        sys.stdin.readline()
        said("ended", message.offset)

else:
    @worker.subscribe("t", "g", concurrency=2)
    async def handle(message):
        said("begun", message.offset)
        await asyncio.to_thread(sys.stdin.readline) if kind == "task" else await asyncio.Event().wait()
        said("ended", message.offset)

worker.run(grace=grace)
said("returned")
"""


@contextmanager
def started(path: Path, kind: str, grace: str = "60s") -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        command(PROGRAM, str(path), kind, grace),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        try:
            yield child
        finally:
            child.kill()


def lines(child: subprocess.Popen[str], count: int) -> list[str]:
    assert child.stdout is not None
    return [child.stdout.readline().strip() for _ in range(count)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["thread", "task"])
def test_a_signal_lets_handlers_finish_and_takes_nothing_more(tmp_path: Path, kind: str, number: int) -> None:
    fill(tmp_path, count=10)
    with started(tmp_path, kind) as child:
        assert sorted(lines(child, 2)) == ["begun 0", "begun 1"]
        child.send_signal(number)
        said, errors = child.communicate("go on\ngo on\n", timeout=60)
        assert sorted(said.split("\n")[:2]) == ["ended 0", "ended 1"]
        assert said.split("\n")[2:] == ["closed", "returned", ""]
        assert child.returncode == 0
        assert errors.splitlines() == ["started: t for g", "stopping: handlers have 60 s to finish", "stopped"]
    info = group(tmp_path)
    assert (info.acked, info.ready, info.lag) == (2, 8, 8)


@pytest.mark.parametrize("kind", ["thread", "endless"])
@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, -signal.SIGINT, "closed\n"), (signal.SIGTERM, 0, "closed\nreturned\n")]
)
def test_a_second_signal_stops_at_once_and_gives_back(
    tmp_path: Path, kind: str, number: int, code: int, said: str
) -> None:
    fill(tmp_path, count=10)
    with started(tmp_path, kind) as child:
        lines(child, 2)
        child.send_signal(number)
        assert child.stderr is not None
        assert next(line for line in child.stderr if line.startswith("stopping"))
        child.send_signal(number)
        assert child.stdout is not None
        assert child.stdout.read() == said
        assert child.wait(60) == code, "also when a thread hangs"
    info = group(tmp_path)
    assert (info.acked, info.ready) == (0, 10)
    with penstock.open(tmp_path) as broker:
        assert [line.kind for line in broker.trace("t/0/0").lines] == ["published", "delivered", "released"]


def test_after_the_grace_the_process_ends_although_threads_hang(tmp_path: Path) -> None:
    fill(tmp_path, count=10)
    with started(tmp_path, "thread", "100ms") as child:
        lines(child, 2)
        child.send_signal(signal.SIGTERM)
        assert lines(child, 2) == ["closed", "returned"]
        assert child.wait(60) == 0
    assert group(tmp_path).ready == 10


@pytest.mark.crash
def test_nothing_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    fill(tmp_path, count=3000)
    handled: list[str] = []
    for _ in range(4):
        with started(tmp_path, "quick") as child:
            handled += lines(child, 400)
            child.kill()
            assert child.stdout is not None
            handled += [line.strip() for line in child.stdout if line.endswith("\n")]
    acked = group(tmp_path).acked
    assert 0 < acked <= len(handled)
    with started(tmp_path, "quick") as child:
        handled += lines(child, 3000 - acked)
        child.send_signal(signal.SIGTERM)
        handled += [line.strip() for line in child.communicate(timeout=60)[0].splitlines()]
    assert {f"handled {offset}" for offset in range(3000)} <= set(handled)
    assert len([line for line in handled if line.startswith("handled")]) <= 3000 + 4 * 8, "8 were in hand at each kill"
    info = group(tmp_path)
    assert (info.acked, info.lag) == (3000, 0)
