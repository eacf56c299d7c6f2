"""Port numbers that all processes listen on: kept by the supervisor, so that they stay whoever comes and goes."""

from __future__ import annotations

import errno
import socket

from penstock.server.server import PortTaken


def reserve(host: str, port: int, option: str) -> list[socket.socket]:
    """Keep a port of a host (0: any free one), in each of its address families; listening is for the processes."""
    found: list[socket.socket] = []
    try:
        for family, *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
            place = (address[0], number_of(found) if found else port, *address[2:])
            if place[1]:
                _check_free(family, place)
            kept = socket.socket(family, socket.SOCK_STREAM)
            found.append(kept)
            if family == socket.AF_INET6:
                kept.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            kept.bind(place)
    except OSError as error:
        for kept in found:
            kept.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise PortTaken(f"port {port} of {host} is taken", f"give another with --{option}") from error
    return found


def number_of(kept: list[socket.socket]) -> int:
    """The number of a port that is kept."""
    return int(kept[0].getsockname()[1])


def _check_free(family: int, place: tuple[object, ...]) -> None:
    """Raise OSError if anybody else has it: those who share it among themselves would share it with us."""
    with socket.socket(family, socket.SOCK_STREAM) as alone:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            alone.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        alone.bind(place)
