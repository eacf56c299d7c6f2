"""Fixtures of the command line's tests."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.harness import TARGETS, Command, on_directory, on_server


@pytest.fixture(params=TARGETS)
def command(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Command]:
    """The command line on a fresh broker, once for each target."""
    with TARGETS[request.param](tmp_path / "data") as made:
        yield made


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Command]:
    """The command line on a fresh directory."""
    with on_directory(tmp_path / "data") as made:
        yield made


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Command]:
    """The command line on a fresh server."""
    with on_server(tmp_path / "data") as made:
        yield made


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nothing listens, and nothing can while the test runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
