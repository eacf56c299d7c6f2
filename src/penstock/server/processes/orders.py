"""What the supervisor and its processes say to one another: one message a packet, over a pair of sockets."""

from __future__ import annotations

import socket

import msgspec

from penstock.model.cluster_map import ClusterMap
from penstock.model.processes import ClusterInfo

_PACKET_BYTES = 1 << 18  # a map of 1,024 shards takes a tenth of it


class Take(msgspec.Struct, tag=True):
    """To a process: open a shard."""

    shard: int


class Release(msgspec.Struct, tag=True):
    """To a process: let a shard go when nothing of it is leased, or after so long."""

    shard: int
    drain_s: float


class NewMap(msgspec.Struct, tag=True):
    """To a process: where the shards are now."""

    map: ClusterMap
    broker_id: str


class Reload(msgspec.Struct, tag=True):
    """To a process: read configuration, tokens and certificates again."""


class Stop(msgspec.Struct, tag=True):
    """To a process: answer what is under way, and end."""


class Answer(msgspec.Struct, tag=True):
    """To a process: what became of something that it was asked for."""

    number: int
    info: ClusterInfo | None = None
    problem: str | None = None


class Started(msgspec.Struct, tag=True):
    """From a process: it can take shards."""


class Beat(msgspec.Struct, tag=True):
    """From a process, again and again: it is well."""

    resident_bytes: int
    cpu_s: float
    connections: int


class Opened(msgspec.Struct, tag=True):
    """From a process: it has a shard."""

    shard: int
    epoch: int
    broker_id: str


class NotOpened(msgspec.Struct, tag=True):
    """From a process: a shard cannot be opened."""

    shard: int
    problem: str


class Released(msgspec.Struct, tag=True):
    """From a process: it has let a shard go."""

    shard: int


class Ready(msgspec.Struct, tag=True):
    """From a process: it listens."""

    addresses: dict[str, tuple[str, int]]


class Refused(msgspec.Struct, tag=True):
    """From a process: it cannot start like this."""

    problem: str
    hint: str


class Asked(msgspec.Struct, tag=True):
    """From a process: somebody wants to see or to change where shards are."""

    number: int
    question: str
    """`show`, `move`, `drain` or `balance`."""
    shard: int = -1
    process: int = -1


Order = Take | Release | NewMap | Reload | Stop | Answer
Report = Started | Beat | Opened | NotOpened | Released | Ready | Refused | Asked
_encode = msgspec.msgpack.Encoder().encode
decode_order = msgspec.msgpack.Decoder(Order).decode
decode_report = msgspec.msgpack.Decoder(Report).decode


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends that keep messages apart."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _PACKET_BYTES)
    return ends


def send(end: socket.socket, message: Order | Report) -> None:
    """Send a message; raises OSError if nobody is there any more, or does not listen."""
    end.send(_encode(message))


def receive(end: socket.socket) -> bytes:
    """The next message; empty at the end."""
    return end.recv(_PACKET_BYTES)
