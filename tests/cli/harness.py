"""Runs the command line against every target that it has: inside this process, as a process, in a shell."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.testing import VirtualClock
from penstock.views.snapshot import Snapshot
from tests.server.harness import Running

PENSTOCK = str(Path(sys.executable).with_name("penstock"))


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Command:
    """`penstock` with the options of one target."""

    def __init__(self, options: dict[str, str], opened: Callable[[], Any]) -> None:
        self.environment = options
        self.open = opened
        """The same broker as Python sees it, to prepare and to check; only while no command runs."""

    def __call__(self, *arguments: object, stdin: str | bytes | None = None) -> Done:
        """Run a command inside this process."""
        result = CliRunner().invoke(app, list(map(str, arguments)), input=stdin, env=self.environment)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    def seen(self, look: Callable[[Any], Any]) -> Any:
        """What there is to see while a command runs: on the server, or in a copy of the directory, which is locked.

        None if the directory changed while it was copied: look again.
        """
        directory = self.environment.get("PENSTOCK_DIR")
        if directory is None:
            with self.open() as broker:
                return look(broker)
        with tempfile.TemporaryDirectory() as copy:
            try:
                shutil.copytree(directory, copy, dirs_exist_ok=True)
            except shutil.Error:
                return None
            with Snapshot(copy) as snapshot:
                return look(snapshot)

    def ok(self, *arguments: object, stdin: str | bytes | None = None) -> str:
        """What a command prints that must succeed."""
        done = self(*arguments, stdin=stdin)
        assert done.code == 0, done
        return done.out

    def refused(self, *arguments: object, code: int = 1, stdin: str | None = None) -> str:
        """The one line that a command says that must not succeed."""
        done = self(*arguments, stdin=stdin)
        assert done.code == code, done
        (line,) = done.err.splitlines()
        assert line.startswith("error: ") and " (hint: " in line and line.endswith(")"), line
        return line

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command as a process, on which Ctrl-C works as in a terminal."""
        return subprocess.Popen(
            [PENSTOCK, *map(str, arguments)],
            env={**os.environ, **self.environment},
            preexec_fn=_default_signals,  # noqa: PLW1509 - it only sets a handler
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )

    def shell(self, line: str) -> Done:
        """Run a line of a shell in which `penstock` is known."""
        path = f"{Path(PENSTOCK).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            env={**os.environ, **self.environment, "PATH": path},
            preexec_fn=_default_signals,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return Done(done.returncode, done.stdout, done.stderr)


def on_terminal(*arguments: object, environment: dict[str, str] | None = None, until: str | None = None) -> str:
    """What a terminal gets of a command; with `until`, it is told to stop (SIGTERM) once that was seen."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)  # every byte as it was written
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 50, 300, 0, 0))
    with subprocess.Popen(
        [PENSTOCK, *map(str, arguments)],
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "300", **(environment or {})},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as child:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # how the end of a terminal is told
            while data := os.read(ours, 65536):
                seen += data
                if until is not None and until.encode() in seen:
                    child.send_signal(signal.SIGTERM)
                    until = None
        os.close(ours)
    return seen.decode()


def _default_signals() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def on_directory(path: Path) -> Iterator[Command]:
    """A command line that works on a directory itself."""
    yield Command({"PENSTOCK_DIR": str(path)}, lambda: penstock.open(path))


@contextlib.contextmanager
def on_server(path: Path) -> Iterator[Command]:
    """A command line that talks to a server."""
    with Running(path) as server:
        yield Command({"PENSTOCK_SERVER": server.address}, lambda: penstock.connect(server.address))


TARGETS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Command]]] = {
    "directory": on_directory,
    "server": on_server,
}


def publish_on_three_days(path: Path) -> None:
    """Two messages on each of three days, from the 13th of January on; those of the first two are in the archive."""
    clock = VirtualClock()
    clock.advance(12.5 * 86_400)
    with penstock.open(path, clock=clock, min_free_bytes=0) as broker:
        broker.create_topic("orders", partitions=2, retention_age="30h", archive="../cold")
        for day in (13, 14, 15):
            for partition in (0, 1):
                broker.publish("orders", f"of {day}", partition=partition)
            broker.settle()
            clock.advance(86_400)
        assert broker.retain() == 4


def check_snapshots(command: Command) -> None:
    """What those messages look like as of some times."""
    shown = command.ok("consume", "orders", "--from-snapshot", "2026-01-14").splitlines()
    assert shown == ["orders/0/0 of 13", "orders/0/1 of 14", "orders/1/0 of 13", "orders/1/1 of 14"]
    assert command.ok("consume", "orders", 1, "--from-snapshot", "2026-01-14T11:59:00Z") == "orders/1/0 of 13\n"
    window = ("--from-snapshot", "2026-01-14", "--from-time", "2026-01-14", "-n", 1, "-o", "raw")
    assert command.ok("consume", "orders", *window) == "of 14\n"
    assert "'nothing'" in command.refused("consume", "nothing", "--from-snapshot", "2026-01-14")
    said = command.refused("consume", "orders", "--from-snapshot", "2026-01-14", "--to-time", "now", code=2)
    assert "two ends" in said
