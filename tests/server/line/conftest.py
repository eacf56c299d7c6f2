"""Fixtures of the tests of the text port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.line.harness import LineServer, Talk


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LineServer]:
    with LineServer(tmp_path) as running:
        yield running


@pytest.fixture
def talk(server: LineServer) -> Iterator[Talk]:
    with server.talk() as connected:
        yield connected
