"""Where a port listens: at its address, and for one of several processes also where the others and clients reach it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.server.access.tls import listen_options
from penstock.server.services import Services

_BACKLOG = 1024

Client = TypeVar("Client", bound=asyncio.BaseProtocol)


@dataclass(slots=True)
class Doors:
    """The sockets of one port, open."""

    servers: list[asyncio.Server]
    address: tuple[str, int]
    """The one that everybody knows."""

    def close(self) -> None:
        """Accept no more connections."""
        for server in self.servers:
            server.close()


async def open_doors(
    services: Services, name: str, make: Callable[[], Client], make_for_peers: Callable[[], Client]
) -> Doors:
    """Listen for a port of this name, at every place where it is to be reached.

    Connections from other processes of this server come through a socket that nobody else can open.
    """
    loop, config, membership = services.loop, services.config, services.membership
    ports: list[int] = [getattr(config, f"{name}_port")]
    options: dict[str, Any] = {"backlog": _BACKLOG, **listen_options(services.tls)}
    if membership is not None:
        options["reuse_port"] = True  # all processes listen there
        ports += [membership.own_port] if name == "native" else []
    servers: list[asyncio.Server] = []
    try:
        for port in ports:
            servers.append(await loop.create_server(make, config.host, port, **options))  # noqa: PERF401 - closed if one fails
        if membership is not None:
            path = membership.socket_of(membership.number, name)  # one of a process that had this number is replaced
            servers.append(await loop.create_unix_server(make_for_peers, path, backlog=_BACKLOG))
    except BaseException:
        for server in servers:
            server.close()
        raise
    host, port = servers[0].sockets[0].getsockname()[:2]
    return Doors(servers, (str(host), int(port)))
