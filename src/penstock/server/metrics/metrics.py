"""The metrics of one server: what its ports report, and the page that Prometheus reads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from time import perf_counter

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from penstock.cluster.shards import Shards
from penstock.model.histograms import REQUEST_S, Histogram
from penstock.server.metrics.collecting import collect
from penstock.server.metrics.member import MemberMeter
from penstock.server.metrics.process import LoopDelay
from penstock.server.pipelines import Pipelines
from penstock.server.settings.options import ServerConfig
from penstock.shard.metering.meters import OTHER
from penstock.shard.shard import Shard
from penstock.storage.counted import BucketMeter

PORTS = ("native", "http", "line")
_OPERATIONS_MAX = 64


class PortMeter:
    """What one port reports; on the event loop."""

    __slots__ = ("failures", "open", "opened", "requests")

    def __init__(self) -> None:
        self.open = 0
        self.opened = 0
        self.requests: dict[str, Histogram] = {}
        self.failures: dict[str, int] = {}


class Metrics(Collector):
    """Counts for the ports, and tells everything that is known to whoever asks."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(
        self, shards: Shards, config: ServerConfig, loop: asyncio.AbstractEventLoop, pipelines: Pipelines
    ) -> None:
        self.shards = shards
        self.pipelines = pipelines
        self.named_max = config.metrics_topics_max
        self.loop = loop
        self.ports = {port: PortMeter() for port in PORTS}
        self.loop_delay = LoopDelay(loop)
        self.opened_s = shards.clock.wall_us() / 1_000_000 - shards.clock.monotonic_s() + shards.opened_s
        self.scrape_s = 0.0
        self.bucket: BucketMeter | None = None
        """What is asked of the bucket, if the broker is on one."""
        self.member: MemberMeter | None = None
        """What a broker on a bucket counts of itself."""
        self.peers_refused = 0
        """Connections that claimed to be of a member of this cluster, and could not prove it."""
        self.broker_id: Callable[[], str] = self._own_id
        """The identity of the whole."""
        self._rendering = threading.Lock()
        for shard in shards:
            self.name_topics(shard)

    def name_topics(self, shard: Shard) -> None:
        """Have its share of topics in a shard with metrics of their own."""
        shard.name_topics(-(-self.named_max // self.shards.count))

    def _own_id(self) -> str:
        return self.shards.first.broker_id.hex()

    def start(self) -> None:
        """Begin to measure what nobody reports: how late the event loop is."""
        self.loop_delay.start()

    def stop(self) -> None:
        self.loop_delay.stop()

    # What ports report; on the event loop.

    def connection_opened(self, port: str) -> None:
        """A client has connected."""
        self.ports[port].open += 1
        self.ports[port].opened += 1

    def connection_closed(self, port: str) -> None:
        """A client has gone."""
        self.ports[port].open -= 1

    def request(self, port: str, operation: str, seconds: float, failed: bool) -> None:
        """A request was answered."""
        meter = self.ports[port]
        times = meter.requests.get(operation)
        if times is None:
            if len(meter.requests) >= _OPERATIONS_MAX:
                operation = OTHER
            times = meter.requests.setdefault(operation, Histogram(REQUEST_S))
            meter.failures.setdefault(operation, 0)
        times.observe(seconds)
        if failed:
            meter.failures[operation if operation in meter.failures else OTHER] += 1

    @property
    def connections(self) -> int:
        """How many are open, on all ports."""
        return sum(meter.open for meter in self.ports.values())

    # What Prometheus reads.

    def render(self) -> bytes:
        """The page, in the text format of Prometheus; it takes a while and may be made in any thread."""
        with self._rendering:  # who asks twice at once gets it one after the other
            started_s = perf_counter()
            page = generate_latest(self)
            self.scrape_s = perf_counter() - started_s
            return page

    def collect(self) -> Iterable[Metric]:
        return collect(self)
