"""Where the other members of a cluster are reached: at a socket of this machine, or over a network.

A *port* of a member (`native`, `http`, `line`) is reached by the same few calls wherever it is. On one machine each
port has a socket that nobody else can open. Over a network every member lets the others in at its native port: they
prove that they know the secret of the cluster (`protocol/peering.py`), and the connection becomes one of the port that
they want.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from penstock.client.addresses import parse_address
from penstock.protocol.peering import LINE_BYTES_MAX, Introduction, PeerRefused

_CONNECT_S = 2.0  # a member that is there answers at once
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3))  # seconds; count
_UNSENT_MS = 5000  # a member that takes nothing for so long is gone

_TELL_AGAIN_S = 10.0
_SECRET_BYTES_MIN = 16

_log = logging.getLogger("penstock.server")
Client = TypeVar("Client", bound=asyncio.BaseProtocol)


class Place(Protocol):
    """Where one member is reached. What goes wrong is an OSError, and nothing was said to the member then."""

    async def connect(self, port: str, make: Callable[[], Client]) -> Client:
        """A connection to a port, as one of a loop's own methods makes it."""
        ...


class Neighbours(Protocol):
    """The members beside this one, by their numbers."""

    def place_of(self, member: int) -> Place:
        """Where a member is reached as far as that is known now."""
        ...

    def cut_off(self, member: int) -> None:
        """A member is gone, or silent for so long that it is taken for gone: wait for nothing that it might say."""
        ...


async def open_streams(place: Place, port: str, limit: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a port of a member, to be read and written."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit, loop)
    protocol = await place.connect(port, lambda: _Streams(reader, loop))
    assert protocol.transport is not None
    return reader, asyncio.StreamWriter(protocol.transport, protocol, reader, loop)


class _Streams(asyncio.StreamReaderProtocol):
    """Knows its transport, which a writer asks for."""

    def __init__(self, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(reader, loop=loop)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        super().connection_made(transport)


# On one machine.


class OneMachine:
    """The members are processes of one machine, whose sockets are in a directory that nobody else can open."""

    def __init__(self, number: int, own_port: int, sockets: Path) -> None:
        self.number, self.own_port = number, own_port
        """Of this process: its number, and the native port that no other has."""
        self._sockets = sockets

    def place_of(self, member: int) -> Place:
        return _SocketPlace(self, member)

    def cut_off(self, member: int) -> None:
        """Nothing: whoever hangs is killed, and its sockets end with it."""

    def socket_of(self, member: int, port: str) -> str:
        """The path of a socket."""
        return str(self._sockets / f"{member}.{port}")


class _SocketPlace:
    """A process of this machine."""

    def __init__(self, machine: OneMachine, member: int) -> None:
        self._machine, self._member = machine, member

    async def connect(self, port: str, make: Callable[[], Client]) -> Client:
        path = self._machine.socket_of(self._member, port)
        return (await asyncio.get_running_loop().create_unix_connection(make, path))[1]


# Over a network.


class ManyMachines:
    """The members are on a network; they have a secret in common, and each knows the native ports of the others."""

    def __init__(self, number: int, secret: bytes, addresses: Mapping[int, str] | None = None) -> None:
        assert len(secret) >= _SECRET_BYTES_MIN
        self.number, self.secret = number, secret
        self.addresses: dict[int, str] = dict(addresses or {})
        """Where members let one another in: `host:port` of their native ports, by number."""
        self.tls: ssl.SSLContext | None = None
        """What they encrypt with; None: they do not. The server sets it."""

        self._connections: dict[int, list[asyncio.Transport]] = {}
        self._told_s = -_TELL_AGAIN_S

    def place_of(self, member: int) -> Place:
        return _NetworkPlace(self, member)

    def cut_off(self, member: int) -> None:
        for transport in self._connections.pop(member, ()):
            transport.abort()

    def connected(self, member: int, transport: asyncio.Transport) -> None:
        """Note a connection that is to end when its member is gone."""
        known = self._connections.get(member, [])
        self._connections[member] = [*(each for each in known if not each.is_closing()), transport]

    def tell(self, member: int, address: str, error: Exception) -> None:
        """Log that a member is there and does not let this one in: that is to be set right by somebody."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s >= _TELL_AGAIN_S:
            self._told_s = now_s
            _log.error("member %d, at %s, cannot be spoken to: %s", member, address, error)


class _NetworkPlace:
    """A member somewhere else."""

    def __init__(self, machines: ManyMachines, member: int) -> None:
        self._machines, self._member = machines, member

    async def connect(self, port: str, make: Callable[[], Client]) -> Client:
        machines, loop = self._machines, asyncio.get_running_loop()
        address = machines.addresses.get(self._member)
        if address is None:
            raise ConnectionRefusedError(f"nobody knows where member {self._member} is")
        caller: _Caller | None = None
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, caller = await loop.create_connection(
                    lambda: _Caller(machines.secret, port, self._member), *parse_address(address), ssl=machines.tls
                )
                early = await caller.welcome
        except BaseException as error:
            if isinstance(error, PeerRefused | ssl.SSLError):
                machines.tell(self._member, address, error)
            if caller is not None:
                caller.transport.abort()
            raise
        protocol = make()
        notice_its_end(caller.transport)
        machines.connected(self._member, caller.transport)
        hand_over(caller.transport, protocol, early)
        return protocol


class _Caller(asyncio.Protocol):
    """Introduces this member to another one."""

    transport: asyncio.Transport

    def __init__(self, secret: bytes, port: str, member: int) -> None:
        self._secret, self._port, self._member = secret, port, member
        self._heard = b""
        self.welcome: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        """Done when the other lets this one in: what it has said already in the protocol of the port."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        nonce = secrets.token_hex(16)
        self._introduction = Introduction(self._secret, self._port, self._member, nonce, channel_of(transport))
        self.transport.write(self._introduction.first())

    def data_received(self, data: bytes) -> None:
        self._heard += data
        try:
            while not self.welcome.done():
                line, end, rest = self._heard.partition(b"\n")
                if len(line) >= LINE_BYTES_MAX:
                    raise PeerRefused("what was heard is no answer to a greeting")  # noqa: TRY301 - told below
                if not end:
                    return
                self._heard = rest
                self.transport.write(self._introduction.answer(line))
                if self._introduction.is_welcome:
                    self.transport.pause_reading()
                    self.welcome.set_result(rest)
        except PeerRefused as error:
            self.welcome.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.welcome.done():
            self.welcome.set_exception(ConnectionResetError("the connection ended in the greeting"))


# What both sides do with a connection.


def channel_of(transport: asyncio.BaseTransport) -> bytes:
    """What identifies an encrypted connection, as both of its ends know it; empty if it is not encrypted."""
    encrypted = transport.get_extra_info("ssl_object")
    if encrypted is None:
        return b""
    channel: bytes | None = encrypted.get_channel_binding("tls-unique")
    if not channel:
        raise PeerRefused("this encrypted connection has nothing that identifies it")
    return channel


def hand_over(transport: asyncio.Transport, protocol: asyncio.BaseProtocol, early: bytes) -> None:
    """Have another protocol go on with a connection, beginning with what was read from it already."""
    transport.pause_reading()  # how it is read depends on the protocol
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    while early and not transport.is_closing():
        if isinstance(protocol, asyncio.BufferedProtocol):
            room = memoryview(protocol.get_buffer(-1))
            count = min(len(room), len(early))
            room[:count] = early[:count]
            protocol.buffer_updated(count)
        else:
            count = len(early)
            cast("asyncio.Protocol", protocol).data_received(early)
        early = early[count:]
    transport.resume_reading()


def notice_its_end(transport: asyncio.BaseTransport) -> None:
    """Let a connection end when the machine at its other end is gone without a word."""
    end: Any = transport.get_extra_info("socket")
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_KEEPALIVE, (socket.TCP_USER_TIMEOUT, _UNSENT_MS)):
        end.setsockopt(socket.IPPROTO_TCP, name, value)
