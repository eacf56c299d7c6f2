"""The other end of the bare round trip: `python -m penstock.bench.bare_child DIR`.

It takes requests of a fixed length, writes and syncs each, and replies with a fixed number of bytes: what no durable
server can do without.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from pathlib import Path

LENGTHS = struct.Struct(">II")
"""The first bytes of a connection: how long requests and replies are."""
_FIRST_BYTES = 4096


def serve(directory: Path) -> None:
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
    lengths = bytearray(LENGTHS.size)
    if not receive(connection, memoryview(lengths)):
        return
    request_bytes, reply_bytes = LENGTHS.unpack(lengths)
    request, reply = memoryview(bytearray(request_bytes)), bytes(reply_bytes)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, bytes(_FIRST_BYTES))
        os.fsync(fd)
        while receive(connection, request):
            written = os.write(fd, request)
            if written != request_bytes:
                raise OSError(f"the disk took {written} of {request_bytes} bytes")
            os.fdatasync(fd)
            connection.sendall(reply)
    finally:
        os.close(fd)


def receive(connection: socket.socket, room: memoryview) -> bool:
    """Fill the room; False if the other end closed first."""
    got = 0
    while got < len(room):
        count = connection.recv_into(room[got:])
        if not count:
            return False
        got += count
    return True


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
