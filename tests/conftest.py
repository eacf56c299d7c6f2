"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

import penstock
from penstock.model.config import BrokerConfig
from penstock.shard.shard import Shard
from penstock.shard.state_lock import StateLock
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from tests.sharding import divide_new_directories, skip_those_of_one_shard
from tests.spark.class_data import java_options

os.environ |= {"PENSTOCK_HTTP_PORT": "off", "PENSTOCK_LINE_PORT": "off"}  # servers of tests have only what they ask for
os.environ["SPARK_SUBMIT_OPTS"] = java_options()

_SESSIONS = ("spark", "jobs", "pipelines")  # directories whose tests share a session of Spark
_APART = ("tests/test_docs.py", "tests/test_benchmarks.py", "tests/spark/test_cluster.py")
"""Files of long tests that share nothing: each is where there is room."""

settings.register_profile(
    "penstock",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("penstock")


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Where tests run in several processes, those of a file stay together, and all that share a Spark session do."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file in _APART:
            return nodeid
        shared = [name for name in _SESSIONS if file.startswith(f"tests/{name}/")]
        return shared[0] if shared else file

    def remove_node(self, node: WorkerController) -> str | None:
        """A process has ended: others get what it left, but for the test in which that happened, which is returned.

        In xdist's own way they also get what was done, and one that gets nothing else is waited for in vain.
        """
        units = self.assigned_work.pop(node)
        left = [(unit, test) for unit in units.values() for test, is_done in unit.items() if not is_done]
        if not left:
            return None
        unit, ended_in = left[0]
        unit[ended_in] = True
        self.workqueue.update({scope: unit for scope, unit in units.items() if not all(unit.values())})
        for other in self.assigned_work:
            if other in self.registered_collections:
                self._reschedule(other)
        return str(ended_in)

    def _reschedule(self, node: WorkerController) -> None:
        """A process begins with a test when it knows the next one, or that there is none."""
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


def _enter_once(lock: StateLock) -> bool:
    assert not lock.held, "this thread holds the state lock already"
    return bool(lock.acquire())


StateLock.__enter__ = _enter_once  # type: ignore[assignment]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shards", type=int, default=1, help="divide every new data directory into so many shards")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "one_shard(reason): skipped where directories are divided")
    if config.option.shards > 1:
        divide_new_directories(config.option.shards)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.shards > 1:
        skip_those_of_one_shard(items)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together:
    """Its own groups (`--dist loadgroup`) are lost with pytest 9.2: it writes them into ids that no longer change."""
    return Together(config, log)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[penstock.Broker]:
    """A broker on real files."""
    with penstock.open(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def shard_on(clock: VirtualClock) -> Callable[..., Shard]:
    """Opens a shard with no threads: the test does every step itself."""

    def start(storage: MemoryStorage | FaultyStorage, **options: Any) -> Shard:
        return Shard(storage, BrokerConfig.parse({"min_free_bytes": 0, **options}), clock)

    return start
