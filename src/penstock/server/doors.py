"""Where a port listens: at its address, and for one of several processes also where the others and clients reach it.

Processes of one machine share the address, and each has a native port and sockets of its own. Members on a network let
one another in at the native port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.server.access.tls import listen_options
from penstock.server.peer_places import OneMachine
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
    """Listen for a port of this name, at every place where it is to be reached."""
    loop, config, membership = services.loop, services.config, services.membership
    machine = None if membership is None or not isinstance(membership.neighbours, OneMachine) else membership.neighbours
    services.made_for_peers[name] = make_for_peers
    ports: list[int] = [getattr(config, f"{name}_port")]
    options: dict[str, Any] = {"backlog": _BACKLOG, **listen_options(services.tls)}
    if machine is not None:
        options["reuse_port"] = True  # all processes listen there
        ports += [machine.own_port] if name == "native" else []
    servers: list[asyncio.Server] = []
    try:
        for port in ports:
            servers.append(await loop.create_server(make, config.host, port, **options))  # noqa: PERF401 - closed if one fails
        if machine is not None:
            path = machine.socket_of(machine.number, name)  # one of a process that had this number is replaced
            servers.append(await loop.create_unix_server(make_for_peers, path, backlog=_BACKLOG))
    except BaseException:
        for server in servers:
            server.close()
        raise
    host, port = servers[0].sockets[0].getsockname()[:2]
    return Doors(servers, (str(host), int(port)))
