"""The processes of a server and their shards, as they are shown."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

ProcessState = Literal["starting", "up", "draining", "gone"]
ShardState = Literal["open", "opening", "moving", "closed"]


class ProcessInfo(msgspec.Struct, kw_only=True):
    """One process."""

    number: int
    pid: int
    state: ProcessState
    address: str
    """Its own native port."""
    shards: list[int]
    since: datetime
    """When it was started."""
    restarts: int
    """How often one of this number was replaced."""
    resident_bytes: int = 0
    cpu_seconds: float = 0.0
    connections: int = 0


class ShardInfo(msgspec.Struct, kw_only=True):
    """One shard."""

    number: int
    process: int
    """Which has it; -1 if none has."""
    epoch: int
    state: ShardState
    problem: str | None = None
    """Why it could not be opened."""


class Move(msgspec.Struct, kw_only=True):
    """A shard that went from one process to another."""

    shard: int
    origin: int
    target: int
    at: datetime
    """When it was open again."""
    seconds: float
    """For how long it was in no process."""


class ClusterInfo(msgspec.Struct, kw_only=True):
    """All processes and shards of a server, and the last moves."""

    processes: list[ProcessInfo]
    shards: list[ShardInfo]
    moves: list[Move]
    """The newest last."""
