"""A real server under attack, and what it must not do meanwhile: stall, grow, or fail anybody else.

A test sends its bombs inside `with target.unharmed(sent_bytes=len(bomb)):`. At the end of the block

- no answer to a PING on a connection of its own was late by `STALL_S` because the server was at work;
- the server's memory never grew, at its peak, by more than `MEMORY_FACTOR` times what was sent, and `MEMORY_BYTES`;
- a client that publishes and consumes all the time saw no error, and goes on.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from penstock.model import bounds
from penstock.model.bounds import MEMORY_FACTOR
from penstock.protocol.frames import Command
from penstock.server.access.tokens import TokenFile
from tests.server.harness import PATIENCE_S, Child, Raw, free_port, publishing_lightly

STALL_S = 0.25
STANDSTILL_S = 5.0
"""A wait so long is the server's fault even if it did no work: it waits for something on its loop."""
MEMORY_BYTES = bounds.MEMORY_BYTES + (16 << 20)
"""What the rule allows beside, and 16 MiB for threads that begin, what the allocator keeps, the well-behaved client."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Target(Child):
    """`penstock serve` with all of its ports; with `tokens=True` everybody needs one, and `admin` is one."""

    def __init__(self, path: Path, *, tokens: bool = False, **options: object) -> None:
        self.http_port, self.line_port = free_port(), free_port()
        ports = ("--http-port", str(self.http_port), "--line-port", str(self.line_port))
        super().__init__(path, *ports, *(("--auth", "tokens") if tokens else ()), **options)
        self._tokens = TokenFile(path) if tokens else None
        self.admin = self.token("admin", "admin", "publish", "consume", "read") if tokens else None

    def token(self, name: str, *scopes: str, topics: tuple[str, ...] = ("*",)) -> str:
        """The secret of a new token."""
        assert self._tokens is not None
        return self._tokens.create(name, list(scopes), list(topics), None).secret

    @contextlib.contextmanager
    def unharmed(self, sent_bytes: int = 0) -> Iterator[None]:
        """Whatever is done inside, the server and its other clients do not suffer from it."""
        with Raw(self.port, token=self.admin) as raw, publishing_lightly(self.address, self.admin):
            before = self.memory_mib()
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # its peak is measured from here on
            with Watch(self.pid, raw) as watch:
                yield
            assert self.is_running, self.log()
            assert watch.longest_stall_s < STALL_S, f"the server stood still for {watch.longest_stall_s:.2f} s"
            grown = (self._peak_mib() - before) * (1 << 20)
            allowed = MEMORY_FACTOR * sent_bytes + MEMORY_BYTES
            assert grown <= allowed, f"{sent_bytes:,} bytes took {grown:,.0f} of memory, more than {allowed:,}"
        assert "Traceback" not in self.log(), self.log()

    def connect(self, port: int) -> socket.socket:
        """A connection that says nothing by itself."""
        connection = socket.create_connection(("127.0.0.1", port))
        connection.settimeout(PATIENCE_S)
        return connection

    def ask_http(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """The status and the body of a reply."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read()

    def _peak_mib(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no peak of memory is told here")


def heard_until_the_end(connection: socket.socket) -> bytes:
    """All that the server still says on a connection, which it closes."""
    heard = bytearray()
    with contextlib.suppress(ConnectionError):
        while some := connection.recv(1 << 16):
            heard += some
    return bytes(heard)


def processor_s(pid: int) -> float:
    """The processor time that all threads of a process have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


class Watch:
    """Asks a server again and again whether it is there; the longest that it was not, for reasons of its own.

    A machine that is busy with something else makes answers late as well: a late one counts only if the server has
    used the processor for as long meanwhile, or if it came very late.
    """

    def __init__(self, pid: int, raw: Raw) -> None:
        self._pid = pid
        self._raw = raw
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._failures: list[BaseException] = []
        self.longest_stall_s = 0.0

    def _ask(self) -> None:
        try:
            is_over = False
            while not is_over:  # it must answer when all is over, too
                is_over = self._over.is_set()
                began_s, worked_s = time.monotonic(), processor_s(self._pid)
                self._raw.ask(Command.PING, b"")
                waited_s = time.monotonic() - began_s
                stalled_s = waited_s if waited_s > STANDSTILL_S else min(waited_s, processor_s(self._pid) - worked_s)
                self.longest_stall_s = max(self.longest_stall_s, stalled_s)
                self._over.wait(0.005)
        except BaseException as error:  # noqa: BLE001 - told below
            self._failures.append(error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failures:
            raise AssertionError("the server does not answer any more") from self._failures[0]
