"""The parts that `make run` starts: a broker with its ports in this process, and children that never outlive it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import uvloop

from penstock.embedded.broker import Broker
from penstock.server.config import load_config
from penstock.server.server import Server

HOST = "127.0.0.1"
ROOT = Path(__file__).parents[2]
_PORTS = {"native": "9000", "http": "8080", "line": "off"}
"""Where the ports are, unless PENSTOCK_NATIVE_PORT and its like say otherwise."""
_GRACE_S = 60.0
_TAIL_LINES = 8


class Serving:
    """A broker and its ports, on an event loop in a thread of this process."""

    def __init__(self, data: Path, environment: Mapping[str, str]) -> None:
        wanted = {name: environment.get(f"PENSTOCK_{name.upper()}_PORT", usual) for name, usual in _PORTS.items()}
        ports = {name: _free(port) for name, port in wanted.items()}
        self.moved = [f"port {wanted[name]} is taken" for name in ports if ports[name] != wanted[name]]
        """What had to be elsewhere than it was wanted."""
        flags = {"data_dir": str(data), "host": HOST, **{f"{name}_port": port for name, port in ports.items()}}
        self._server = Server(load_config(None, {}, flags).config)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server", daemon=True)

    @property
    def broker(self) -> Broker:
        """The broker itself: this process needs no port to use it."""
        return self._server.broker

    @property
    def addresses(self) -> dict[str, str]:
        """Where it listens, by port."""
        return {name: f"{host}:{port}" for name, (host, port) in self._server.addresses.items()}

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._do(self._server.start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._do(self._server.stop())
        finally:
            self._end()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _free(port: str) -> str:
    """The port, or `0` (any that is free) if somebody else has it."""
    if port.isdecimal():
        try:
            socket.create_server((HOST, int(port))).close()
        except OSError:
            return "0"
    return port


class ChildDied(Exception):
    """A part ended that should not have."""


class Child:
    """A command as a process of its own, with its own log; killed if this process dies, asked to stop if it ends.

    It is in a session of its own, so that Ctrl-C on the terminal reaches this process alone, which then stops its parts
    one after the other.
    """

    def __init__(self, name: str, command: list[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.command = command
        self.log = log
        self.environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its number, which is that of its process group too."""
        return None if self._process is None else self._process.pid

    def check(self) -> None:
        """Raise ChildDied if it is not running."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            last = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
            told = "\n".join(f"    {line}" for line in last)
            raise ChildDied(f"the {self.name} ended by itself ({_how(code)}); the last lines of {self.log}:\n{told}")

    def kill(self) -> None:
        """End it at once, with what it started."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def crash(self) -> None:
        """End it at once, and return when it is gone."""
        self.kill()
        if self._process is not None:
            self._process.wait()

    def __enter__(self) -> Self:
        tied = [sys.executable, "-m", "examples.orders.tied", str(os.getpid())]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*tied, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=ROOT,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        over_s = time.monotonic() + _GRACE_S
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        while self._has_others() and time.monotonic() < over_s:  # Java tidies up behind the Python that started it
            time.sleep(0.05)
        self.crash()

    def _has_others(self) -> bool:
        """Whether there is anybody left in its group."""
        assert self.pid is not None
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


@contextlib.contextmanager
def asked_to_stop(at_once: list[Child]) -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and the end of the terminal set; a second of them kills `at_once` and leaves."""
    asked = threading.Event()

    def hear(number: int, _: object) -> None:
        if asked.is_set():
            for child in at_once:
                child.kill()
            os._exit(128 + number)  # what was acknowledged is on disk
        asked.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, hear) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
