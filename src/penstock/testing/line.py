"""A line between clients and a server that can be cut, delay, hold things back and lose them, as networks do.

Bytes pass unchanged, so that what is signed stays so. `delay_s` and `loses` look at what clients send after the server
said something: that is one request, where a connection has one under way at a time, as those to object stores do.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Self

_LOOPBACK = "127.0.0.1"
_CHUNK = 1 << 16


def _nothing(_: bytes) -> bool:
    return False


class _Connection:
    """A client's, and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.is_answered = True
        """Whether what the client says next is another request."""
        self.is_lost = False
        """Whether the server's next words are to be lost, and the connection with them."""

    def hang_up(self) -> None:
        _hang_up(self.client, self.server)


class Line:
    """A proxy on this machine, in threads, which `with` starts; clients use its address instead of the server's."""

    def __init__(self, port: int) -> None:
        """`port`: of the server, on loopback."""
        self._target = (_LOOPBACK, port)
        self._listener = socket.create_server((_LOOPBACK, 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"{_LOOPBACK}:{self.port}"
        self._open: list[_Connection] = []
        self._asking, self._answering = threading.Event(), threading.Event()
        self._asking.set()
        self._answering.set()
        self.held_back = threading.Event()
        """Set when the server said something that was held back."""
        self.refusing = False
        """Whether new connections are closed at once."""
        self.delay_s = 0.0
        """How long every request takes longer."""
        self.loses: Callable[[bytes], bool] = _nothing
        """Whether a request that begins so arrives, but its answer never does."""
        self.connections = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    if self.refusing:
                        raise ConnectionRefusedError
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                self.connections += 1
                connection = _Connection(client, server)
                self._open.append(connection)
                self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
                self._threads[-1].start()

    def _serve(self, connection: _Connection) -> None:
        back = threading.Thread(target=self._answer, args=(connection,), daemon=True)
        back.start()
        with connection.client, connection.server:
            self._ask(connection)
            back.join()
        with contextlib.suppress(ValueError):
            self._open.remove(connection)

    def _ask(self, connection: _Connection) -> None:
        with contextlib.suppress(OSError):
            while data := connection.client.recv(_CHUNK):
                if connection.is_answered:
                    connection.is_answered = False
                    time.sleep(self.delay_s)
                    connection.is_lost = self.loses(data)
                self._asking.wait()
                connection.server.sendall(data)
        connection.hang_up()

    def _answer(self, connection: _Connection) -> None:
        with contextlib.suppress(OSError):
            while (data := connection.server.recv(_CHUNK)) and not connection.is_lost:
                connection.is_answered = True
                if not self._answering.is_set():
                    self.held_back.set()
                    self._answering.wait()
                connection.client.sendall(data)
        connection.hang_up()

    def hold_back(self) -> None:
        """From now on nothing of what the server says gets through."""
        self.held_back.clear()
        self._answering.clear()

    def fall_silent(self) -> None:
        """From now on nothing gets through, either way, and nobody is told: as where a network has lost its way."""
        self._asking.clear()
        self.hold_back()

    def let_go(self) -> None:
        """What was held back gets through, as late as it is."""
        self._asking.set()
        self._answering.set()

    def cut(self) -> None:
        """Break all connections; what was held back is lost with them."""
        cut, self._open = self._open, []
        for connection in cut:
            connection.hang_up()
        self.let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _hang_up(self._listener)
        self._listener.close()
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()


def _hang_up(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
