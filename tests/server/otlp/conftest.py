"""Fixtures of the tests of exported traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.embedded.broker import Broker
from penstock.server.otlp import exporter
from tests.server.otlp.harness import Receiver


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "_GATHER_S", 0.01)
    monkeypatch.setattr(exporter, "_RETRY_S", 0.01)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with penstock.open(tmp_path / "data", min_free_bytes=0) as broker:
        broker.create_topic("orders", retry_backoff="1ms")
        yield broker
