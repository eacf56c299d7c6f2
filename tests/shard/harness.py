"""What tests of settling in a process share: a broker that has such a process, and looks at what it left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.embedded.broker import Broker
from penstock.model.config import BrokerConfig
from penstock.shard.checking import Problem, check_directory
from penstock.shard.upkeep.segment_process import SegmentProcess
from penstock.storage import FileStorage
from penstock.testing import VirtualClock
from tests.server.harness import pause

PATIENCE_S = 30.0


class Settling:
    """A broker on a directory whose segments are made by a process."""

    def __init__(self, path: Path, clock: VirtualClock | None = None, **options: Any) -> None:
        config = BrokerConfig.parse({"min_free_bytes": 0, **options})
        self.process = SegmentProcess(config.readable_by)
        self.broker = Broker(FileStorage(path, config.readable_by), config, clock, self.process)

    @property
    def child(self) -> subprocess.Popen[bytes]:
        """The process, which is there."""
        assert self.process._process is not None
        return self.process._process

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, the process does nothing; however that ends, it goes on."""
        child = self.child
        pause(child.pid)
        try:
            yield
        finally:
            child.send_signal(signal.SIGCONT)

    def publish(self, *values: str, topic: str = "t") -> None:
        self.broker.publish_many(topic, list(values))

    def values(self, topic: str = "t") -> list[str]:
        return [message.value.decode() for message in self.broker.read(topic)]

    def unsettled(self, topic: str = "t") -> int:
        """How many blocks of messages are in the journal only."""
        return len(self.broker.shards.of(topic).topic(topic).partitions[0].messages)

    def unread(self) -> bool:
        """Whether an order waits for the process."""
        (count,) = struct.unpack("i", fcntl.ioctl(self.child.stdin, termios.FIONREAD, bytes(4)))  # type: ignore[arg-type]
        return bool(count)


@contextlib.contextmanager
def settling(path: Path, clock: VirtualClock | None = None, **options: Any) -> Iterator[Settling]:
    opened = Settling(path, clock, **options)
    with opened.broker:
        yield opened


def problems(path: Path) -> list[Problem]:
    return check_directory(FileStorage(path)).problems


def segments(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("topics/**/*.parquet"))}


def temporary_files(path: Path) -> list[str]:
    return [file.name for file in path.rglob("*.tmp")]


@contextlib.contextmanager
def ending(pid: int) -> Iterator[None]:
    """A process, maybe of somebody else, ends by what is done inside."""
    descriptor = os.pidfd_open(pid)
    try:
        yield
        assert select.select([descriptor], [], [], PATIENCE_S)[0], "the process does not end"
    finally:
        os.close(descriptor)
