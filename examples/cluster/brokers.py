"""The brokers of `make cluster`: processes on one bucket, one of which is killed now and then, and started again."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import penstock
from examples.cluster.books import Books
from examples.cluster.load import SHARDS, TOPICS
from examples.orders.parts import HOST, Child
from penstock.testing.seaweed import BUCKET, free_port

ADDRESS = f"s3://{BUCKET}/cluster"
_BALANCE_AFTER = "5s"
_LOOK_S = 0.25
_PATIENCE_S = 60.0


class Broker:
    """One of them."""

    def __init__(self, number: int, logs: Path, environment: Mapping[str, str]) -> None:
        self.number = number
        self.native, self.http = (f"{HOST}:{free_port()}" for _ in range(2))
        ports = {"--native-port": self.native, "--http-port": self.http}
        options = [word for name, place in ports.items() for word in (name, place.rpartition(":")[2])]
        options += ["--line-port", "off", "--advertise", self.native]
        options += ["--shards", str(SHARDS), "--balance-after", _BALANCE_AFTER]
        command = [sys.executable, "-m", "penstock.cli.main", "serve", ADDRESS, *options]
        self.child = Child(f"broker {number}", command, logs / f"broker-{number}.log", environment)
        self.shards: list[int] = []
        """Those that it was last seen to have."""
        self.kills = 0
        self.killed_s: float | None = None
        """Since when it is away."""

    def wait(self) -> None:
        """Return when it takes connections."""
        host, _, port = self.native.rpartition(":")
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            self.child.check()
            try:
                socket.create_connection((host, int(port)), 1).close()
            except OSError:
                if time.monotonic() > until_s:
                    raise TimeoutError(f"{self.child.name} takes no connections: see {self.child.log}") from None
                time.sleep(0.05)
            else:
                return


class Brokers:
    """All of them; `with` has them running inside, and known who has what."""

    def __init__(self, count: int, logs: Path, store: Mapping[str, str], every_s: float, away_s: float) -> None:
        """One is killed every so many seconds, and is away for so long."""
        others = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "AWS_"))}
        self.all = [Broker(number, logs, {**others, **store}) for number in range(1, count + 1)]
        self._every_s, self._away_s = every_s, away_s
        self._next_s = 0.0
        self._ending = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)

    @property
    def servers(self) -> str:
        """Where clients connect."""
        return ",".join(broker.native for broker in self.all)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """They run inside, and end in order behind it."""
        with contextlib.ExitStack() as stack:
            for broker in self.all:
                stack.enter_context(broker.child)
            for broker in self.all:
                broker.wait()
            self._next_s = time.monotonic() + self._every_s
            self._looking.start()
            stack.callback(self._looking.join)
            stack.callback(self._ending.set)
            yield

    def disturb(self, books: Books) -> None:
        """Kill one if its time has come, start it again if it was away for long enough; others must be running."""
        now_s = time.monotonic()
        for broker in self.all:
            if broker.killed_s is None:
                broker.child.check()
            elif now_s >= broker.killed_s + self._away_s:
                self._start(broker)
        if now_s >= self._next_s and all(broker.killed_s is None for broker in self.all):
            self._next_s = now_s + self._every_s
            self._kill(max(self.all, key=lambda broker: (bool(broker.shards), -broker.kills)), books)

    def restore(self) -> None:
        """Start what is away."""
        for broker in self.all:
            if broker.killed_s is not None:
                self._start(broker)

    def _kill(self, broker: Broker, books: Books) -> None:
        lost, broker.shards = broker.shards, []
        broker.killed_s = time.monotonic()
        broker.kills += 1
        books.kill(topic for topic, shard in TOPICS.items() if shard in lost)
        broker.child.crash()

    def _start(self, broker: Broker) -> None:
        broker.child.__enter__()
        broker.killed_s = None

    def _look(self) -> None:
        """See again and again who has what."""
        while not self._ending.wait(_LOOK_S):
            with contextlib.suppress(penstock.PenstockError), penstock.connect(self.servers, timeout=5) as client:
                while not self._ending.wait(_LOOK_S):
                    found = client.cluster()
                    addresses = {process.number: process.address for process in found.processes}
                    owners = {shard.number: addresses.get(shard.process) for shard in found.shards}
                    for broker in self.all:
                        if broker.killed_s is None:
                            broker.shards = [shard for shard, owner in owners.items() if owner == broker.native]
