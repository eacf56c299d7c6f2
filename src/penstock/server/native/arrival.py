"""Other members arrive at the native port: they prove that they are such, and are let in to the port they want."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

from penstock.protocol.frames import HEADER_BYTES
from penstock.protocol.peering import LINE_BYTES_MAX, PREFIX, Greeting, PeerRefused, refusal
from penstock.server.deadlines import HANDSHAKE_S
from penstock.server.peer_places import ManyMachines, channel_of, hand_over, notice_its_end

if TYPE_CHECKING:
    from penstock.server.native.connection import Connection
    from penstock.server.services import Services

_log = logging.getLogger("penstock.server")


def is_arrival(services: Services, header: bytes) -> bool:
    """Whether what is no frame is how a member begins, where members meet on a network."""
    membership = services.membership
    return (
        header == PREFIX[:HEADER_BYTES] and membership is not None and isinstance(membership.neighbours, ManyMachines)
    )


class Arrival:
    """A connection from its first line until its other end is known to be a member."""

    def __init__(self, services: Services, connection: Connection, transport: asyncio.Transport) -> None:
        membership = services.membership
        assert membership is not None
        assert isinstance(membership.neighbours, ManyMachines)
        self._services, self._connection, self._transport = services, connection, transport
        self._greeting = Greeting(
            membership.neighbours.secret,
            membership.number,
            services.made_for_peers.keys(),
            secrets.token_hex(16),
            channel_of(transport),
        )
        self._heard = b""
        self._too_late = services.loop.call_later(
            HANDSHAKE_S, self._refuse, PeerRefused(f"the greeting was not over within {HANDSHAKE_S:g} s")
        )

    def hear(self, data: bytes) -> None:
        """Take what came, and answer it."""
        self._heard += data
        try:
            while self._greeting.port is None:
                line, end, self._heard = self._heard.partition(b"\n")
                if len(line) >= LINE_BYTES_MAX:
                    raise PeerRefused(f"a line of a greeting has less than {LINE_BYTES_MAX} bytes")  # noqa: TRY301
                if not end:
                    self._heard = line
                    return
                self._transport.write(self._greeting.answer(line))
        except PeerRefused as error:
            self._refuse(error)
        else:
            self._let_in(self._greeting.port)

    def end(self) -> None:
        """The connection is over, or is another one now."""
        self._too_late.cancel()

    def _let_in(self, port: str) -> None:
        self.end()
        notice_its_end(self._transport)
        if port == "native":
            self._connection.go_on_as_peer(self._heard)
        else:
            self._connection.leave()
            hand_over(self._transport, self._services.made_for_peers[port](), self._heard)

    def _refuse(self, error: PeerRefused) -> None:
        self.end()
        self._services.metrics.peers_refused += 1
        _log.warning("a member was refused: %s", error, extra={"peer": self._connection.peer})
        self._transport.write(refusal(error))
        self._connection.take_no_more()
        self._connection.close()
