"""What a system is: a way to start a peer with certain settings, and the peer while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.peers.plans import Driver
from benchmarks.peers.raw import Raw, Wire

RAW = "raw"
GROUP = "workers"
OURS = "penstock"
"""The group of systems whose failures end a run; those of peers are noted."""


class Peer(ABC):
    """A peer that runs."""

    version: str
    pid: int
    """The process that serves; its children belong to it."""
    drivers: dict[str, Driver]
    """The ways to drive it: `raw` (where its bytes are not known, the best client), and its clients by their names."""

    def make(self, queues: Sequence[str]) -> None:  # noqa: B027 most peers make a queue when it is first used
        """Make queues, outside of the measured time."""

    @abstractmethod
    def fill(self, queue: str, batch: int, count: int, seconds: float) -> int:
        """Publish messages in batches, so many or as many as can be in this time; how many that were."""

    @abstractmethod
    def published(self, queues: Sequence[str]) -> int:
        """How many messages the queues have been given, as the peer tells it."""

    @abstractmethod
    def unacked(self, queue: str) -> int:
        """How many of them are not acked, as the peer tells it; nobody consumes the queue any more."""


class RawPeer(Peer):
    """A peer whose bytes are known."""

    def __init__(self, pid: int, version: str, wire: Wire, **clients: Driver) -> None:
        self.pid = pid
        self.version = version
        self._raw = Raw(wire)
        self.drivers = {RAW: self._raw, **clients}

    def fill(self, queue: str, batch: int, count: int, seconds: float) -> int:
        return self._raw.fill(queue, batch, count, seconds)


class System(ABC):
    """A peer with its settings."""

    name: str
    title: str
    settings: str
    """What was set, in the peer's own words."""
    durable: bool
    """Whether a message is on disk before it is acknowledged."""
    group: str
    """What it is chosen by on the command line."""

    def takes(self, row: str) -> bool:
        """Whether it is measured in a row that its drivers can do."""
        return True

    @abstractmethod
    def missing(self) -> str | None:
        """Why it cannot be started here, if so."""

    @abstractmethod
    def start(self, directory: Path) -> AbstractContextManager[Peer]:
        """Start it with its data in an empty directory, and stop it at the end of the block."""
