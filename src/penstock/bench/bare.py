"""The baseline: a round trip over loopback to a process that does nothing but write and sync what it gets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns
from typing import Self

from penstock.bench.bare_child import LENGTHS, receive
from penstock.bench.histogram import Histogram
from penstock.model.errors import PenstockError

WHAT = "bare: a loopback round trip of the same bytes, written and synced"
_TIMEOUT_S = 30.0


class Bare:
    """The process, started when it is needed; to be used in a `with` block."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._child: subprocess.Popen[str] | None = None
        self._port = 0

    def trips(self, request_bytes: int, reply_bytes: int) -> Trips:
        """Round trips with requests and replies of these lengths."""
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "penstock.bench.bare_child", str(self._directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self._child.stdout is not None
            line = self._child.stdout.readline()
            if not line:
                raise PenstockError(f"the bare server could not start in {self._directory}")
            self._port = int(line)
        return Trips(self._port, request_bytes, reply_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()


class Trips:
    """One connection to it; latencies go into a histogram."""

    def __init__(self, port: int, request_bytes: int, reply_bytes: int) -> None:
        self._request = os.urandom(request_bytes)
        self._reply = memoryview(bytearray(reply_bytes))
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(LENGTHS.pack(request_bytes, reply_bytes))
        self.histogram = Histogram()
        self.seconds = 0.0

    def run(self, seconds: float) -> None:
        """One after the other, for some seconds, and at least one."""
        connection, request, reply = self._socket, self._request, self._reply
        first_ns = before_ns = perf_counter_ns()
        until_ns = first_ns + round(seconds * 1e9)
        while True:
            connection.sendall(request)
            if not receive(connection, reply):
                raise PenstockError("the bare server failed: look at the disk")
            now_ns = perf_counter_ns()
            self.histogram.record(now_ns - before_ns)
            before_ns = now_ns
            if now_ns >= until_ns:
                break
        self.seconds += (now_ns - first_ns) / 1e9

    @property
    def per_second(self) -> float:
        """How many a second, one at a time."""
        return self.histogram.count / self.seconds

    def close(self) -> None:
        """Let it go."""
        self._socket.close()
