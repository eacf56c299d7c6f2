"""What all tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import penstock
from penstock.broker.engine import Engine
from penstock.model.config import BrokerConfig
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock

settings.register_profile(
    "penstock",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("penstock")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[penstock.Broker]:
    """A broker on real files."""
    with penstock.open(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def engine_on(clock: VirtualClock) -> Callable[..., Engine]:
    """Opens an engine with no threads: the test does every step itself."""

    def start(storage: MemoryStorage | FaultyStorage, **options: Any) -> Engine:
        return Engine(storage, BrokerConfig.parse({"min_free_bytes": 0, **options}), clock)

    return start
