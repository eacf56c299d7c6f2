"""What tests of metrics share: a page taken apart, promtool, and a broker that is watched."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

import penstock
from penstock.server.metrics.metrics import Metrics
from penstock.server.pipelines import Pipelines
from penstock.server.settings.options import ServerConfig
from penstock.shard.operations.burying import bury
from penstock.shard.shard import Shard
from penstock.testing import MemoryStorage, VirtualClock
from tests.sharding import alone

ROOT = Path(__file__).parent.parent.parent
Labels = frozenset[tuple[str, str]]


class Family(NamedTuple):
    """One metric of a page."""

    kind: str
    help: str
    samples: dict[tuple[str, Labels], float]
    """By the name of the sample, which may have an ending, and its labels."""


class Page:
    """A page of metrics as Prometheus understands it."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.families: dict[str, Family] = {}
        for metric in text_string_to_metric_families(content.decode()):
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            samples = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in metric.samples}
            assert len(samples) == len(metric.samples), f"{name} has the same labels twice"
            self.families[name] = Family(metric.type, metric.documentation, samples)

    def value(self, sample: str, **labels: str) -> float:
        """The one sample with these labels."""
        found = self.find(sample, **labels)
        assert found is not None, f"there is no {sample} {labels}"
        return found

    def find(self, sample: str, **labels: str) -> float | None:
        """The one sample with these labels, if there is one."""
        wanted = (sample, frozenset(labels.items()))
        return next((family.samples[wanted] for family in self.families.values() if wanted in family.samples), None)

    def labels(self, name: str, label: str) -> set[str]:
        """The values of a label."""
        return {value for _, pairs in self.families[name].samples for key, value in pairs if key == label}


class TickingClock(VirtualClock):
    """A virtual clock on which everything takes a little time."""

    def __init__(self, tick_s: float = 0.001) -> None:
        super().__init__()
        self._tick_s = tick_s

    def monotonic_s(self) -> float:
        self.advance(self._tick_s)
        return super().monotonic_s()


class Watched:
    """A broker and its metrics."""

    def __init__(self, broker: penstock.Broker, clock: VirtualClock, metrics: Metrics) -> None:
        self.broker, self.clock, self.metrics = broker, clock, metrics

    def page(self) -> Page:
        self.broker.shard.journal.flush()  # deliveries are written when nobody waits for it
        return Page(self.metrics.render())

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and have what it changes written down."""
        self.clock.advance(seconds)
        with self.broker.shard.lock:
            self.broker.shard.keep_time()
        bury(self.broker.shard)
        self.broker.shard.journal.flush()


@contextlib.contextmanager
def metrics_of(shard: Shard, **options: Any) -> Iterator[Metrics]:
    loop = asyncio.new_event_loop()
    try:
        yield Metrics(alone(shard), ServerConfig.parse(options), loop, Pipelines(shard.clock))
    finally:
        loop.close()


@contextlib.contextmanager
def watched(
    storage: MemoryStorage | None = None, clock: VirtualClock | None = None, topics_max: int = 200, **options: Any
) -> Iterator[Watched]:
    clock = clock or VirtualClock()
    opened = penstock.open(storage=storage or MemoryStorage(), clock=clock, **{"min_free_bytes": 0, **options})
    with opened as broker, metrics_of(broker.shard, metrics_topics_max=topics_max) as metrics:
        yield Watched(broker, clock, metrics)


def promtool(*arguments: str, given: bytes = b"") -> str:
    """Run promtool, which must be content; what it says."""
    path = shutil.which("promtool")
    if path is None:
        pytest.fail("promtool is missing: it comes with Debian's package `prometheus` (apt-get install prometheus)")
    done = subprocess.run([path, *arguments], input=given, capture_output=True, timeout=60)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said
