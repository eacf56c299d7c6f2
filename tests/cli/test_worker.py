"""`penstock worker`: finding the worker, running it, and starting it again when its sources change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock

APP = """
import asyncio, os
import penstock.worker

worker = penstock.worker.Worker(directory="data")
something = 1

@worker.on_start
def started():
    print("started", VERSION, os.getpid(), flush=True)

@worker.on_stop
def ended():
    print("ended", VERSION, flush=True)

@worker.subscribe("t", "g")
async def handle(message):
    print("handled", message.value.decode(), flush=True)
    if message.value == b"wait":
        await asyncio.Event().wait()
"""

Start = Callable[..., subprocess.Popen[str]]


def app(place: Path, version: int, rest: str = "") -> None:
    (place / "app.py").write_text(APP.replace("VERSION", str(version)) + rest)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the command in the test's directory."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", "worker", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(child)
        return child

    yield start
    for child in running:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)


def line(child: subprocess.Popen[str]) -> list[str]:
    assert child.stdout is not None
    return child.stdout.readline().split()


def told(child: subprocess.Popen[str], what: str) -> str:
    """The next line for people that says this."""
    assert child.stderr is not None
    return next(text for text in child.stderr if what in text)


@pytest.mark.parametrize(
    ("target", "problem", "hint"),
    [
        ("app", "'app' does not name a worker", "give MODULE:WORKER"),
        ("app:", "'app:' does not name a worker", "give MODULE:WORKER"),
        ("shop/app.py:worker", "does not name a worker", "shop.orders:worker for shop/orders.py"),
        ("nowhere:worker", "there is no module 'nowhere'", "PYTHONPATH"),
        ("app.orders:worker", "there is no module 'app.orders'", "PYTHONPATH"),
        ("app:orders", "the module 'app' has no 'orders'", "it has app:worker"),
        ("app:something", "app:something is no penstock.Worker, but of the type 'int'", "it has app:worker"),
        ("empty:worker", "the module 'empty' has no 'worker'", "`worker = penstock.Worker()`"),
        ("wrong:worker", "line 2: ", "cannot be imported until it is right"),
    ],
)
def test_what_is_no_worker_is_told_in_one_line(
    tmp_path: Path, start: Start, target: str, problem: str, hint: str
) -> None:
    app(tmp_path, 1)
    (tmp_path / "empty.py").touch()
    (tmp_path / "wrong.py").write_text("1 + 1\n1 +\n")
    child = start(target)
    said, errors = child.communicate(timeout=60)
    assert (child.returncode, said) == (2, "")
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert problem in errors
    assert hint in errors.partition("(hint: ")[2]


@pytest.mark.parametrize("options", [["--grace", "soon"], ["--server", "a:1", "--dir", "b"], ["--log-level", "loud"]])
def test_wrong_options_are_wrong_usage(tmp_path: Path, start: Start, options: list[str]) -> None:
    app(tmp_path, 1)
    child = start("app:worker", *options)
    errors = child.communicate(timeout=60)[1]
    assert child.returncode == 2
    assert options[0].strip("-") in errors.lower()
    assert "Traceback" not in errors


def test_an_error_in_the_module_itself_shows_where_it_is(tmp_path: Path, start: Start) -> None:
    (tmp_path / "app.py").write_text("import nowhere\n")
    child = start("app:worker")
    errors = child.communicate(timeout=60)[1]
    assert child.returncode == 1
    assert "No module named 'nowhere'" in errors
    assert "app.py" in errors


def test_it_runs_the_worker_until_a_signal_comes(tmp_path: Path, start: Start) -> None:
    app(tmp_path, 1)
    with penstock.open(tmp_path / "data") as broker:
        broker.publish("t", "hello")
    child = start("app:worker", "--log-level", "info")
    assert line(child)[:2] == ["started", "1"]
    assert line(child) == ["handled", "hello"]
    child.send_signal(signal.SIGINT)
    said, errors = child.communicate(timeout=60)
    assert (child.returncode, said) == (0, "ended 1\n")
    assert "INFO penstock.worker: started: t for g" in errors
    assert "INFO penstock.worker: stopped" in errors


def test_another_directory_may_be_given(tmp_path: Path, start: Start) -> None:
    app(tmp_path, 1)
    with penstock.open(tmp_path / "other") as broker:
        broker.publish("t", "here")
    child = start("app:worker", "--dir", "other", "--log-level", "error")
    assert line(child)[0] == "started"
    assert line(child) == ["handled", "here"]
    child.send_signal(signal.SIGTERM)
    assert child.communicate(timeout=60) == ("ended 1\n", "")
    assert child.returncode == 0


def test_a_second_interrupt_ends_it_with_130_and_gives_back(tmp_path: Path, start: Start) -> None:
    app(tmp_path, 1)
    with penstock.open(tmp_path / "data") as broker:
        broker.publish("t", "wait")
    child = start("app:worker")
    assert line(child)[0] == "started"
    assert line(child) == ["handled", "wait"]
    child.send_signal(signal.SIGINT)
    told(child, "stopping")
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 130
    with penstock.open(tmp_path / "data") as broker:
        assert broker.group("t", "g").ready == 1


def test_what_it_cannot_open_is_told_in_one_line(tmp_path: Path, start: Start) -> None:
    app(tmp_path, 1)
    with penstock.open(tmp_path / "data"):
        child = start("app:worker")
        errors = child.communicate(timeout=60)[1]
    assert child.returncode == 3
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1


def test_a_hook_that_fails_shows_where(tmp_path: Path, start: Start) -> None:
    app(tmp_path, 1, "\n@worker.on_start\ndef broken():\n    open('nowhere')\n")
    child = start("app:worker")
    errors = child.communicate(timeout=60)[1]
    assert child.returncode == 1
    assert "in broken" in errors
    assert "hint" not in errors


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_change_of_a_source_starts_it_again(tmp_path: Path, start: Start) -> None:
    app(tmp_path, 1)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/part.py").write_text("")
    child = start("app:worker", "--reload")
    first = line(child)
    assert first[:2] == ["started", "1"]

    app(tmp_path, 2)
    assert line(child) == ["ended", "1"], "it ends gracefully"
    second = line(child)
    assert second[:2] == ["started", "2"]
    assert first[2] != second[2]
    told(child, "app.py has changed")

    app(tmp_path, 3, "def broken(:\n")
    assert line(child) == ["ended", "2"]
    told(child, "error: ")
    told(child, "starts again when a file has changed")
    app(tmp_path, 4)
    assert line(child)[:2] == ["started", "4"]

    (tmp_path / "shop/new.py").write_text("x = 1\n")
    assert line(child) == ["ended", "4"]
    last = line(child)
    assert last[:2] == ["started", "4"]

    child.send_signal(signal.SIGINT)
    assert line(child) == ["ended", "4"]
    assert child.wait(60) == 0
    assert not is_alive(int(last[2]))


def test_two_interrupts_end_a_reloading_worker_at_once(tmp_path: Path, start: Start) -> None:
    app(tmp_path, 1)
    with penstock.open(tmp_path / "data") as broker:
        broker.publish("t", "wait")
    child = start("app:worker", "--reload")
    inner = line(child)[2]
    assert line(child) == ["handled", "wait"]
    child.send_signal(signal.SIGINT)
    told(child, "stopping")
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 130
    assert not is_alive(int(inner))
    with penstock.open(tmp_path / "data") as broker:
        assert broker.group("t", "g").ready == 1


def test_a_reloading_worker_that_stops_by_itself_is_over(tmp_path: Path, start: Start) -> None:
    app(tmp_path, 1, "\nworker.on_start(worker.stop)\n")
    child = start("app:worker", "--reload")
    child.communicate(timeout=60)
    assert child.returncode == 0
