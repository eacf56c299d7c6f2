"""Brokers on one bucket, each a real process, that can be killed, stopped, and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import penstock
from penstock.client import Client
from penstock.model.cluster_map import ClusterMap, ShardPlace
from penstock.model.errors import PenstockError

_PATIENCE_S = 60.0
_BIN = Path(sys.executable).parent / "penstock"
T = TypeVar("T")


def until(found: Callable[[], T], what: str, patience_s: float = _PATIENCE_S) -> T:
    """What is found, as soon as it is something; errors of the product count as nothing."""
    until_s = time.monotonic() + patience_s
    while True:
        last: object = None
        try:
            last = result = found()
            if result:
                return result
        except (PenstockError, OSError) as error:
            last = error
        assert time.monotonic() < until_s, f"{what}: {last}"
        time.sleep(0.02)


class BrokerProcess:
    """One broker; `address` is where its native port is."""

    def __init__(self, place: str, log: Path, environment: Mapping[str, str], options: list[str]) -> None:
        self._log = log
        command = [str(_BIN), "serve", place, "--native-port", "0", "--http-port", "0", "--line-port", "off"]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, "--log-format", "json", *options], stderr=output, env={**os.environ, **environment}
            )

    def told(self, message: str) -> list[dict[str, Any]]:
        """Lines of its log that begin so."""
        found = [json.loads(line) for line in self._log.read_bytes().splitlines() if line.startswith(b"{")]
        return [line for line in found if line["message"].startswith(message)]

    def wait_until_ready(self) -> None:
        """Return when it says that it listens, and all shards have an owner."""
        until(self._is_ready, "it is not ready")

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        return bool(self.told("listening"))

    @property
    def _ready(self) -> dict[str, Any]:
        self.wait_until_ready()
        return self.told("listening")[-1]

    @property
    def address(self) -> str:
        return str(self._ready["native"])

    @property
    def http(self) -> str:
        """The address of its HTTP port."""
        return str(self._ready["http"])

    @property
    def number(self) -> int:
        return int(self._ready["broker"])

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ask it to end, and wait for that."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(_PATIENCE_S) == 0, self._log.read_text()

    def pause(self) -> None:
        """Have it do nothing until it is resumed."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Have it go on."""
        self.process.send_signal(signal.SIGCONT)


class Brokers:
    """The brokers of one bucket."""

    def __init__(self, place: str, logs: Path, environment: Mapping[str, str] | None = None, *options: str) -> None:
        self.place, self._logs, self._environment = place, logs, environment or {}
        self._options = ["--balance-after", "1", *options]
        self.all: list[BrokerProcess] = []
        self._born = 0

    def start(self, environment: Mapping[str, str] | None = None, *options: str) -> BrokerProcess:
        """Start another one; `environment` is its own."""
        self._born += 1
        started = BrokerProcess(
            self.place,
            self._logs / f"broker-{self._born}.log",
            {**self._environment, **(environment or {})},
            [*self._options, *options],
        )
        self.all.append(started)
        return started

    def start_all(self, count: int) -> list[BrokerProcess]:
        """Start several, and wait until they share the shards."""
        started = [self.start() for _ in range(count)]
        for broker in started:
            broker.wait_until_ready()
        self.wait_until_shared()
        return started

    @property
    def living(self) -> list[BrokerProcess]:
        return [broker for broker in self.all if broker.process.poll() is None]

    def map(self, broker: BrokerProcess | None = None) -> ClusterMap:
        """Where the shards are, as a broker knows."""
        with connected((broker or self.living[0]).address) as client:
            info = client.cluster()
        places = [ShardPlace(shard.epoch, shard.process) for shard in info.shards]
        return ClusterMap(places, {process.number: process.address for process in info.processes})

    def wait_until_shared(self) -> None:
        """Return when each has its share, as far as the first knows."""

        def is_shared() -> bool:
            owners = [place.process for place in self.map().shards]
            counts = [owners.count(broker.number) for broker in self.living]
            return sum(counts) == len(owners) and max(counts) - min(counts) <= 1

        until(is_shared, "the shards are not shared")

    def owner_of(self, topic: str) -> BrokerProcess:
        """The broker that has a topic."""
        found = self.map()
        number = found.shards[found.shard_of(topic)].process
        return next(broker for broker in self.living if broker.number == number)

    def topic_of(self, broker: BrokerProcess, name: str = "topic") -> str:
        """A topic that lives at a broker."""
        found = self.map()
        names = (f"{name}-{n}" for n in range(1000))
        return next(topic for topic in names if found.shards[found.shard_of(topic)].process == broker.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for broker in self.living:
            broker.resume()
            broker.kill()


def connected(address: str) -> Client:
    """A client of a broker."""
    return penstock.connect(address)
