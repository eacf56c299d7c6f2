"""A server as a process of its own, on loopback, with its data in a directory of the run; always stopped."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep

_START_S = 90.0
_STOP_S = 20.0
_LOG_BYTES = 2000


class NotStarted(Exception):
    """A peer could not be started."""


def free_port() -> int:
    """A port of loopback that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextlib.contextmanager
def running(
    command: Sequence[str], directory: Path, port: int, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a directory until the end of the block, from when it listens on the port."""
    log = directory / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the run, which then stops its servers
        )
    try:
        _wait_until_it_listens(process, port, log)
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process: politely, and if that does not help, at once."""
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        pass
    finally:  # also if it was interrupted
        process.kill()
        process.wait()


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = monotonic() + _START_S
    while monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        sleep(0.02)
    said = log.read_bytes()[-_LOG_BYTES:].decode(errors="replace")
    raise NotStarted(f"{process.args!r} does not listen on port {port}:\n{said}")
