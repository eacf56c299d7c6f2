"""The baseline: a round trip over loopback to a process that does nothing but write and sync what it gets.

The process is `python -m penstock.bench.bare DIR`. It takes requests of a fixed length, writes and syncs each, and
replies with a fixed number of bytes: the least that any durable server has to do.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns
from typing import Self

from penstock.bench.histogram import Histogram
from penstock.model.errors import PenstockError

WHAT = "bare: a loopback round trip of the same bytes, written and synced"
_TIMEOUT_S = 30.0
_LENGTHS = struct.Struct(">II")  # the first bytes of a connection: how long requests and replies are
_FIRST_BYTES = 4096


class Bare:
    """The process, started when it is first needed; use it in a `with` block."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._child: subprocess.Popen[str] | None = None
        self._port = 0

    def trips(self, request_bytes: int, reply_bytes: int) -> Trips:
        """Round trips with requests and replies of these lengths."""
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "penstock.bench.bare", str(self._directory)],
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
    """One connection to the process; latencies go into a histogram."""

    def __init__(self, port: int, request_bytes: int, reply_bytes: int) -> None:
        self._request = os.urandom(request_bytes)
        self._reply = memoryview(bytearray(reply_bytes))
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(_LENGTHS.pack(request_bytes, reply_bytes))
        self.histogram = Histogram()
        self.seconds = 0.0

    def run(self, seconds: float) -> None:
        """Make round trips one after the other for some seconds, at least one."""
        connection, request, reply = self._socket, self._request, self._reply
        first_ns = before_ns = perf_counter_ns()
        until_ns = first_ns + round(seconds * 1e9)
        while True:
            connection.sendall(request)
            if not _receive(connection, reply):
                raise PenstockError("the bare server failed: look at the disk")
            now_ns = perf_counter_ns()
            self.histogram.record(now_ns - before_ns)
            before_ns = now_ns
            if now_ns >= until_ns:
                break
        self.seconds += (now_ns - first_ns) / 1e9

    @property
    def per_second(self) -> float:
        """Round trips a second, one at a time."""
        return self.histogram.count / self.seconds

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


# The process.


def _serve(directory: Path) -> None:
    """Serve one connection after the other, until standard input ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        number = 0
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            connection, _ = listener.accept()
            number += 1
            with connection:
                _answer(connection, directory / f"bare-{number}")


def _answer(connection: socket.socket, path: Path) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    lengths = bytearray(_LENGTHS.size)
    if not _receive(connection, memoryview(lengths)):
        return
    request_bytes, reply_bytes = _LENGTHS.unpack(lengths)
    request, reply = memoryview(bytearray(request_bytes)), bytes(reply_bytes)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, bytes(_FIRST_BYTES))
        os.fsync(fd)
        while _receive(connection, request):
            written = os.write(fd, request)
            if written != request_bytes:
                raise OSError(f"the disk took {written} of {request_bytes} bytes")
            os.fdatasync(fd)
            connection.sendall(reply)
    finally:
        os.close(fd)


def _receive(connection: socket.socket, room: memoryview) -> bool:
    """Fill the buffer; False if the other end closed first."""
    got = 0
    while got < len(room):
        count = connection.recv_into(room[got:])
        if not count:
            return False
        got += count
    return True


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
