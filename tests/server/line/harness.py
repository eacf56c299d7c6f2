"""The text port for tests: a server with it, and a client that says lines."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Self

from penstock.server.line.listener import LineListener
from tests.server.harness import PATIENCE_S, Running

EMPTY = "No messages in queue"


class LineServer:
    """A server in a thread of its own that listens for lines."""

    def __init__(self, path: Path | str, **options: Any) -> None:
        self._running = Running(path, **{"line_port": 0, **options})
        self.grace_s = 10.0

    @property
    def running(self) -> Running:
        return self._running

    @property
    def broker(self) -> Any:
        return self._running.broker

    @property
    def listener(self) -> LineListener:
        listener = self._running.server._listeners["line"]
        assert isinstance(listener, LineListener)
        return listener

    @property
    def port(self) -> int:
        return self._running.server.addresses["line"][1]

    @property
    def connections(self) -> int:
        return len(self.listener.connections)

    def talk(self, **options: Any) -> Talk:
        return Talk(self.port, **options)

    def stop(self) -> None:
        """Stop this port, and not yet the server."""
        self._running.do(self.listener.stop(self.grace_s))

    def __enter__(self) -> Self:
        self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.__exit__()


class Talk:
    """A client that says what it is told to, and hears line by line."""

    def __init__(self, port: int, wrap: Any = None) -> None:
        self.socket: socket.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(PATIENCE_S)
        if wrap is not None:
            self.socket = wrap(self.socket)
        self._heard = self.socket.makefile("rb")

    def send(self, data: bytes | str) -> None:
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def hear(self) -> str:
        """The next line; raises EOFError when there is none."""
        line = self._heard.readline()
        if not line.endswith(b"\n"):
            raise EOFError(line)
        return line[:-1].decode()

    def say(self, line: str) -> str:
        """The reply to a line."""
        self.send(line + "\n")
        return self.hear()

    def rest(self) -> str:
        """Everything until the server closes the connection."""
        try:
            return self._heard.read().decode()
        except ConnectionError:
            return ""

    def end(self) -> str:
        """Say no more, and hear the rest."""
        self.socket.shutdown(socket.SHUT_WR)
        return self.rest()

    def close(self) -> None:
        self._heard.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def all_of(talk: Talk, topic: str = "t", partition: int = 0) -> list[str]:
    """The lines of CONSUME ALL before its last one, which must be right."""
    talk.send(f"CONSUME {topic} {partition} ALL\n")
    lines = []
    while not (line := talk.hear()).startswith("END"):
        lines.append(line)
    assert line == f"END {len(lines)}"
    return lines
