"""The bodies of everything else: the handshake, reading, and calls by name."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from penstock.model.cluster_map import ClusterMap
from penstock.model.events import Event
from penstock.protocol.consuming import Rows
from penstock.protocol.decoding import decoder, request_decoder

HELLO_BYTES_MAX = 16 << 10
"""The largest body of HELLO, the first and any later one."""


class Hello(msgspec.Struct):
    """The first frame of a connection: the client, and the versions that it speaks."""

    versions: Annotated[list[int], msgspec.Meta(max_length=64)]
    client: str = ""
    token: str | None = None
    name: str | None = None
    """Its name as a publisher in traces."""
    follows: bool = False
    """Whether it wants to know which process has which shard: the map in WELCOME, and MOVED when that changes."""


class Welcome(msgspec.Struct):
    """The reply to it: what the server is, and what it allows."""

    version: int
    server: str
    broker: str
    """The identity of the broker; a restart does not change it."""
    epoch: int
    """Grows with every start of the broker."""
    sync: str
    """What an acknowledgement means: with `always`, that the message is on disk."""
    idle_timeout_s: float
    """The server closes a connection that is silent for this long: PING earlier."""
    limits: dict[str, int]
    """The largest value, key, headers, batch and frame, in bytes."""
    map: ClusterMap | None = None
    """Where the shards are, for clients that follow them; nil where one process has all of them."""


class Moved(msgspec.Struct):
    """Shards went from one process to another."""

    map: ClusterMap


class Goodbye(msgspec.Struct):
    """The server is shutting down, or closes this connection."""

    reason: str


class Read(msgspec.Struct):
    """A page of one partition; request the next one with the offset in the reply."""

    topic: str
    partition: int
    offset: int = 0
    end: int | None = None
    from_time_us: int | None = None
    to_time_us: int | None = None
    limit: int | None = None
    include_deleted: bool = False
    replay: bool = False
    """Leave out what was cancelled, purged or redriven."""
    form: str = "rows"
    """`rows`, `arrow` (an Arrow IPC stream) or `events`."""


class Page(msgspec.Struct, array_like=True, gc=False):
    """The reply: what was found, and where to go on; `next_offset` is nil at the end."""

    rows: list[Rows] = []
    arrow: bytes | None = None
    events: list[Event] = []
    next_offset: int | None = None
    count: int = 0
    """How many messages or events."""
    end: int = 0
    """Where the log ended when this was read: pass it as `end` for the next pages, to read the log as it was."""


class Call(msgspec.Struct, array_like=True):
    """An operation by name, with named arguments."""

    operation: str
    arguments: dict[str, Any] = {}


encode = msgspec.msgpack.Encoder().encode
decode_hello = request_decoder(Hello)
decode_welcome = decoder(Welcome)
decode_goodbye = decoder(Goodbye)
decode_moved = decoder(Moved)
decode_read = request_decoder(Read)
decode_page = decoder(Page)
