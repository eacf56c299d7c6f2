"""The processes of a supervisor, and the directory that they share."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from penstock.cluster.directory import divide, is_new
from penstock.model.processes import ProcessInfo, ProcessState
from penstock.server.access.starting import StartRefused
from penstock.server.processes import orders
from penstock.server.settings.options import ServerConfig
from penstock.storage import FileStorage

OFTEN = 3
"""So many ends of one process in a minute are too many."""


@dataclass(slots=True)
class Child:
    """One process, and what is known of it."""

    number: int
    own_port: int
    end: socket.socket | None = None
    pid: int = 0
    state: ProcessState = "gone"
    heard_s: float = 0.0
    since_s: float = 0.0
    start_again_s: float = 0.0
    beat: orders.Beat = field(default_factory=lambda: orders.Beat(0, 0.0, 0))
    ends_s: deque[float] = field(default_factory=lambda: deque(maxlen=OFTEN))
    restarts: int = -1

    @property
    def fields(self) -> dict[str, int]:
        """What lines of the log say of it."""
        return {"member": self.number, "pid": self.pid}

    def info(self, shards: list[int], draining: Collection[int]) -> ProcessInfo:
        """As it is shown, with the shards that it has."""
        return ProcessInfo(
            number=self.number,
            pid=self.pid,
            state="draining" if self.state == "up" and self.number in draining else self.state,
            address=f":{self.own_port}",
            shards=shards,
            since=datetime.fromtimestamp(self.since_s, UTC),
            restarts=self.restarts,
            resident_bytes=self.beat.resident_bytes,
            cpu_seconds=self.beat.cpu_s,
            connections=self.beat.connections,
        )


def divided(root: FileStorage, config: ServerConfig) -> int:
    """Lock the directory for all processes, divided into at least as many shards as there are processes."""
    wanted = config.shards
    if wanted is None and is_new(root):
        wanted = 2 * config.processes  # so that they can be shared out again when a process is drained
    count = len(divide(root, wanted))
    if count < config.processes:
        root.close()
        raise StartRefused(
            f"{config.processes} processes cannot share {count} shards",
            f"give at most {count} processes, or divide the data with `penstock reshard`",
        )
    return count
